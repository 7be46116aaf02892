"""A client that sends arbitrary bytes to a `GrpcConnection`, through a fake transport."""

import asyncio
from typing import cast

from grpc_gateway.http2 import frames
from grpc_gateway.server import GrpcConnection, Server
from protocol_negotiation.peer import HostPort, Peer, Tls
from tests.grpc_gateway.http2.http2_client import END, PREFACE, Client, Frame, parse
from tests.grpc_gateway.server.servers import path

PEER = Peer(HostPort("::1", 7), HostPort("::1", 8), tls=Tls("TLSv1.3", "x", subject=r"CN=al\,ice,O=x"))


class FakeTransport(asyncio.Transport):
    """Records written bytes; the test decides when the peer reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.aborted = self.ended = False
        self.buffer_size = 0
        # Bytes that fit before the protocol is paused; None for no limit.
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
        """Empty the buffer, as a peer that reads everything."""
        self.buffer_size = 0
        if self.paused and self.protocol is not None:
            self.paused = False
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignored: `room` is the limit."""

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


class WireClient(Client):
    """An HTTP/2 client of a `GrpcConnection`."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.blocks: dict[int, list[dict[str, str]]] = {}
        self.channel: GrpcConnection = server.protocol(PEER)
        self.transport = FakeTransport()
        self.transport.protocol = self.channel
        self.channel.connection_made(self.transport)
        self.channel.data_received(PREFACE)

    def send_bytes(self, sent: bytes) -> None:
        self.channel.data_received(sent)

    def call(self, stream_id: int, name: str, *fields: tuple[str, str], flags: int = 0) -> bytes:
        head = ((":method", "POST"), (":scheme", "http"), (":path", path(name)), (":authority", "x"))
        return self.headers(stream_id, *head, ("content-type", "application/grpc"), *fields, flags=flags)

    async def response(self, stream_id: int = 1) -> tuple[dict[str, str], bytes, dict[str, str]]:
        """Wait for a response; return its head, data and trailers. Without trailers, the head has the status."""
        async with asyncio.timeout(30):
            while not any(frame.stream_id == stream_id and frame.flags & END for frame in self.read_frames()):
                await asyncio.sleep(0.001)
        head, *trailers = self.blocks[stream_id]
        return head, self.body(stream_id), trailers[0] if trailers else {}

    def read_frames(self) -> list[Frame]:
        """Return all frames so far; decode new header blocks in the order of their arrival."""
        new = parse(b"".join(self.transport.written))[len(self.received) :]
        self.received += new
        for frame in new:
            if frame.kind == frames.HEADERS:
                self.blocks.setdefault(frame.stream_id, []).append(dict(self.decode(frame)))
        return self.received


def message(body: bytes, flag: int = 0) -> bytes:
    """Return a length-prefixed message."""
    return bytes((flag,)) + len(body).to_bytes(4) + body
