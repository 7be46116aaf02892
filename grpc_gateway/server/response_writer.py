"""Writing of a call's response: head, messages and trailers."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import grpc
from grpc.aio import UsageError

from grpc_gateway.http2.channel import MESSAGE_COST, TURN_BYTES, Http2Channel
from grpc_gateway.http2.hpack import Block, entry_size
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import compression
from grpc_gateway.server.messages import prefix
from grpc_gateway.server.metadata import Fields, Metadata, encode
from grpc_gateway.server.methods import Method
from grpc_gateway.server.request import CONTENT_TYPE, Request
from grpc_gateway.server.rpc_status import NUMBERS, RpcError, encode_message
from grpc_gateway.server.server_options import ServerOptions

_log = logging.getLogger("gantry.grpc")

HEAD: Final = Block((":status", "200"), ("content-type", CONTENT_TYPE))
OK_TRAILERS: Final = Block(("grpc-status", "0"))
_HEAD_FIELDS: Final = list(HEAD.fields)
_INTERNAL: Final = grpc.StatusCode.INTERNAL
_RESOURCE_EXHAUSTED: Final = grpc.StatusCode.RESOURCE_EXHAUSTED


def serialize(method: Method, response: Any, limit: int) -> bytes:
    """Return the bytes of a response; that of an `immediate` handler may be serialized already.

    Raises RpcError if it cannot be encoded, or exceeds `limit` bytes.
    """
    if method.serialize is None or (method.taskless is not None and isinstance(response, bytes)):
        body = response
    else:
        try:
            body = method.serialize(response)
        except Exception as error:
            _log.exception("%s: the response cannot be serialized", method.path)
            raise RpcError(_INTERNAL, "the response cannot be serialized") from error
    if not isinstance(body, bytes):
        _log.error("%s: the response is %s instead of bytes", method.path, type(body).__name__)
        raise RpcError(_INTERNAL, "the response cannot be serialized")
    check_size(body, limit)
    return body


def check_size(body: bytes, limit: int) -> None:
    """Raise RpcError if a message exceeds `limit` bytes."""
    if len(body) > limit:
        raise RpcError(_RESOURCE_EXHAUSTED, f"the response of {len(body)} bytes is larger than {limit}")


class ResponseWriter:
    """Writer of a response on a stream.

    Successful unary responses without metadata or compression do not need a writer.

    head_sent: the response's head has been sent.
    compression: compression of the messages, if the client accepts it.
    skip_compression: send the next message uncompressed.
    """

    __slots__ = (
        "_channel",
        "_closed",
        "_encoding",
        "_method",
        "_options",
        "_request",
        "_room",
        "_stream",
        "compression",
        "head_sent",
        "skip_compression",
    )

    def __init__(
        self, channel: Http2Channel, options: ServerOptions, stream: Stream, method: Method, request: Request
    ) -> None:
        self._channel = channel
        self._options = options
        self._stream = stream
        self._method = method
        self._request = request
        self._closed = False
        self._encoding: str | None = None
        # Resolved when the stream has room again; shared by all tasks that wait for it.
        self._room: asyncio.Future[None] | None = None
        self.compression = grpc.Compression.NoCompression
        self.head_sent = False
        self.skip_compression = False

    def send_head(self, metadata: Metadata) -> None:
        """Send the response's head. Raises ValueError for metadata that gRPC does not allow."""
        fields = encode(metadata)
        self.head_sent = True
        encoding = compression.NAMES[self.compression]
        if encoding != compression.IDENTITY and encoding in self._request.accepted:
            self._encoding = encoding
            fields.append((b"grpc-encoding", encoding.encode()))
        self._stream.send_headers(_HEAD_FIELDS + fields if fields else HEAD)

    def send_message(self, body: bytes) -> None:
        """Send one serialized message, after the head."""
        self._send((body,))

    def _send(self, bodies: Sequence[bytes]) -> None:
        if not self.head_sent:
            self.send_head(())
        parts: list[bytes] = []
        for body in bodies:
            encoding, skip = self._encoding, self.skip_compression
            self.skip_compression = False
            if encoding is None or skip or not body:
                parts += (prefix(len(body)), body)
            else:
                body = compression.compress(encoding, body)
                parts += (prefix(len(body), compressed=True), body)
        self._stream.send_data(b"".join(parts))

    async def write(self, message: Any) -> None:
        """Send one message of a streamed response; wait while the client does not read.

        Raises RpcError if it cannot be serialized, and UsageError once the call has ended.
        """
        if self._closed:
            raise UsageError("the call has ended")
        await self._write((serialize(self._method, message, self._options.max_send_message),))

    async def write_serialized(self, messages: Sequence[bytes]) -> None:
        """Send messages of a streamed response as `write` does; small ones become one write."""
        limit = self._options.max_send_message
        start = size = 0
        for end, body in enumerate(messages, 1):
            check_size(body, limit)
            size += len(body)
            if size > TURN_BYTES or end == len(messages):
                if self._closed:
                    raise UsageError("the call has ended")
                await self._write(messages[start:end])
                start, size = end, 0

    async def _write(self, bodies: Sequence[bytes]) -> None:
        channel = self._channel
        if channel.congested or channel.writers:
            await channel.writable()
        self._send(bodies)
        channel.spent += sum(map(len, bodies)) + MESSAGE_COST * len(bodies)
        if channel.spent > TURN_BYTES:
            await channel.yield_turn()
        while self._stream.waiting and self._stream.waiting > self._limit() and not self._closed:
            await self._wait_for_room()

    def _limit(self) -> int:
        """Return how many bytes of this response may wait for the client's windows.

        None may while the connection's other responses exceed their limit.
        """
        limits = self._options.limits
        return limits.stream_buffer if self._channel.http2.sender.waiting <= limits.connection_buffer else 0

    async def _wait_for_room(self) -> None:
        if self._room is None:
            self._room = self._channel.loop.create_future()
        # Shielded, as the cancellation of one waiting task must not cancel the others.
        await asyncio.shield(self._room)

    async def flushed(self) -> None:
        """Wait until the client's windows and socket have taken all that was written, or the call has ended."""
        while self._stream.waiting and not self._closed:
            await self._wait_for_room()
        await self._channel.writable()

    def wake(self) -> None:
        """Resume the waiting tasks if the stream has room."""
        if self._room is not None and self._stream.waiting <= self._options.limits.stream_buffer:
            self._release()

    def close(self) -> None:
        """Resume the waiting tasks, as the call has ended."""
        self._closed = True
        if self._room is not None:
            # The waiting task may not be the handler itself, so its cancellation would not reach it.
            self._release()

    def _release(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def send_status(self, code: Any, details: Any, trailing_metadata: Any) -> grpc.StatusCode:
        """End the response, and return the code that was sent: INTERNAL for a status that cannot be encoded."""
        try:
            metadata = encode(trailing_metadata)
            fields = self._status_fields(code, details)
        except Exception:
            # A handler may give values of any type, and the client needs a status in any case.
            _log.exception("%s: the status cannot be sent", self._request.path)
            code, metadata = _INTERNAL, []
            fields = self._status_fields(code, "the status cannot be sent")
        self._stream.send_trailers(self._fitting(fields, metadata))
        sent: grpc.StatusCode = code
        return sent

    def _status_fields(self, code: Any, details: Any) -> Fields:
        fields: Fields = [] if self.head_sent else list(_HEAD_FIELDS)
        if not self.head_sent and self._request.refusal is not None:
            fields.append((b"grpc-accept-encoding", compression.ACCEPTED.encode()))
        fields.append((b"grpc-status", b"%d" % NUMBERS[code]))
        if details:
            fields.append((b"grpc-message", encode_message(details)))
        return fields

    def _fitting(self, fields: Fields, metadata: Fields) -> Fields:
        """Return the fields that a client with a small SETTINGS_MAX_HEADER_LIST_SIZE takes, at least the code."""
        limit = self._channel.http2.sender.peer_header_list
        if limit is None or _list_size(fields + metadata) <= limit:
            return fields + metadata
        return fields if _list_size(fields) <= limit else [field for field in fields if field[0] != b"grpc-message"]


def _list_size(fields: Fields) -> int:
    return sum(entry_size(*field) for field in fields)
