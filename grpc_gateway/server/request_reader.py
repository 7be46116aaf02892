"""Reading of a call's request messages."""

import asyncio
from typing import Any, Final

import grpc
from grpc.aio import EOF, UsageError

from grpc_gateway.http2.channel import MESSAGE_COST, TURN_BYTES, Http2Channel
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import compression
from grpc_gateway.server.messages import MessageBuffer
from grpc_gateway.server.methods import Method
from grpc_gateway.server.open_calls import OpenCalls
from grpc_gateway.server.rpc_status import RpcError

_INTERNAL: Final = grpc.StatusCode.INTERNAL
_RESOURCE_EXHAUSTED: Final = grpc.StatusCode.RESOURCE_EXHAUSTED
_UNIMPLEMENTED: Final = grpc.StatusCode.UNIMPLEMENTED
# Size in bytes above which a unary request is accounted for while its handler runs; the limit on concurrent streams
# bounds smaller ones.
LARGE_REQUEST: Final = 16 * 1024


# Bytes of memory that a byte of a request of small elements takes once it is parsed. Only requests of methods with a
# limit of their own are counted so: those of others consist of bodies.
PARSED_WEIGHT: Final = 25


def deserialize(method: Method, message: bytes) -> Any:
    """Return the request that `message` encodes. Raises RpcError if it cannot be decoded."""
    if method.deserialize is None:
        return message
    try:
        return method.deserialize(message)
    except Exception as error:
        raise RpcError(_INTERNAL, "the request cannot be deserialized") from error


class RequestReader:
    """Reader of the messages that arrive on a stream.

    Unary requests that arrive as one uncompressed message in one piece do not need a reader.

    encoding: compression of flagged messages.
    """

    __slots__ = (
        "_accounted",
        "_buffer",
        "_calls",
        "_channel",
        "_closed",
        "_encoding",
        "_largest",
        "_method",
        "_stream",
        "_waiter",
        "_weight",
        "collecting",
    )

    def __init__(self, channel: Http2Channel, calls: OpenCalls, stream: Stream, method: Method, encoding: str) -> None:
        self._channel = channel
        self._calls = calls
        self._stream = stream
        self._method = method
        self._encoding = encoding
        # Bytes of a message, and bytes of memory for each while the handler has the parsed message.
        self._largest = calls.options.max_requests.get(method.path, calls.options.max_receive_message)
        self._weight = PARSED_WEIGHT if method.path in calls.options.max_requests else 1
        self._buffer: MessageBuffer | None = None
        self._waiter: asyncio.Future[None] | None = None
        # Bytes of this request in `OpenCalls.request_bytes`.
        self._accounted = 0
        self._closed = False
        # The call waits for the single message of a unary request.
        self.collecting = False

    def receive(self) -> None:
        """Buffer the bytes in the stream's inbox. Raises RpcError if the connection's requests exceed their limit."""
        stream = self._stream
        inbox = stream.inbox
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        buffer = self._buffer
        if buffer is None:
            self._buffer = buffer = MessageBuffer(self._largest)
        buffer.feed(data)
        self.account(len(buffer))
        if self._waiter is not None or self.collecting:
            # A message may be larger than the stream's window.
            self._admit_more()

    def wake(self) -> None:
        """Resume a pending `read`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Release the buffer, and let a pending `read` fail."""
        self._closed = True
        self._calls.finish_request(self._stream)
        self._buffer = None
        self.account(0)
        # The waiting task may not be the handler itself, so its cancellation would not reach it.
        self.wake()

    def account(self, size: int) -> None:
        """Set this request's share of the connection's request bytes. Raises RpcError if these exceed their limit."""
        difference = size - self._accounted
        if difference:
            self._accounted = size
            self._calls.account(difference)

    def _consume(self, size: int) -> None:
        if size > 0 and not self._stream.closed:
            self._stream.consume(size)

    def _admit_more(self) -> None:
        """Return the received bytes of the message to the peer's windows, as far as the connection's memory allows."""
        if self._stream.unread and not self._stream.closed:
            self._calls.consume(self._stream)

    def _begin_message(self) -> None:
        """Start the timeout of the message that has not arrived in full, unless it is running."""
        self._calls.unfinished.setdefault(self._stream, self._channel.loop.time())

    # Unary requests.

    def start_collecting(self) -> None:
        """Let `collect` return the message."""
        self.collecting = True
        if not self._stream.ended:
            self._begin_message()

    def collect(self) -> tuple[int, bytes] | None:
        """Return the flag and message of a unary request, or None until it is complete.

        Raises RpcError for a message that is too large, and unless there is exactly one.
        """
        buffer = self._buffer
        try:
            if not self._stream.ended:
                if buffer is not None:
                    # Refuse a message that is too large as soon as its length is known.
                    buffer.check()
                return None
            flagged_message = None if buffer is None else buffer.next()
        except compression.TooLarge:
            raise RpcError(_RESOURCE_EXHAUSTED, self._too_large()) from None
        self.collecting = False
        self._calls.finish_request(self._stream)
        left = 0 if buffer is None else len(buffer)
        if flagged_message is None and left:
            raise RpcError(_INTERNAL, "the request ends within a message")
        if flagged_message is None or left:
            raise RpcError(_UNIMPLEMENTED, "a unary request must be exactly one message")
        self._buffer = None
        size = len(flagged_message[1])
        self.account_parsed(size if size > LARGE_REQUEST else 0)
        return flagged_message

    def account_parsed(self, size: int) -> None:
        """Set this request's share while its handler runs, by its decompressed bytes. Raises RpcError as `account`."""
        self.account(size * self._weight)

    async def decompress(self, flag: int, message: bytes) -> bytes:
        """Return a flagged message without its compression. Raises RpcError if it is malformed or too large."""
        if flag != 1 or self._encoding == compression.IDENTITY:
            raise RpcError(_INTERNAL, "a message is flagged as compressed, but there is no grpc-encoding")
        try:
            lock = self._calls.decompression_lock()
            await lock.acquire()
            try:
                return await self._calls.decompressions.decompress(self._encoding, message, self._largest)
            finally:
                lock.release()
        except compression.TooLarge:
            raise RpcError(_RESOURCE_EXHAUSTED, self._too_large()) from None
        except ValueError as error:
            raise RpcError(_INTERNAL, str(error)) from None

    def _too_large(self) -> str:
        return f"a message is larger than {self._largest} bytes"

    # Streamed requests.

    def __aiter__(self) -> "RequestReader":
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is EOF:
            raise StopAsyncIteration
        return message

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF`. Raises RpcError, and UsageError once the call has ended."""
        flagged_message = self._next_message()
        while flagged_message is None:
            stream = self._stream
            if stream.ended:
                if self._buffer is not None and len(self._buffer):
                    raise RpcError(_INTERNAL, "the request ends within a message")
                return EOF
            if self._buffer is not None and len(self._buffer):
                self._begin_message()
            self._admit_more()
            await self._wait()
            flagged_message = self._next_message()
        flag, message = flagged_message
        if flag:
            message = await self.decompress(flag, message)
        channel = self._channel
        channel.spent += len(message) + MESSAGE_COST
        if channel.spent > TURN_BYTES:
            await channel.yield_turn()
        return deserialize(self._method, message)

    def _next_message(self) -> tuple[int, bytes] | None:
        """Return the next flag and message, or None. Raises RpcError for a message that is too large."""
        if self._closed:
            raise UsageError("the call has ended")
        stream = self._stream
        if stream.inbox:
            # Received with the head, before there was a reader.
            self.receive()
        buffer = self._buffer
        if buffer is None:
            return None
        size = len(buffer)
        try:
            flagged_message = buffer.next()
        except compression.TooLarge:
            raise RpcError(_RESOURCE_EXHAUSTED, self._too_large()) from None
        if flagged_message is not None:
            self._calls.finish_request(stream)
            self.account(len(buffer))
            self._consume(min(size - len(buffer), stream.unread))
        return flagged_message

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError("another task is reading already")
        self._waiter = self._channel.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
