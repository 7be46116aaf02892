"""What a call answers, and how it ends."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from grpc.aio import AbortError, UsageError

from grpc_gateway.http2.channel import MESSAGE_COST, TURN
from grpc_gateway.http2.hpack import Block, entry_size
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import compression
from grpc_gateway.server.messages import prefix
from grpc_gateway.server.metadata import Fields, Metadata, encode
from grpc_gateway.server.request import CONTENT_TYPE
from grpc_gateway.server.request_reader import RequestReader
from grpc_gateway.server.status import NUMBERS, OK, RpcError, encode_message, status_code

_log = logging.getLogger("gantry.grpc")

HEAD = Block((":status", "200"), ("content-type", CONTENT_TYPE))
OK_TRAILERS = Block(("grpc-status", "0"))
_HEAD_FIELDS = list(HEAD.fields)
_CANCELLED, _UNKNOWN = grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN
_INTERNAL, _RESOURCE_EXHAUSTED = grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED

DoneCallback = Callable[[Any], object]


class Finished:
    """Stands in for a call that has ended, while its stream still has bytes to send: what comes is thrown away."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def news(self) -> None:
        """Nobody waits for any."""
        stream = self._stream
        if stream.inbox and not stream.closed:
            stream.consume(sum(map(len, stream.inbox)))
            stream.inbox.clear()


class ResponseWriter(RequestReader):
    """The writing side of a call, and its end."""

    _code: grpc.StatusCode | None = None
    _details = ""
    _trailing: Metadata = ()
    _head_sent = False
    _encoding: str | None = None
    _compression: grpc.Compression | None = None
    _plain_next = False
    _cancelled = False
    _slot: dict[Any, None] | None = None
    _callbacks: list[DoneCallback] | None = None
    # What runs the handler: a task, or the future that an immediate handler gave.
    runner: "asyncio.Future[Any] | None" = None
    _writer: "asyncio.Future[None] | None" = None

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
        body, connection = self._serialize(message), self.connection
        if connection.congested or connection.writers:
            await connection.writable()
        self._send(body)
        connection.spent += len(body) + MESSAGE_COST
        if connection.spent > TURN:
            await connection.turn()
        while self.stream.waiting and self.stream.waiting > self._bound() and not self._done:
            await self._wait_for_room()

    def _bound(self) -> int:
        """Bytes of this answer that may wait for the client's windows: none where too many of others do."""
        limits = self.connection.options.limits
        return limits.stream_buffer if self.connection.http2.waiting <= limits.connection_buffer else 0

    async def _wait_for_room(self) -> None:
        if self._writer is None:
            self._writer = self.connection.loop.create_future()
        # Several tasks may write to a stream; one that is cancelled is not to take the others along.
        await asyncio.shield(self._writer)

    async def flushed(self) -> None:
        """Wait until the client has room for everything that was written, or is gone; grpcio has nothing like it."""
        while self.stream.waiting and not self._done:
            await self._wait_for_room()
        await self.connection.writable()

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
            fields = self._status(code, details)
        except Exception:
            # Of whatever kind what the handler gave may be, the client is told that it ended.
            _log.exception("%s: the status cannot be sent", self._request.path)
            code, metadata = _INTERNAL, []
            fields = self._status(code, "the status cannot be sent")
        self.stream.send_trailers(self._fitting(fields, metadata))
        self._settle(code)

    def _status(self, code: grpc.StatusCode, details: str) -> Fields:
        fields: Fields = [] if self._head_sent else list(_HEAD_FIELDS)
        if not self._head_sent and self._request.refusal is not None:
            fields.append((b"grpc-accept-encoding", compression.ACCEPTED.encode()))
        fields.append((b"grpc-status", b"%d" % NUMBERS[code]))
        if details:
            fields.append((b"grpc-message", encode_message(details)))
        return fields

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
        if self._held:
            self.connection.held -= self._held
            self._held = 0
        slot = self._slot
        if slot is not None:
            slot.pop(self, None)
        stream = self.stream
        stream.call = None if stream.closed else Finished(stream)
        self._buffer = None
        self.connection.calls.discard(self)
        self.method.counts[NUMBERS[code]] += 1
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


def _list_size(fields: Fields) -> int:
    return sum(entry_size(*field) for field in fields)
