"""A client of a `GrpcConnection` on a transport of the test's own: what no grpcio client sends, byte by byte."""

import asyncio
from typing import cast

from grpc_gateway.http2 import frames
from grpc_gateway.server import GrpcConnection, Server
from protocol_negotiation.peer import HostPort, Peer, Tls
from tests.grpc_gateway.http2.kit import END, GREETING, Client, Frame, parse
from tests.grpc_gateway.server.kit import path

PEER = Peer(HostPort("::1", 7), HostPort("::1", 8), tls=Tls("TLSv1.3", "x", subject=r"CN=al\,ice,O=x"))


class FakeTransport(asyncio.Transport):
    """Keeps what is written; how fast the peer is, the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.aborted = self.ended = False
        self.buffer_size = 0
        # What fits before the connection is paused; None: everything is taken at once.
        self.room: int | None = None
        self.paused = False
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, written: object) -> None:
        octets = cast(bytes, written)
        self.written.append(octets)
        if self.room is None:
            return
        self.buffer_size += len(octets)
        if self.buffer_size > self.room and not self.paused and self.protocol is not None:
            self.paused = True
            self.protocol.pause_writing()

    def drain(self) -> None:
        """The peer takes all."""
        self.buffer_size = 0
        if self.paused and self.protocol is not None:
            self.paused = False
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As the connection likes."""

    def get_write_buffer_size(self) -> int:
        return self.buffer_size

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True


class Wire(Client):
    """A client that speaks to a `GrpcConnection`."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.blocks: dict[int, list[dict[str, str]]] = {}
        self.channel: GrpcConnection = server.protocol(PEER)
        self.transport = FakeTransport()
        self.transport.protocol = self.channel
        self.channel.connection_made(self.transport)
        self.channel.data_received(GREETING)

    def say(self, said: bytes) -> None:
        self.channel.data_received(said)

    def call(self, stream_id: int, name: str, *fields: tuple[str, str], flags: int = 0) -> bytes:
        head = ((":method", "POST"), (":scheme", "http"), (":path", path(name)), (":authority", "x"))
        return self.headers(stream_id, *head, ("content-type", "application/grpc"), *fields, flags=flags)

    async def answer(self, stream_id: int = 1) -> tuple[dict[str, str], bytes, dict[str, str]]:
        """Head, data and trailers of an answer; trailers are empty where the head is all."""
        async with asyncio.timeout(30):
            while not any(found.stream_id == stream_id and found.flags & END for found in self.listen()):
                await asyncio.sleep(0.001)
        head, *trailers = self.blocks[stream_id]
        return head, self.body(stream_id), trailers[0] if trailers else {}

    def listen(self) -> list[Frame]:
        """All frames so far; their blocks are decoded in the order in which they came."""
        new = parse(b"".join(self.transport.written))[len(self.received) :]
        self.received += new
        for found in new:
            if found.kind == frames.HEADERS:
                self.blocks.setdefault(found.stream_id, []).append(dict(self.decode(found)))
        return self.received


def message(body: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(body).to_bytes(4) + body
