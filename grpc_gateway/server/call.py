"""One call: the stream's news on one side, the handler's context on the other."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from grpc.aio import EOF, AbortError, UsageError

from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Block, entry_size
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import compression, identity
from grpc_gateway.server.messages import MessageBuffer, prefix
from grpc_gateway.server.metadata import Fields, Metadata, Metadatum, encode
from grpc_gateway.server.methods import Method
from grpc_gateway.server.request import CONTENT_TYPE, Request
from grpc_gateway.server.status import NUMBERS, OK, RpcError, encode_message, status_code

if TYPE_CHECKING:
    from grpc_gateway.server.connection import GrpcConnection
    from protocol_negotiation.peer import Peer

_log = logging.getLogger("gantry.grpc")

HEAD = Block((":status", "200"), ("content-type", CONTENT_TYPE))
OK_TRAILERS = Block(("grpc-status", "0"))
_HEAD_FIELDS = list(HEAD.fields)
_DEADLINE_EXCEEDED, _INTERNAL = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL
_CANCELLED, _UNKNOWN = grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN
_RESOURCE_EXHAUSTED, _UNIMPLEMENTED = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED

DoneCallback = Callable[["Call"], object]


class Finished:
    """Stands in for a call that has ended, while its stream still has bytes to send."""

    def news(self) -> None:
        """Nobody waits for any."""


FINISHED = Finished()


class Call(grpc.aio.ServicerContext[Any, Any]):
    """The context of a handler; everything but what grpc.aio defines is for the server, and for `connection`.

    All methods are for the event loop's thread. Attributes that most calls never set have their defaults in the class.
    """

    connection: "GrpcConnection"
    method: Method

    _code: grpc.StatusCode | None = None
    _details = ""
    _trailing: Metadata = ()
    _head_sent = False
    _encoding: str | None = None
    _compression: grpc.Compression | None = None
    _plain_next = False
    _done = False
    _cancelled = False
    _deadline: float | None = None
    _slot: "dict[Any, None] | None" = None
    _callbacks: "list[DoneCallback] | None" = None
    # What runs the handler: a task, or the future that an immediate handler gave.
    runner: "asyncio.Future[Any] | None" = None
    _buffer: MessageBuffer | None = None
    _reader: "asyncio.Future[None] | None" = None
    _writer: "asyncio.Future[None] | None" = None
    _unassembled = 0
    _collecting = False

    def __init__(self, connection: "GrpcConnection", stream: Stream, request: Request) -> None:
        self.connection = connection
        self.stream = stream
        self._request = request

    # News of the stream.

    def news(self) -> None:
        """The stream has received something, has room again, or is gone."""
        stream = self.stream
        if stream.inbox:
            self._feed(stream)
        if self._done:
            return
        if stream.closed:
            self._lose()
        elif self._collecting:
            self._collect()
        elif self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        writer = self._writer
        if writer is not None and stream.waiting <= self.connection.options.limits.stream_buffer and not writer.done():
            writer.set_result(None)

    def _feed(self, stream: Stream) -> None:
        inbox = stream.inbox
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        if self._done:
            stream.consume(len(data))
            return
        if self._buffer is None:
            self._buffer = MessageBuffer(self.connection.options.max_receive_message)
        self._buffer.feed(data)
        if self._reader is not None or self._collecting:
            # A message may be larger than the window: whoever waits for it wants all of it.
            self._release(stream.unread)

    def _release(self, size: int) -> None:
        if size > 0 and not self.stream.closed:
            self.stream.consume(size)

    def _lose(self) -> None:
        """The client gave the call up, or is gone."""
        self._cancelled = True
        self.connection.server.stats.cancelled += 1
        self._settle(_CANCELLED)

    def expire(self) -> None:
        """The deadline has passed."""
        if not self._done:
            self.connection.server.stats.expired += 1
            self._cancelled = True
            self.finish(_DEADLINE_EXCEEDED, "Deadline Exceeded")

    def start_deadline(self, timeout: float) -> None:
        loop = self.connection.loop
        self._deadline = at = loop.time() + timeout
        self._slot = self.connection.server.deadlines.add(self, at)

    # Unary requests.

    def collect(self) -> None:
        """Wait for the one message of a unary request, then begin the handler."""
        self._collecting = True
        stream = self.stream
        if stream.inbox:
            self._feed(stream)
        self._collect()

    def _collect(self) -> None:
        stream, buffer, connection = self.stream, self._buffer, self.connection
        held = 0 if buffer is None else len(buffer)
        connection.unassembled += held - self._unassembled
        self._unassembled = held
        if connection.unassembled > connection.options.max_request_bytes:
            self.finish(_RESOURCE_EXHAUSTED, "too many bytes of unfinished requests on this connection")
            return
        if not stream.ended:
            if buffer is not None:
                self._check_size(buffer)
            return
        self._assembled()
        try:
            message = None if buffer is None else self._next_message(buffer)
        except RpcError as error:
            self.finish(error.code, error.details)
            return
        if message is None and held:
            self.finish(_INTERNAL, "the request ends within a message")
        elif message is None or buffer:
            self.finish(_UNIMPLEMENTED, "a unary request must be exactly one message")
        else:
            self.connection.begin(self, message)

    def _assembled(self) -> None:
        self._collecting = False
        self.connection.unassembled -= self._unassembled
        self._unassembled = 0

    def _check_size(self, buffer: MessageBuffer) -> None:
        """A message that is too large is refused when its length is known, not when it is there."""
        try:
            buffer.check()
        except compression.TooLarge:
            self.finish(_RESOURCE_EXHAUSTED, self._too_large())

    def _too_large(self) -> str:
        return f"a message is larger than {self.connection.options.max_receive_message} bytes"

    def _next_message(self, buffer: MessageBuffer) -> bytes | None:
        """Raises RpcError for a message that cannot be taken."""
        try:
            found = buffer.next()
            return None if found is None else self.unpack(*found)
        except compression.TooLarge:
            raise RpcError(_RESOURCE_EXHAUSTED, self._too_large()) from None

    def unpack(self, flag: int, message: bytes) -> bytes:
        """A message without its compression. Raises RpcError, or compression.TooLarge."""
        if flag == 0:
            return message
        encoding = self._request.encoding
        if flag != 1 or encoding == compression.IDENTITY:
            raise RpcError(_INTERNAL, "a message is flagged as compressed, but no grpc-encoding is")
        try:
            return compression.decompress(encoding, message, self.connection.options.max_receive_message)
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
        stream = self.stream
        while True:
            if self._done:
                raise UsageError("the call has ended")
            if stream.inbox:
                # What came in one piece with the head, before anybody read.
                self._feed(stream)
            buffer = self._buffer
            before = 0 if buffer is None else len(buffer)
            message = None if buffer is None else self._next_message(buffer)
            if buffer is not None and message is not None:
                self._release(min(before - len(buffer), stream.unread))
                return self.deserialize(message)
            if stream.ended and not stream.inbox:
                if before:
                    raise RpcError(_INTERNAL, "the request ends within a message")
                return EOF
            self._release(stream.unread)
            await self._wait_for_request()

    async def _wait_for_request(self) -> None:
        self._reader = self.connection.loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def requests(self) -> "Requests":
        return Requests(self)

    # Answers.

    def respond(self, response: Any) -> None:
        """The handler of a unary answer has given it."""
        if self._done:
            return
        code = self._code
        if code is not None and code is not OK:
            self.finish(code, self._details)
            return
        try:
            body = self._serialize(response)
        except RpcError as error:
            self.finish(error.code, error.details)
            return
        if (
            self._head_sent
            or self._trailing
            or self._details
            or self._compression is not None
            or self.connection.options.compression is not compression.NO_COMPRESSION
        ):
            self._send(body)
            self.finish(OK, self._details)
            return
        self.stream.answer(HEAD, len(body).to_bytes(5), body, OK_TRAILERS)
        self._settle(OK)

    def _serialize(self, response: Any) -> bytes:
        serialize = self.method.serialize
        if serialize is None:
            body = response
        else:
            try:
                body = serialize(response)
            except Exception as error:
                _log.exception("%s: the response cannot be serialized", self.method.path)
                raise RpcError(_INTERNAL, "the response cannot be serialized") from error
        if not isinstance(body, bytes):
            _log.error("%s: the response is %s instead of bytes", self.method.path, type(body).__name__)
            raise RpcError(_INTERNAL, "the response cannot be serialized")
        if len(body) > self.connection.options.max_send_message:
            raise RpcError(
                _RESOURCE_EXHAUSTED,
                f"the response of {len(body)} bytes is larger than {self.connection.options.max_send_message}",
            )
        return body

    def _send(self, body: bytes) -> None:
        """One message, behind the head."""
        if not self._head_sent:
            self._send_head(())
        encoding, plain = self._encoding, self._plain_next
        self._plain_next = False
        if encoding is None or plain or not body:
            self.stream.send_data(prefix(len(body)) + body)
        else:
            body = compression.compress(encoding, body)
            self.stream.send_data(prefix(len(body), compressed=True) + body)

    def _send_head(self, metadata: Metadata) -> None:
        fields = encode(metadata)
        self._head_sent = True
        choice = self._compression if self._compression is not None else self.connection.options.compression
        encoding = compression.NAMES[choice]
        if encoding != compression.IDENTITY and encoding in self._request.accepted:
            self._encoding = encoding
            fields.append((b"grpc-encoding", encoding.encode()))
        self.stream.send_headers(_HEAD_FIELDS + fields if fields else HEAD)

    async def write(self, message: Any) -> None:
        """One message of a streamed answer; waits while the client does not take them."""
        if self._done:
            raise UsageError("the call has ended")
        self._send(self._serialize(message))
        stream, connection = self.stream, self.connection
        if connection.congested:
            await connection.writable()
        while stream.waiting > connection.options.limits.stream_buffer and not self._done:
            self._writer = connection.loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    async def flushed(self) -> None:
        """Wait until the client has room for everything that was written, or is gone; grpcio has nothing like it."""
        stream = self.stream
        while stream.waiting and not self._done:
            self._writer = self.connection.loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        if self._head_sent:
            raise UsageError("initial metadata has been sent already")
        if not self._done:
            self._send_head(initial_metadata)

    # The end.

    def finish(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata | None = None) -> None:
        """End the call with a status; only the first end counts."""
        if self._done:
            return
        try:
            metadata = encode(self._trailing if trailing_metadata is None else trailing_metadata)
        except ValueError as error:
            _log.exception("%s: trailing metadata cannot be sent", self._request.path)
            code, details, metadata = _INTERNAL, str(error), []
        fields: Fields = [] if self._head_sent else list(_HEAD_FIELDS)
        if not self._head_sent and self._request.refusal is not None:
            fields.append((b"grpc-accept-encoding", compression.ACCEPTED.encode()))
        fields.append((b"grpc-status", b"%d" % NUMBERS[code]))
        if details:
            fields.append((b"grpc-message", encode_message(details)))
        self.stream.send_trailers(self._fitting(fields, metadata))
        self._settle(code)

    def _fitting(self, fields: Fields, metadata: Fields) -> Fields:
        """A client that takes only small header lists gets the status at least."""
        limit = self.connection.http2.peer_header_list
        if limit is None or _list_size(fields + metadata) <= limit:
            return fields + metadata
        return fields if _list_size(fields) <= limit else [field for field in fields if field[0] != b"grpc-message"]

    def _settle(self, code: grpc.StatusCode) -> None:
        """The call has ended: let go of everything, and tell who wants to know."""
        self._done = True
        self._code = code
        if self._collecting:
            self._assembled()
        slot = self._slot
        if slot is not None:
            slot.pop(self, None)
        stream = self.stream
        stream.call = None if stream.closed else FINISHED
        self._buffer = None
        self.connection.calls.discard(self)
        self.connection.ended_call(self, code)
        for waiter in (self._reader, self._writer):
            # Whoever waits may not be the handler itself: a thread, or a task of its own.
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        runner = self.runner
        if runner is not None and self._cancelled and not runner.done():
            self.connection.lingering.add(runner)
            runner.add_done_callback(self.connection.lingering.discard)
            runner.cancel()
        if self._callbacks is not None:
            for callback in self._callbacks:
                self._tell(callback)

    def _tell(self, callback: DoneCallback) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("%s: a done callback failed", self._request.path)

    def fail(self, error: BaseException) -> None:
        """The handler raised."""
        if isinstance(error, RpcError):
            self.finish(error.code, error.details, error.trailing_metadata or None)
        elif isinstance(error, AbortError):
            # The status is out already; a caller's own AbortError has none.
            self.finish(_UNKNOWN, self._details)
        elif isinstance(error, asyncio.CancelledError):
            self.finish(_CANCELLED, "the server gave the call up")
        elif not self._done:
            # What it says may be of the inside, so the client is not told.
            _log.error("%s: the handler failed", self._request.path, exc_info=error)
            code = self._code if self._code is not None and self._code is not OK else _UNKNOWN
            self.finish(code, self._details or "internal error")

    async def abort(self, code: Any, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        if self._done:
            raise UsageError("the call has ended")
        trailing = tuple(trailing_metadata)
        code = status_code(code)
        self.finish(_UNKNOWN if code is OK else code, details or self._details, trailing or None)
        raise AbortError("aborted by the handler")

    async def abort_with_status(self, status: Any) -> NoReturn:
        await self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    # Other things of the context.

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        trailing = tuple(trailing_metadata)
        encode(trailing)
        self._trailing = trailing

    def trailing_metadata(self) -> Any:
        return self._trailing

    def invocation_metadata(self) -> tuple[Metadatum, ...]:  # type: ignore[override]
        return self._request.metadata

    def set_code(self, code: Any) -> None:
        self._code = status_code(code)

    def code(self) -> Any:
        return OK if self._code is None else self._code

    def set_details(self, details: str) -> None:
        self._details = details

    def details(self) -> str:
        return self._details

    def set_compression(self, compression: grpc.Compression) -> None:
        if self._head_sent:
            raise UsageError("compression must be set before the first message")
        self._compression = compression

    def disable_next_message_compression(self) -> None:
        self._plain_next = True

    def time_remaining(self) -> Any:
        """Seconds until the deadline; None without one."""
        if self._deadline is None:
            return None
        return max(self._deadline - self.connection.loop.time(), 0.0)

    def add_done_callback(self, callback: Any) -> None:
        if self._done:
            self._tell(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._done

    def cancel(self) -> None:
        """The server itself gives the call up."""
        self._cancelled = True
        self.finish(_CANCELLED, "the server gave the call up")

    # Who calls.

    @property
    def peer_info(self) -> "Peer":
        """The client, as the listener knows it."""
        return self.connection.peer

    @property
    def path(self) -> str:
        return self._request.path

    def peer(self) -> str:
        return identity.peer_uri(self.connection.peer)

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return identity.auth_context(self.connection.peer)

    def peer_identity_key(self) -> str | None:
        return identity.COMMON_NAME if identity.COMMON_NAME in self.auth_context() else None

    def peer_identities(self) -> list[bytes] | None:
        return self.auth_context().get(identity.COMMON_NAME)

    def reset(self, code: ErrorCode) -> None:
        """End the stream without a status."""
        self.stream.reset(code)


def _list_size(fields: Fields) -> int:
    return sum(entry_size(*field) for field in fields)


class Requests:
    """The messages of a streamed request, for `async for`."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def __aiter__(self) -> "Requests":
        return self

    async def __anext__(self) -> Any:
        message = await self._call.read()
        if message is EOF:
            raise StopAsyncIteration
        return message
