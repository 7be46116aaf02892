"""A call on the server: the context of its handler, and the owner of its end."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NoReturn

import grpc
from grpc.aio import AbortError, UsageError

from grpc_gateway.http2.channel import Http2Channel
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import identity
from grpc_gateway.server.metadata import Metadata, Metadatum, encode
from grpc_gateway.server.methods import Method
from grpc_gateway.server.open_calls import OpenCalls
from grpc_gateway.server.request import Request
from grpc_gateway.server.request_reader import RequestReader
from grpc_gateway.server.response_writer import HEAD, OK_TRAILERS, ResponseWriter, serialize
from grpc_gateway.server.rpc_status import NUMBERS, OK, RpcError, status_code
from remoting.taskless import Running

_log = logging.getLogger("gantry.grpc")

_CANCELLED: Final = grpc.StatusCode.CANCELLED
_DEADLINE_EXCEEDED: Final = grpc.StatusCode.DEADLINE_EXCEEDED
_UNKNOWN: Final = grpc.StatusCode.UNKNOWN

DoneCallback = Callable[[Any], object]
# Runs the handler of a call, with the message of a unary request and its flag.
StartHandler = Callable[["ServerCall", bytes, int], None]


class EndedCall:
    """Replacement for a call that has ended while its stream still sends; discards further request bytes."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def on_stream_change(self) -> None:
        """Return the window that discarded bytes have used."""
        stream = self._stream
        if stream.inbox and not stream.closed:
            stream.consume(sum(map(len, stream.inbox)))
            stream.inbox.clear()


class ServerCall:
    """The context of a handler, as grpc.aio defines it, and the state of its call.

    All methods are to be called in the event loop's thread. Attributes that most calls never set have their defaults
    in the class; reader and writer are created when they are first needed.

    connection: the client's connection, the same object for all its calls.
    runner: the task of the handler, or the future that a taskless handler returned; running: the coroutine of one.
    takes_serialized: an `immediate` handler may return its response serialized. An extension.
    """

    takes_serialized: Final = True

    runner: "asyncio.Future[Any] | None" = None
    running: "Running[Any] | None" = None

    _reader: RequestReader | None = None
    _writer: ResponseWriter | None = None
    _start_handler: StartHandler
    _done = False
    _cancelled = False
    _code: grpc.StatusCode | None = None
    _details = ""
    _trailing: Metadata = ()
    _deadline: float | None = None
    _deadline_slot: dict[Any, None] | None = None
    _callbacks: list[DoneCallback] | None = None

    def __init__(
        self, connection: Http2Channel, calls: OpenCalls, stream: Stream, request: Request, method: Method
    ) -> None:
        self.connection = connection
        self.stream = stream
        self.method = method
        self._calls = calls
        self._request = request

    # Events of the stream and of the clock.

    def on_stream_change(self) -> None:
        """Handle received bytes, room for more of the response, or the end of the stream."""
        stream, reader = self.stream, self._reader
        if stream.inbox:
            if reader is None:
                reader = self.reader()
            try:
                reader.receive()
            except RpcError as error:
                self.finish(error.code, error.details)
                return
        if self._done:
            return
        if stream.closed:
            self._cancelled = True
            self._end(_CANCELLED)
            return
        if reader is not None:
            if reader.collecting:
                self._collect(reader)
            else:
                reader.wake()
        if self._writer is not None:
            self._writer.wake()

    def collect(self, start_handler: StartHandler) -> None:
        """Start the handler of a unary request once its message is complete."""
        self._start_handler = start_handler
        reader = self.reader()
        reader.start_collecting()
        if self.stream.inbox:
            try:
                reader.receive()
            except RpcError as error:
                self.finish(error.code, error.details)
                return
        self._collect(reader)

    def _collect(self, reader: RequestReader) -> None:
        try:
            flagged_message = reader.collect()
        except RpcError as error:
            self.finish(error.code, error.details)
            return
        if flagged_message is not None:
            flag, message = flagged_message
            self._start_handler(self, message, flag)

    def start_deadline(self, timeout: float) -> None:
        """Let the call expire in `timeout` seconds."""
        self._deadline = at = self.connection.loop.time() + timeout
        self._deadline_slot = self._calls.deadlines.add(self, at)

    def expire(self) -> None:
        """End the call with DEADLINE_EXCEEDED."""
        if not self._done:
            self._cancelled = True
            self.finish(_DEADLINE_EXCEEDED, "Deadline Exceeded")

    def on_request_timeout(self) -> None:
        """End the call because its request message does not arrive in full."""
        self._cancelled = True
        self.finish(_DEADLINE_EXCEEDED, "the request did not arrive in time")

    # Requests and responses.

    def reader(self) -> RequestReader:
        """Return the reader of the request, created at the first call."""
        if self._reader is None:
            self._reader = RequestReader(self.connection, self._calls, self.stream, self.method, self._request.encoding)
            if self._done:
                self._reader.close()
        return self._reader

    def writer(self) -> ResponseWriter:
        """Return the writer of the response, created at the first call."""
        if self._writer is None:
            self._writer = ResponseWriter(self.connection, self._calls.options, self.stream, self.method, self._request)
            if self._done:
                self._writer.close()
        return self._writer

    def read(self) -> Coroutine[Any, Any, Any]:
        """Return the next request message, or `grpc.aio.EOF`."""
        return self.reader().read()

    def write(self, message: Any) -> Coroutine[Any, Any, None]:
        """Send one message of a streamed response; wait while the client does not read."""
        return self.writer().write(message)

    def write_serialized(self, messages: list[bytes]) -> Coroutine[Any, Any, None]:
        """Send messages of a streamed response that are serialized already; wait while the client does not read.

        An extension: grpc.aio has no counterpart.
        """
        return self.writer().write_serialized(messages)

    def flushed(self) -> Coroutine[Any, Any, None]:
        """Wait until the client's windows and socket have taken all that was written, or the call has ended.

        An extension: grpc.aio has no counterpart.
        """
        return self.writer().flushed()

    @property
    def unread_bytes(self) -> int:
        """The bytes of responses that the client's connection holds, in handlers as well.

        An extension, as `hold`.
        """
        return self._calls.response_bytes + self.connection.unread_bytes

    def hold(self, difference: int) -> None:
        """Add to the bytes of messages that handlers of the connection hold until the client reads them."""
        self._calls.response_bytes += difference

    def respond(self, response: Any) -> None:
        """Send the response of a unary handler, and end the call."""
        if self._done:
            self._calls.late.discard(self)
            return
        code = self._code
        if code is not None and code is not OK:
            self.finish(code, self._details)
            return
        try:
            body = serialize(self.method, response, self._calls.options.max_send_message)
        except RpcError as error:
            self.finish(error.code, error.details)
            return
        if self._writer is not None or self._trailing or self._details:
            self.writer().send_message(body)
            self.finish(OK, self._details)
            return
        self.stream.send_response(HEAD, len(body).to_bytes(5), body, OK_TRAILERS)
        self._end(OK)

    # The end.

    # A handler may give values of any type, which compiled functions would reject before the client has a status.
    def finish(self, code: Any, details: Any = "", trailing_metadata: Any = None) -> None:
        """End the call with a status, unless it has ended."""
        if not self._done:
            trailing = self._trailing if trailing_metadata is None else trailing_metadata
            self._end(self.writer().send_status(code, details, trailing))

    def fail(self, error: BaseException) -> None:
        """End the call because its handler raised `error`."""
        if self._done:
            self._calls.late.discard(self)
        if isinstance(error, RpcError):
            self.finish(error.code, error.details, error.trailing_metadata or None)
        elif isinstance(error, AbortError):
            # `abort` has sent the status; an AbortError that a handler raises itself has none.
            self.finish(_UNKNOWN, self._details)
        elif isinstance(error, asyncio.CancelledError):
            self.finish(_CANCELLED, "the server cancelled the call")
        elif not self._done:
            # The exception's text may reveal internals, so it is not sent.
            _log.error("%s: the handler failed", self._request.path, exc_info=error)
            code = self._code if self._code is not None and self._code is not OK else _UNKNOWN
            self.finish(code, self._details or "internal error")

    def _end(self, code: grpc.StatusCode) -> None:
        """Release everything that the call holds, and notify its callbacks."""
        self._done = True
        self._code = code
        slot = self._deadline_slot
        if slot is not None:
            slot.pop(self, None)
        stream = self.stream
        stream.call = None if stream.closed else EndedCall(stream)
        self._calls.calls.discard(self)
        self.method.counts[NUMBERS[code]] += 1
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()
        running, runner = self.running, self.runner
        if running is not None:
            # It refers to this call.
            self.running = None
            if self._cancelled:
                self._calls.late.add(self)
                running.abandon()
        elif runner is not None and self._cancelled and not runner.done():
            self._calls.cancel_handler(runner)
        if self._callbacks is not None:
            for callback in self._callbacks:
                self._notify(callback)

    def _notify(self, callback: DoneCallback) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("%s: a done callback failed", self._request.path)

    async def abort(self, code: Any, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with an error status. Raises AbortError always, and UsageError if the call has ended."""
        if self._done:
            raise UsageError("the call has ended")
        trailing = tuple(trailing_metadata)
        code = status_code(code)
        self.finish(_UNKNOWN if code is OK else code, details or self._details, trailing or None)
        raise AbortError("aborted by the handler")

    async def abort_with_status(self, status: Any) -> NoReturn:
        """End the call with the code, details and metadata of a `grpc.Status`."""
        await self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    def cancel(self) -> None:
        """Cancel the handler, and end the call with CANCELLED."""
        self._cancelled = True
        self.finish(_CANCELLED, "the server cancelled the call")

    def add_done_callback(self, callback: Any) -> None:
        """Call `callback` with this call at its end; now, if it has ended."""
        if self._done:
            self._notify(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._done

    # Metadata, status and compression.

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        return self._request.metadata

    def metadata_values(self) -> Mapping[str, str]:
        """Return the invocation metadata by key, without decoding of binary values; of equal keys, the last value.

        An extension: to look up a few values, it is faster than `invocation_metadata`.
        """
        return self._request.values

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Send the response's head. Raises UsageError if it has been sent, ValueError for illegal metadata."""
        writer = self.writer()
        if writer.head_sent:
            raise UsageError("initial metadata has been sent already")
        if not self._done:
            writer.send_head(initial_metadata)

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Set the metadata to send with the status. Raises ValueError for metadata that gRPC does not allow."""
        trailing = tuple(trailing_metadata)
        encode(trailing)
        self._trailing = trailing

    def trailing_metadata(self) -> Any:
        return self._trailing

    def set_code(self, code: Any) -> None:
        """Set the code that a handler without an error ends with. Raises ValueError for an unknown code."""
        self._code = status_code(code)

    def code(self) -> Any:
        return OK if self._code is None else self._code

    def set_details(self, details: str) -> None:
        """Set the details that a handler without an error ends with. Raises TypeError unless they are text."""
        if not isinstance(details, str):
            raise TypeError(f"details are {type(details).__name__} instead of str")
        self._details = details

    def details(self) -> str:
        return self._details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Compress the response's messages, if the client accepts that. Raises UsageError after the first message."""
        writer = self.writer()
        if writer.head_sent:
            raise UsageError("compression must be set before the first message")
        writer.compression = compression

    def disable_next_message_compression(self) -> None:
        self.writer().skip_compression = True

    def time_remaining(self) -> Any:
        """Return the seconds until the deadline, or None without one."""
        if self._deadline is None:
            return None
        return max(self._deadline - self.connection.loop.time(), 0.0)

    # The client.

    @property
    def path(self) -> str:
        return self._request.path

    def peer(self) -> str:
        """Return the client's address in grpcio's notation."""
        return identity.peer_uri(self.connection.peer)

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return identity.auth_context(self.connection.peer)

    def peer_identity_key(self) -> str | None:
        return identity.COMMON_NAME if identity.COMMON_NAME in self.auth_context() else None

    def peer_identities(self) -> list[bytes] | None:
        return self.auth_context().get(identity.COMMON_NAME)


# Not a base class, so that mypyc compiles the calls.
grpc.aio.ServicerContext.register(ServerCall)
