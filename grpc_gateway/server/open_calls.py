"""Calls of one connection, and the resources that they share."""

import asyncio
from typing import Any, Protocol

import grpc

from grpc_gateway.http2.stream import Stream
from grpc_gateway.server.deadlines import Deadlines
from grpc_gateway.server.decompressions import Decompressions
from grpc_gateway.server.rpc_status import RpcError
from grpc_gateway.server.server_options import MIN_REQUEST_RATE, ServerOptions


class MemoryWatch(Protocol):
    """Counts the bytes of requests over all connections."""

    def hold(self, difference: int) -> None:
        """Add to the bytes of requests that have not arrived in full, or are large."""


class OpenCalls:
    """Calls of one connection whose handlers have not ended, with the limits that hold for all of them together.

    calls: the calls themselves.
    cancelled_handlers: handlers of ended calls that have not finished their cancellation.
    late: cancelled calls whose coroutines go on.
    request_bytes: bytes of requests, as `ServerOptions.max_request_bytes` bounds them.
    unfinished: streams whose request message has not arrived in full, with the time at which it began.
    deadlines: those of all calls of the server.
    decompressions: of all connections of the server.
    response_bytes: bytes of messages that handlers hold until the client has read those before them.
    memory: counts the bytes of requests over all connections, or None.
    """

    __slots__ = (
        "_decompression_lock",
        "_withheld",
        "calls",
        "cancelled_handlers",
        "deadlines",
        "decompressions",
        "late",
        "memory",
        "options",
        "request_bytes",
        "response_bytes",
        "unfinished",
    )

    def __init__(
        self,
        options: ServerOptions,
        deadlines: Deadlines,
        decompressions: Decompressions,
        memory: MemoryWatch | None = None,
    ) -> None:
        self.options = options
        self.decompressions = decompressions
        self.memory = memory
        self.response_bytes = 0
        self.deadlines = deadlines
        self.calls: set[Any] = set()
        self.cancelled_handlers: set[asyncio.Future[Any]] = set()
        self.late: set[Any] = set()
        self.request_bytes = 0
        self.unfinished: dict[Stream, float] = {}
        # Unfinished streams that wait for others, with the bytes that are to be returned to their windows.
        self._withheld: dict[Stream, int] = {}
        self._decompression_lock: asyncio.Lock | None = None

    def __len__(self) -> int:
        """Return the number of handlers that have not ended."""
        return len(self.calls) + len(self.cancelled_handlers) + len(self.late)

    def account(self, difference: int) -> None:
        """Add to `request_bytes`. Raises RpcError if that exceeds the limit."""
        self.request_bytes += difference
        if self.memory is not None:
            self.memory.hold(difference)
        if self.request_bytes > self.options.max_request_bytes:
            raise RpcError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "the requests of this connection exceed their limit in bytes"
            )
        if difference < 0 and self._withheld:
            self._release()

    def finish_request(self, stream: Stream) -> None:
        """Record that a stream's request is complete or has failed; let another stream go on that waits."""
        if self.unfinished.pop(stream, None) is None:
            return
        if self._withheld:
            stream.widen(self._withheld.pop(stream, 0))
            self._release()

    def _release(self) -> None:
        """Let waiting streams go on as far as memory allows, but at least one unfinished stream."""
        withheld = self._withheld
        while withheld and (
            self.request_bytes <= self.options.max_unfinished_bytes or len(self.unfinished) == len(withheld)
        ):
            stream = next(iter(withheld))
            stream.widen(withheld.pop(stream))

    def consume(self, stream: Stream) -> None:
        """Return the received bytes of an unfinished request to the peer's windows, as far as memory allows.

        Over `ServerOptions.max_unfinished_bytes`, all streams but one wait, so that this one can be completed. The
        connection's window is shared, so it is always returned.
        """
        size = stream.unread
        withheld = self._withheld
        if stream.ended or self.request_bytes <= self.options.max_unfinished_bytes:
            stream.consume(size)
        elif stream in withheld or len(self.unfinished) - len(withheld) > 1:
            withheld[stream] = withheld.get(stream, 0) + size
            stream.consume_withheld(size)
        else:
            stream.consume(size)

    def check_timeouts(self, now: float) -> None:
        """End the calls whose requests take too long to arrive."""
        if self.unfinished:
            allowed = self.options.request_timeout + self.request_bytes / MIN_REQUEST_RATE
            for stream in [stream for stream, begin in self.unfinished.items() if now - begin > allowed]:
                if stream.call is not None:
                    stream.call.on_request_timeout()

    def restart_timeouts(self, now: float) -> None:
        """Restart the timeouts of unfinished requests, as the transport is not read."""
        for stream in self.unfinished:
            self.unfinished[stream] = now

    def decompression_lock(self) -> asyncio.Lock:
        """Return the lock to hold while a message waits for its turn and is decompressed.

        One message at a time limits the memory, and gives each connection the same share of the turns.
        """
        if self._decompression_lock is None:
            self._decompression_lock = asyncio.Lock()
        return self._decompression_lock

    def cancel_handler(self, handler: "asyncio.Future[Any]") -> None:
        """Cancel the task or future of an ended call, and keep track of it until it is done."""
        self.cancelled_handlers.add(handler)
        handler.add_done_callback(self.cancelled_handlers.discard)
        handler.cancel()
