"""What a call receives: one message that its handler is begun with, or as many as it reads."""

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import grpc
from grpc.aio import EOF, UsageError

from grpc_gateway.http2.channel import MESSAGE_COST, TURN
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import compression
from grpc_gateway.server.messages import MessageBuffer
from grpc_gateway.server.methods import Method
from grpc_gateway.server.request import Request
from grpc_gateway.server.status import RpcError

if TYPE_CHECKING:
    from grpc_gateway.server.connection import GrpcConnection

_INTERNAL, _RESOURCE_EXHAUSTED = grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
# Bytes from which on a request counts while its handler runs; smaller ones are bounded by their number.
LARGE = 16 * 1024


class RequestReader(ABC):
    """The reading side of a call. Attributes that most calls never set have their defaults in the class."""

    connection: "GrpcConnection"
    method: Method

    _done = False
    _buffer: MessageBuffer | None = None
    _reader: "asyncio.Future[None] | None" = None
    # This call's part of `connection.held`.
    _held = 0
    _collecting = False

    def __init__(self, connection: "GrpcConnection", stream: Stream, request: Request) -> None:
        self.connection = connection
        self.stream = stream
        self._request = request

    @abstractmethod
    def finish(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with a status."""

    @abstractmethod
    def run(self, flag: int, message: bytes) -> None:
        """Run the handler of a unary request, with its message as it came."""

    # What has come.

    def _take_in(self) -> None:
        """There is more in the buffer, or no more to come."""
        if self._collecting:
            self._collect()
        elif self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _feed(self, stream: Stream) -> None:
        inbox = stream.inbox
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        buffer = self._buffer
        if buffer is None:
            self._buffer = buffer = MessageBuffer(self.connection.options.max_receive_message)
        buffer.feed(data)
        try:
            self.hold(len(buffer))
        except RpcError as error:
            self.finish(error.code, error.details)
            return
        if self._reader is not None or self._collecting:
            # A message may be larger than the window: whoever waits for it wants all of it.
            self._release(stream.unread)

    def _release(self, size: int) -> None:
        if size > 0 and not self.stream.closed:
            self.stream.consume(size)

    def hold(self, size: int) -> None:
        """This call's request takes `size` bytes. Raises RpcError where the connection's take too many with them."""
        connection = self.connection
        connection.held += size - self._held
        self._held = size
        if connection.held > connection.options.max_request_bytes:
            raise RpcError(_RESOURCE_EXHAUSTED, "too many bytes of requests on this connection")

    # Unary requests.

    def collect(self) -> None:
        """Wait for the one message of a unary request, then begin the handler."""
        self._collecting = True
        stream = self.stream
        if stream.inbox:
            self._feed(stream)
        if not self._done:
            self._collect()

    def _collect(self) -> None:
        stream, buffer = self.stream, self._buffer
        held = 0 if buffer is None else len(buffer)
        try:
            if not stream.ended:
                if buffer is not None:
                    # What is too large is refused when its length is known, not when it is there.
                    buffer.check()
                return
            found = None if buffer is None else buffer.next()
        except compression.TooLarge:
            self.finish(_RESOURCE_EXHAUSTED, self._too_large())
            return
        self._collecting = False
        if found is None and held:
            self.finish(_INTERNAL, "the request ends within a message")
        elif found is None or buffer:
            self.finish(_UNIMPLEMENTED, "a unary request must be exactly one message")
        else:
            flag, message = found
            self._buffer = None
            self.begin(message, flag)

    def begin(self, message: bytes, flag: int = 0) -> None:
        """The request is complete."""
        size = len(message) if len(message) > LARGE else 0
        if size != self._held:
            try:
                self.hold(size)
            except RpcError as error:
                self.finish(error.code, error.details)
                return
        self.run(flag, message)

    def _too_large(self) -> str:
        return f"a message is larger than {self.connection.options.max_receive_message} bytes"

    async def unpack(self, flag: int, message: bytes) -> bytes:
        """A flagged message without its compression, in its turn. Raises RpcError."""
        encoding = self._request.encoding
        if flag != 1 or encoding == compression.IDENTITY:
            raise RpcError(_INTERNAL, "a message is flagged as compressed, but no grpc-encoding is")
        try:
            async with self.connection.inflating:
                await asyncio.sleep(0)
                return compression.decompress(encoding, message, self.connection.options.max_receive_message)
        except compression.TooLarge:
            raise RpcError(_RESOURCE_EXHAUSTED, self._too_large()) from None
        except ValueError as error:
            raise RpcError(_INTERNAL, str(error)) from None

    def deserialize(self, message: bytes) -> Any:
        deserialize = self.method.deserialize
        if deserialize is None:
            return message
        try:
            return deserialize(message)
        except Exception as error:
            raise RpcError(_INTERNAL, "the request cannot be deserialized") from error

    # Streaming requests.

    async def read(self) -> Any:
        """The next message, or `grpc.aio.EOF`."""
        found = self._next_message()
        while found is None:
            stream = self.stream
            if stream.ended:
                if self._buffer:
                    raise RpcError(_INTERNAL, "the request ends within a message")
                return EOF
            self._release(stream.unread)
            await self._wait_for_request()
            found = self._next_message()
        flag, message = found
        if flag:
            message = await self.unpack(flag, message)
        connection = self.connection
        connection.spent += len(message) + MESSAGE_COST
        if connection.spent > TURN:
            await connection.turn()
        return self.deserialize(message)

    def _next_message(self) -> tuple[int, bytes] | None:
        """With its flag; raises RpcError for one that is too large."""
        stream = self.stream
        if stream.inbox and not self._done:
            # What came in one piece with the head, before anybody read.
            self._feed(stream)
        if self._done:
            raise UsageError("the call has ended")
        buffer = self._buffer
        if buffer is None:
            return None
        before = len(buffer)
        try:
            found = buffer.next()
        except compression.TooLarge:
            raise RpcError(_RESOURCE_EXHAUSTED, self._too_large()) from None
        if found is not None:
            self.hold(len(buffer))
            self._release(min(before - len(buffer), stream.unread))
        return found

    async def _wait_for_request(self) -> None:
        if self._reader is not None:
            raise UsageError("somebody else is reading already")
        self._reader = self.connection.loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def requests(self) -> "Requests":
        return Requests(self)


class Requests:
    """The messages of a streamed request, for `async for`."""

    __slots__ = ("_call",)

    def __init__(self, call: RequestReader) -> None:
        self._call = call

    def __aiter__(self) -> "Requests":
        return self

    async def __anext__(self) -> Any:
        message = await self._call.read()
        if message is EOF:
            raise StopAsyncIteration
        return message
