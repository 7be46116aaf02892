"""A replica inside this process, without sockets: stand-ins for its clients and its broker.

The broker answers each request in the next turn of the event loop. Each operation is a class with `rounds(count)`. With
`observed` the replica has traffic records, traces and traffic rules, as in `watching`; the threads that write records
and send spans do not run.
"""

import asyncio
import random
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import hpack
import orjson

from grpc_gateway.consuming.receipt_handle import handle_from_pop
from grpc_gateway.http2 import frames
from grpc_gateway.server.connection import GrpcConnection
from protocol_negotiation.fair_turns import Share
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Message, MessageQueue, MessageType, Resource, SystemProperties
from proxy.app import App
from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.route_cache import _Entry
from proxy.settings.loading import load
from remoting.codes import RequestCode
from remoting.connection import RemotingConnection
from remoting.frame import FrameDecoder, encode_prefix
from remoting.messages import StoredMessage, encode_message
from remoting.pop import ExtraInfo
from remoting.pop_offset_info import Retry
from remoting.routes import Replicas, TopicRoute
from remoting.topic_group_config import GroupConfig, TopicConfig
from tests.benchmark.watching import RULES

# The client does not answer pings.
_SETTINGS = {"cluster": {"namesrv": "127.0.0.1:9876"}, "listen": ":0", "grpc": {"ping_after": 3600}}
TOPIC, GROUP, BROKER = "topic", "group", "broker-a"
_ADDRESS = "127.0.0.1:10911"
_BODY = b"x" * 256
# Requests that arrive in one read, and messages in a reply to a pull or pop. More bytes of gRPC requests would be
# handled in turns whose length depends on the time.
READ, GRPC_READ, BATCH = 16, 4, 32
_PEER = Peer(HostPort("10.0.0.1", 50000), HostPort("10.0.0.2", 8080))
PROPERTIES = "UNIQ_KEY\x017F0000017D2C18B4AAC2A1B2C3D40000\x02WAIT\x01true\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
_opaque = re.compile(rb'"opaque":(-?\d+)').search
_code = re.compile(rb'"code":(\d+)').search


class Transport:
    """Passes written bytes to `sink`."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self.write = sink

    def writelines(self, buffers: list[bytes]) -> None:
        self.write(b"".join(buffers))

    def set_write_buffer_limits(self, **_: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a remoting frame."""
    raw = orjson.dumps(header)
    return encode_prefix(0, len(raw), len(body)) + raw + body


class Broker:
    """Answers every request with the reply of its code."""

    def __init__(self, app: App, replies: dict[int, tuple[dict[str, str], bytes]]) -> None:
        self.connection = RemotingConnection(app._wheel, lambda *_: None, lambda _: None, name=_ADDRESS)
        self.connection.connection_made(Transport(self._take))  # type: ignore[arg-type]
        self._decoder = FrameDecoder()
        self._loop = asyncio.get_running_loop()
        # Each reply around its opaque.
        self._replies = {code: _halves(fields, body) for code, (fields, body) in replies.items()}

    def _take(self, data: bytes) -> None:
        answers: list[bytes] = []
        for _, header, _ in self._decoder.feed(data):
            opaque, code = _opaque(header), _code(header)
            assert opaque is not None
            assert code is not None
            before, after, body = self._replies[int(code[1])]
            raw = before + opaque[1] + after
            answers += (encode_prefix(0, len(raw), len(body)), raw, body)
        self._loop.call_soon(self.connection.data_received, b"".join(answers))


def _halves(fields: dict[str, str], body: bytes) -> tuple[bytes, bytes, bytes]:
    # In the order of Java's serializer.
    header = {"code": 0, "extFields": fields, "flag": 1, "language": "JAVA", "opaque": 0}
    raw = orjson.dumps({**header, "serializeTypeCurrentRPC": "JSON", "version": 493})
    place = raw.index(b"0,", raw.index(b'"opaque"'))
    return raw[:place], raw[place + 1 :], body


def _observation(directory: str) -> dict[str, Any]:
    """Return the settings of traffic records, traces and rules."""
    rules = Path(directory, "rules.toml")
    rules.write_text(RULES)
    # Traces of no request: those of one in a hundred would be another number of spans in each run.
    return {
        "traffic": {"directory": f"{directory}/traffic"},
        "tracing": {"endpoint": "http://127.0.0.1:9/v1/traces", "share": 0.0},
        "rules": {"file": str(rules)},
    }


class Operation:
    """One operation on a new replica with a broker. messages: messages per round. observed: with observation."""

    messages: ClassVar[int]
    replies: ClassVar[dict[int, tuple[dict[str, str], bytes]]] = {}

    def __init__(self, observed: bool = False) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.app = app = App(load(None, _SETTINGS | (_observation(self._directory.name) if observed else {})))
        if app.tracing is not None:
            app.tracing._processor.shutdown()  # type: ignore[no-untyped-call]  # of opentelemetry
        backend, now = app.backend, asyncio.get_running_loop().time()
        assert isinstance(backend, ClusterBackend)
        replicas = Replicas(BROKER, "c", {0: _ADDRESS})
        backend._table.brokers = {BROKER: replicas}
        queues = {"brokerName": BROKER, "perm": 6, "readQueueNums": 8, "writeQueueNums": 8, "topicSysFlag": 0}
        data = {"brokerDatas": [{"brokerName": BROKER, "brokerAddrs": {0: _ADDRESS}}], "queueDatas": [queues]}
        route = TopicRoute(TOPIC, data, (BROKER,))
        backend._routes._entries[TOPIC] = _Entry(route, now, now)
        app.grpc.metadata.topics._put(TOPIC, TopicConfig(TOPIC), 3600.0)
        app.grpc.metadata.groups._put(GROUP, GroupConfig(GROUP), 3600.0)
        broker = Broker(app, self.replies)
        for number in range(backend._settings.connections_per_broker):
            for poll in (False, True):
                server = backend._new_server(_ADDRESS, lambda *_: None, None)
                server.connection = broker.connection
                backend._servers[_ADDRESS, number, poll] = server
        self._share: Share
        self._left = 0
        self._done = asyncio.Event()

    def prepare(self, count: int) -> None:
        """Make the requests of the next `count` rounds, where they differ: the client's part is not to be measured."""

    async def rounds(self, count: int) -> None:
        """Run the operation `count` times."""
        for _ in range(count):
            await self._round()
            self.app._wheel.advance()

    async def _round(self) -> None:
        raise NotImplementedError

    async def _send(self, chunk: bytes, answers: int, receive: Callable[[bytes], None]) -> None:
        """Let the replica read, and wait for as many answers."""
        self._left = answers
        self._done.clear()
        # Under valgrind reads take so long that they count as expensive, and the next one would wait for its turn.
        self._share.paused_until = 0.0
        receive(chunk)
        await self._done.wait()

    def _answered(self, number: int) -> None:
        self._left -= number
        if self._left == 0:
            self._done.set()


# Remoting.


class _Remoting(Operation):
    header: ClassVar[dict[str, Any]]
    body: ClassVar[bytes] = b""

    def __init__(self, observed: bool = False) -> None:
        super().__init__(observed)
        self._decoder = FrameDecoder()
        self._channel = self.app.remoting.accept(_PEER)
        self._channel.connection_made(Transport(self._take))  # type: ignore[arg-type]
        self._share = self._channel.share
        common = {"flag": 0, "language": "JAVA", "version": 493, "serializeTypeCurrentRPC": "JSON"}
        self._chunk = b"".join(frame({**self.header, **common, "opaque": n}, self.body) for n in range(READ))

    def _take(self, data: bytes) -> None:
        self._answered(len(self._decoder.feed(data)))

    async def _round(self) -> None:
        await self._send(self._chunk, READ, self._channel.data_received)


_SENT = {"msgId": "7F00000100002A9F0000000000001234", "queueId": "1", "queueOffset": "12", "MSG_REGION": "r"}


class RemotingSend(_Remoting):
    """SEND_MESSAGE_V2."""

    messages = READ
    body = _BODY
    header: ClassVar[dict[str, Any]] = {
        "code": int(RequestCode.SEND_MESSAGE_V2),
        "extFields": {
            **dict(zip("abcdefgh", ("producer", TOPIC, "TBW102", "4", "1", "0", "1795254240000", "0"), strict=True)),
            "i": PROPERTIES,
            "j": "0",
            "k": "false",
            "m": "false",
            "n": BROKER,
        },
    }
    replies: ClassVar = {int(RequestCode.SEND_MESSAGE_V2): (_SENT, b"")}


def _stored(offset: int) -> StoredMessage:
    now = 1_795_254_240_000
    properties = PROPERTIES + "\x02"
    host = ("10.0.0.3", 10911)
    return StoredMessage(
        topic=TOPIC,
        body=_BODY,
        properties=properties,
        queue_offset=offset,
        commit_log_offset=1000 + 400 * offset,
        born_timestamp=now,
        born_host=("10.0.0.1", 50000),
        store_timestamp=now,
        store_host=host,
    )


_BATCH_BODY = b"".join(encode_message(_stored(offset)) for offset in range(BATCH))


class RemotingPull(_Remoting):
    """PULL_MESSAGE of 32 messages."""

    messages = READ * BATCH
    header: ClassVar[dict[str, Any]] = {
        "code": int(RequestCode.PULL_MESSAGE),
        "extFields": {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "1",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "2",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "*",
            "subVersion": "1",
            "expressionType": "TAG",
            "bname": BROKER,
        },
    }
    replies: ClassVar = {
        int(RequestCode.PULL_MESSAGE): (
            {"suggestWhichBrokerId": "0", "nextBeginOffset": "32", "minOffset": "0", "maxOffset": "64"},
            _BATCH_BODY,
        )
    }


# gRPC.


class _Grpc(Operation):
    """A client that behaves as the official Go client: new request ids and deadlines in each call."""

    def __init__(self, observed: bool = False) -> None:
        super().__init__(observed)
        self._received = b""
        self._written = 0
        self._stream_id = -1
        self._encoder = hpack.Encoder()
        self._random = random.Random(1)
        self._connection = self.app.grpc.server.protocol(_PEER)
        self._connection.connection_made(Transport(self._take))  # type: ignore[arg-type]
        assert isinstance(self._connection, GrpcConnection)
        self._share = self._connection.share
        windows = frames.settings({4: 2**31 - 1}) + frames.SETTINGS_ACK + frames.window_update(0, 2**31 - 70_000)
        self._connection.data_received(frames.PREFACE + windows)

    def _take(self, data: bytes) -> None:
        """Count the bytes and the ended streams."""
        self._written += len(data)
        data = self._received + bytes(data)
        position, ended = 0, 0
        while position + 9 <= len(data):
            end = position + 9 + int.from_bytes(data[position : position + 3])
            if end > len(data):
                break
            ended += data[position + 3] <= frames.HEADERS and data[position + 4] & frames.END_STREAM
            position = end
        self._received = data[position:]
        if ended:
            self._answered(ended)

    def _call(self, method: str, message: bytes, polling: int = 0) -> bytes:
        self._stream_id += 2
        head = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", f"/apache.rocketmq.v2.MessagingService/{method}"),
            (":authority", "127.0.0.1:8080"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.64.0"),
            ("te", "trailers"),
            ("grpc-timeout", f"{2_990_000 + 1000 * polling + self._random.randrange(9999)}u"),
            ("x-mq-language", "GOLANG"),
            ("x-mq-protocol-version", "v2"),
            ("x-mq-client-version", "5.1.2"),
            ("x-mq-client-id", "host@1@0@a1b2c3"),
            ("x-mq-namespace", ""),
            ("x-mq-request-id", str(uuid.UUID(int=self._random.getrandbits(128), version=4))),
            ("x-mq-date-time", "20261123T120000Z"),
        )
        body = b"\0" + len(message).to_bytes(4) + message
        return _http2(frames.HEADERS, frames.END_HEADERS, self._stream_id, self._encoder.encode(head)) + _http2(
            frames.DATA, frames.END_STREAM, self._stream_id, body
        )


def _http2(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return frames.start(kind, flags, len(payload)) + stream_id.to_bytes(4) + payload


class GrpcSend(_Grpc):
    """SendMessage."""

    messages = GRPC_READ
    replies: ClassVar = {int(RequestCode.SEND_MESSAGE_V2): (_SENT, b"")}

    def __init__(self, observed: bool = False) -> None:
        super().__init__(observed)
        self._chunks: Iterator[bytes] = iter(())

    def prepare(self, count: int) -> None:
        self._chunks = iter(
            [b"".join(self._call("SendMessage", _send(n)) for n in range(GRPC_READ)) for _ in range(count)]
        )

    async def _round(self) -> None:
        await self._send(next(self._chunks), GRPC_READ, self._connection.data_received)


def _send(number: int) -> bytes:
    system = SystemProperties(
        message_id=f"01{number:030X}", tag="TagA", keys=["key"], message_type=MessageType.NORMAL, born_host="host"
    )
    system.born_timestamp.FromMilliseconds(1_795_254_240_000)
    message = Message(
        topic=Resource(name=TOPIC), user_properties={"a": "1", "b": "two"}, system_properties=system, body=_BODY
    )
    return pb.SendMessageRequest(messages=[message]).SerializeToString()


_POP_TIME = int(time.time() * 1000)
_INVISIBLE = 3_600_000
_POLLING = 20_000


class GrpcReceive(_Grpc):
    """ReceiveMessage of 32 messages by a simple consumer, and an AckMessage for each."""

    messages = BATCH
    replies: ClassVar = {
        int(RequestCode.POP_MESSAGE): (
            {
                "popTime": str(_POP_TIME),
                "invisibleTime": str(_INVISIBLE),
                "reviveQid": "1",
                "startOffsetInfo": "0 0 0",
                "msgOffsetInfo": "0 0 " + ",".join(map(str, range(BATCH))),
                "restNum": "0",
            },
            _BATCH_BODY,
        ),
        int(RequestCode.ACK_MESSAGE): ({}, b""),
    }

    def __init__(self, observed: bool = False) -> None:
        super().__init__(observed)
        self._chunks: Iterator[tuple[bytes, list[bytes]]] = iter(())

    def prepare(self, count: int) -> None:
        topic, group = Resource(name=TOPIC), Resource(name=GROUP)
        receive = pb.ReceiveMessageRequest(
            group=group, message_queue=MessageQueue(topic=topic, id=-1), batch_size=BATCH, auto_renew=False
        )
        receive.invisible_duration.FromMilliseconds(_INVISIBLE)
        receive.long_polling_timeout.FromMilliseconds(_POLLING)
        receive.filter_expression.expression = "*"
        acks = [
            pb.AckMessageRequest(
                group=group, topic=topic, entries=[pb.AckMessageEntry(message_id="id", receipt_handle=_handle(offset))]
            ).SerializeToString()
            for offset in range(BATCH)
        ]
        self._chunks = iter(
            [
                (
                    self._call("ReceiveMessage", receive.SerializeToString(), _POLLING),
                    [
                        b"".join(self._call("AckMessage", ack) for ack in acks[start : start + GRPC_READ])
                        for start in range(0, BATCH, GRPC_READ)
                    ],
                )
                for _ in range(count)
            ]
        )

    async def _round(self) -> None:
        receive, acks = next(self._chunks)
        before = self._written
        await self._send(receive, 1, self._connection.data_received)
        if self._written - before < len(_BATCH_BODY):
            raise ValueError("the receive had no messages")
        for chunk in acks:
            await self._send(chunk, GRPC_READ, self._connection.data_received)


def _handle(offset: int) -> str:
    info = ExtraInfo(0, _POP_TIME, _INVISIBLE, 1, Retry.NORMAL, BROKER, 0, offset)
    return handle_from_pop(info, 1000 + 400 * offset).text


OPERATIONS: dict[str, type[Operation]] = {
    "remoting-send": RemotingSend,
    "remoting-pull": RemotingPull,
    "grpc-send": GrpcSend,
    "grpc-receive-ack": GrpcReceive,
}
