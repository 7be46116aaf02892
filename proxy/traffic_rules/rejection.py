"""Protocol-specific rejection of connections over a limit."""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import quote

from grpc import StatusCode

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Encoder
from protocol_negotiation.detect import Protocol
from protocol_negotiation.rejection import LINGER_SECONDS, Rejector
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.frame import FrameDecoder

# Seconds that a client has to send its first call.
_FIRST_CALL_TIMEOUT = 5.0
# Bytes of a frame before the first call.
_MAX_FRAME_SIZE = 16_384


class RemotingRejector(Rejector):
    """Answers the requests in the first bytes received with FLOW_CONTROL, then closes the connection."""

    __slots__ = ("__weakref__", "_text")

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def response(self, data: bytes) -> bytes:
        """Return the responses to the complete requests in `data`."""
        responses = []
        try:
            for frame in FrameDecoder().feed(data):
                command = commands.decode(frame)
                if not command.is_oneway:
                    rejection = commands.response(ResponseCode.FLOW_CONTROL, remark=self._text)
                    responses.append(commands.answer(rejection, command.opaque, command.serialize_type).encode())
        except RemotingError:
            # Without a readable request there is no opaque to answer.
            pass
        return b"".join(responses)

    def close(self) -> None:
        """Close the connection now."""
        self._transport.close()


class GrpcRejector(asyncio.Protocol):
    """Ends the first call with RESOURCE_EXHAUSTED and the reason, then closes the connection.

    GOAWAY alone would not show the reason to the caller.
    """

    __slots__ = ("__weakref__", "_buffer", "_closing", "_preface_received", "_rejected", "_text", "_transport")

    _transport: asyncio.Transport

    def __init__(self, text: str) -> None:
        self._text = text
        self._buffer = bytearray()
        self._preface_received = self._rejected = False
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._close_in(_FIRST_CALL_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self._rejected:
            return
        self._buffer += data
        if not self._preface_received and len(self._buffer) >= len(frames.PREFACE):
            del self._buffer[: len(frames.PREFACE)]
            self._preface_received = True
            self._transport.write(frames.settings({}) + frames.SETTINGS_ACK)
        if self._preface_received:
            self._find_call()

    def _find_call(self) -> None:
        """Consume frames up to the first HEADERS frame and reject its call."""
        buffer = self._buffer
        while len(buffer) >= frames.HEADER_SIZE:
            start, _, stream = frames.unpack_header(buffer)
            length, kind = start >> 8, start & 0xFF
            if kind == frames.HEADERS:
                self._reject(stream & 0x7FFFFFFF)
                return
            if length > _MAX_FRAME_SIZE:
                self._transport.close()
                return
            if len(buffer) < frames.HEADER_SIZE + length:
                return
            del buffer[: frames.HEADER_SIZE + length]

    def _reject(self, stream: int) -> None:
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
        self._rejected = True
        self._buffer.clear()
        self._close_in(LINGER_SECONDS)

    def close(self) -> None:
        """Close the connection now."""
        self._transport.close()

    def _close_in(self, seconds: float) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(seconds, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing is not None:
            self._closing.cancel()


REJECTORS: Mapping[Protocol, Callable[[str], RemotingRejector | GrpcRejector]] = {
    Protocol.REMOTING: RemotingRejector,
    Protocol.GRPC: GrpcRejector,
}
