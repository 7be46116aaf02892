"""What a connection is told of which there are too many: by its own protocol, then it ends."""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import quote

from grpc import StatusCode

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Encoder
from protocol_negotiation.detect import Protocol
from protocol_negotiation.rejection import LINGER, Farewell
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.frame import FrameDecoder

# Seconds that a client has to say what it wants, and bytes of a frame before that.
_TIMEOUT = 5.0
_LARGEST = 16_384


class RemotingFarewell(Farewell):
    """The requests that have come already are refused."""

    __slots__ = ("__weakref__", "_text")

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def answer(self, data: bytes) -> bytes:
        answers = []
        try:
            for frame in FrameDecoder().feed(data):
                command = commands.decode(frame)
                if not command.is_oneway:
                    refusal = commands.response(ResponseCode.FLOW_CONTROL, remark=self._text)
                    answers.append(commands.answer(refusal, command.opaque, command.serialize_type).encode())
        except RemotingError:
            # Nobody to answer.
            pass
        return b"".join(answers)

    def end(self) -> None:
        """Close it now."""
        self._transport.close()


class GrpcFarewell(asyncio.Protocol):
    """The first call ends with RESOURCE_EXHAUSTED and the reason, which GOAWAY alone would not let the caller see."""

    __slots__ = ("__weakref__", "_buffer", "_closing", "_greeted", "_refused", "_text", "_transport")

    _transport: asyncio.Transport

    def __init__(self, text: str) -> None:
        self._text = text
        self._buffer = bytearray()
        self._greeted = self._refused = False
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._close_in(_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._buffer += data
        if not self._greeted and len(self._buffer) >= len(frames.PREFACE):
            del self._buffer[: len(frames.PREFACE)]
            self._greeted = True
            self._transport.write(frames.settings({}) + frames.SETTINGS_ACK)
        if self._greeted:
            self._look()

    def _look(self) -> None:
        """Look for a call in the frames that have come."""
        buffer = self._buffer
        while len(buffer) >= frames.HEADER_SIZE:
            start, _, stream = frames.unpack_header(buffer)
            length, kind = start >> 8, start & 0xFF
            if kind == frames.HEADERS:
                self._refuse(stream & 0x7FFFFFFF)
                return
            if length > _LARGEST:
                self._transport.close()
                return
            if len(buffer) < frames.HEADER_SIZE + length:
                return
            del buffer[: frames.HEADER_SIZE + length]

    def _refuse(self, stream: int) -> None:
        text = quote(self._text, safe=" ()/,:;").encode()
        fields = Encoder().fields(
            (
                (b":status", b"200"),
                (b"content-type", b"application/grpc"),
                (b"grpc-status", b"%d" % StatusCode.RESOURCE_EXHAUSTED.value[0]),
                (b"grpc-message", text),
            )
        )
        start = frames.start(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, len(fields))
        self._transport.write(start + stream.to_bytes(4, "big") + fields)
        self._transport.write(frames.goaway(stream, ErrorCode.ENHANCE_YOUR_CALM, text))
        self._refused = True
        self._buffer.clear()
        self._close_in(LINGER)

    def end(self) -> None:
        """Close it now."""
        self._transport.close()

    def _close_in(self, seconds: float) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(seconds, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing is not None:
            self._closing.cancel()


FAREWELLS: Mapping[Protocol, Callable[[str], RemotingFarewell | GrpcFarewell]] = {
    Protocol.REMOTING: RemotingFarewell,
    Protocol.GRPC: GrpcFarewell,
}
