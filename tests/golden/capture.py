"""Record one frame of each request code, as written by official software.

    python -m tests.golden.capture

It starts a cluster and Gantry, and records the requests of official clients between them and Gantry, and the requests
of a broker to its clients at the broker. RocketMQ's own classes write the other frames (Frames.java). Gantry's code
neither reads nor writes the frames: the decoder of the expectations in frames.json is in this file.
"""

import asyncio
import hashlib
import json
import struct
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from remoting import command as commands
from remoting.codes import RequestCode
from remoting.connection import RemotingConnection
from tests.cluster.client import Client, create_topic, queue_fields, unique
from tests.cluster.conftest import OPTIONS
from tests.cluster.half_messages import send_half
from tests.cluster.servers import HOST, PEERS, Cluster, Failed, Gantry, run_client
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
# Codes that a binary header truncates, by their truncated value.
_TRUNCATED_CODES = {int(code) & 0xFFFF: int(code) for code in RequestCode if code > 0x7FFF}

# Message kinds and consumer modes with which the official client sends most codes.
_RUNS = (
    ("normal", "push", ("--refuse", "1")),
    ("batch", "push", ()),
    ("fifo", "push", ()),
    ("transaction", "push", ()),
    ("request-reply", "push", ()),
    ("sql", "push", ()),
    ("normal", "pull", ()),
    ("normal", "lite", ()),
    ("normal", "pop", ("--refuse", "1")),
)


class Collection:
    """The first frame of each code and encoding."""

    def __init__(self) -> None:
        self.frames: dict[tuple[int, int], tuple[bytes, str]] = {}

    def add(self, frame: bytes, origin: str) -> None:
        """Add the frame of a request, unless its code and encoding have one already."""
        header = read(frame)
        if not header["flag"] & 1 and header["code"] in set(map(int, RequestCode)):
            self.frames.setdefault((header["code"], frame[4]), (frame, origin))

    def tap(self, origin: str) -> Callable[[bytes], None]:
        """Return a function that collects the frames in the chunks of one direction of a connection."""
        buffer = bytearray()

        def take(data: bytes) -> None:
            buffer.extend(data)
            while len(buffer) >= 4 and len(buffer) >= (size := 4 + int.from_bytes(buffer[:4], "big")):
                self.add(bytes(buffer[:size]), origin)
                del buffer[:size]

        return take

    def write(self) -> None:
        """Write all frames and their contents."""
        for old in HERE.glob("*.bin"):
            old.unlink()
        contents: dict[str, Any] = {}
        for (code, encoding), (frame, origin) in sorted(self.frames.items()):
            name = f"{code}-{RequestCode(code).name}{'-binary' if encoding else ''}.bin"
            (HERE / name).write_bytes(frame)
            contents[name] = {"origin": origin, **read(frame)}
        (HERE / "frames.json").write_text(json.dumps(contents, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def read(frame: bytes) -> dict[str, Any]:
    """Decode a frame by the description of the protocol."""
    size = int.from_bytes(frame[5:8], "big")
    raw, body = frame[8 : 8 + size], frame[8 + size :]
    header = json.loads(raw) if frame[4] == 0 else _binary(raw)
    return {
        "code": header["code"],
        "language": header["language"],
        "version": header["version"],
        "opaque": header["opaque"],
        "flag": header["flag"],
        "remark": header.get("remark"),
        "fields": header.get("extFields") or {},
        "body": {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()},
    }


def _binary(raw: bytes) -> dict[str, Any]:
    languages = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO")
    code, language, version, opaque, flag, remark = struct.unpack_from(">hbhiii", raw)
    start = 17 + remark + 4
    fields: dict[str, str] = {}
    while start < len(raw):
        key = int.from_bytes(raw[start : start + 2], "big")
        name, start = raw[start + 2 : start + 2 + key].decode(), start + 2 + key
        value = int.from_bytes(raw[start : start + 4], "big")
        fields[name], start = raw[start + 4 : start + 4 + value].decode(), start + 4 + value
    return {
        "code": _TRUNCATED_CODES.get(code, code),
        "language": languages[language],
        "version": version,
        "opaque": opaque,
        "flag": flag,
        "remark": raw[17 : 17 + remark].decode() or None,
        "extFields": {name: value for name, value in fields.items() if value},
    }


class _Recorder:
    """A relay to Gantry that collects the frames of clients."""

    def __init__(self, target: Gantry, port: int, collection: Collection) -> None:
        self.target, self.port, self.collection = target, port, collection
        self.origin = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(HOST, self.target.port)
        await asyncio.gather(
            self._copy(reader, to_writer, self.collection.tap(self.origin)), self._copy(to_reader, writer, None)
        )

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tap: Callable[[bytes], None] | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if tap is not None:
                    tap(data)
                writer.write(data)
                await writer.drain()
        writer.close()


async def _clients(cluster: Cluster, directory: Path, collection: Collection) -> None:
    gantry_port, port = free_port(), free_port()
    config = f'[[listen]]\naddress = "{HOST}:{gantry_port}"\nadvertise = "{HOST}:{port}"\n'
    gantry = Gantry(directory, cluster.namesrv, config, port=gantry_port, listen=False)
    await anyio.to_thread.run_sync(gantry.start)
    recorder = _Recorder(gantry, port, collection)
    server = await asyncio.start_server(recorder.serve, HOST, port)

    async def run(client: str, action: str, *words: str) -> None:
        recorder.origin = f"{client}, {' '.join((action, *words))}"
        topic, group = unique("golden"), unique("group")
        kind = "FIFO" if "fifo" in words else "NORMAL"
        await anyio.to_thread.run_sync(lambda: cluster.topic(topic, 4, kind))
        if "pop" in words:
            await anyio.to_thread.run_sync(lambda: cluster.pop_mode(topic, group))
        options = ("--endpoint", f"{HOST}:{port}", "--topic", topic, "--group", group, "--timeout", "45", *words)
        try:
            await anyio.to_thread.run_sync(lambda: run_client(client, action, "6", *options))
        except Failed as failure:
            print(f"{recorder.origin}: {failure}"[:300])  # noqa: T201  # a script

    for serialize in ("JSON", "ROCKETMQ"):
        for kind, mode, more in _RUNS:
            if (serialize, mode) != ("ROCKETMQ", "pop"):
                await run("java-remoting", "roundtrip", "--kind", kind, "--mode", mode, "--serialize", serialize, *more)
        await run("java-remoting", "query", "--serialize", serialize)
    await run("go-remoting", "roundtrip", "--kind", "normal")
    server.close()
    await anyio.to_thread.run_sync(gantry.stop)


class _Tapped(RemotingConnection):
    """A connection that passes received bytes to `tap`."""

    tap: Callable[[bytes], None]

    def data_received(self, data: bytes) -> None:
        self.tap(data)
        super().data_received(data)


class _TappedClient(Client):
    wire = _Tapped


async def _broker(cluster: Cluster, collection: Collection) -> None:
    """Collect the requests of a broker to a client, at the broker."""
    _Tapped.tap = staticmethod(collection.tap("the broker"))
    topic, group, producers = await create_topic(cluster.broker, "golden"), unique("group"), unique("producers")
    async with _TappedClient(cluster.broker) as client, Client(cluster.broker) as tool:
        empty = commands.success
        client.answers = {
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: lambda _: empty(body=b'{"messageQueueTable":{}}'),
            RequestCode.GET_CONSUMER_RUNNING_INFO: lambda _: empty(body=b"{}"),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: lambda _: empty(body=b'{"consumeResult":"CR_SUCCESS"}'),
        }
        await client.heartbeat({group: [topic]}, [producers])
        async with Client(cluster.broker) as other:
            await other.heartbeat({group: [topic]})
        sent = await client.send(topic, b"golden", {"UNIQ_KEY": unique("A")})
        await send_half(client, topic, producers, b"half")
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, queue_fields(topic, consumerGroup=group, commitOffset=1))
        await tool.get(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": topic, "group": group, "timestamp": 0, "isForce": True}
        )
        await tool.get(223, {"topic": topic, "group": group, "clientAddr": ""})
        target = {"consumerGroup": group, "clientId": client.client_id}
        await tool.get(RequestCode.GET_CONSUMER_RUNNING_INFO, {**target, "jstackEnable": False})
        await tool.get(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, {**target, "msgId": sent.fields["msgId"], "brokerName": "broker-a"}
        )
        reply = f"CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01{client.client_id}\x02TTL\x013000\x02MSG_TYPE\x01reply\x02"
        fields = {
            "producerGroup": "repliers",
            "topic": "DefaultCluster_REPLY_TOPIC",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": 0,
            "sysFlag": 0,
            "bornTimestamp": 1_700_000_000_000,
            "flag": 0,
            "properties": reply,
        }
        await tool.get(RequestCode.SEND_REPLY_MESSAGE, fields, b"reply")
        await client.push(RequestCode.CHECK_TRANSACTION_STATE)


# Programs that use RocketMQ's own classes, and the folder with the jars of these classes: 5.4.0 and 5.5.0.
_PROGRAMS = (("Frames.java", "server"), ("LiteFrames.java", "bench"))


def _java(directory: Path, collection: Collection) -> None:
    """Collect the requests that no official client sends, written by RocketMQ's own header classes."""
    jars = json.loads(subprocess.run([PEERS, "install"], capture_output=True, text=True, check=True).stdout)
    for source, folder in _PROGRAMS:
        for encoding in ("JSON", "ROCKETMQ"):
            target = directory / source / encoding
            target.mkdir(parents=True)
            flag, classes = f"-Drocketmq.serialize.type={encoding}", f"{jars[folder]}/*"
            subprocess.run(["java", flag, "-cp", classes, str(HERE / source), str(target)], check=True)
            for file in sorted(target.iterdir()):
                collection.add(file.read_bytes(), f"RocketMQ's classes ({source})")


async def _capture() -> None:
    collection = Collection()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Cluster(directory / "peers", *OPTIONS) as cluster:
            await _clients(cluster, directory, collection)
            await _broker(cluster, collection)
        _java(directory, collection)
    collection.write()
    present = {code for code, _ in collection.frames}
    print(f"{len(collection.frames)} frames; none of {sorted(set(map(int, RequestCode)) - present)}")  # noqa: T201


if __name__ == "__main__":
    anyio.run(_capture)
