"""Calls of one connection, and the resources that they share."""

import asyncio
from typing import Any

import grpc

from grpc_gateway.server.deadlines import Deadlines
from grpc_gateway.server.rpc_status import RpcError
from grpc_gateway.server.server_options import ServerOptions


class OpenCalls:
    """Calls of one connection whose handlers have not ended, with the limits that hold for all of them together.

    calls: the calls themselves.
    cancelled_handlers: handlers of ended calls that have not finished their cancellation.
    request_bytes: bytes of requests, as `ServerOptions.max_request_bytes` bounds them.
    deadlines: those of all calls of the server.
    """

    __slots__ = ("_decompression_lock", "calls", "cancelled_handlers", "deadlines", "options", "request_bytes")

    def __init__(self, options: ServerOptions, deadlines: Deadlines) -> None:
        self.options = options
        self.deadlines = deadlines
        self.calls: set[Any] = set()
        self.cancelled_handlers: set[asyncio.Future[Any]] = set()
        self.request_bytes = 0
        self._decompression_lock: asyncio.Lock | None = None

    def __len__(self) -> int:
        """Return the number of handlers that have not ended."""
        return len(self.calls) + len(self.cancelled_handlers)

    def account(self, difference: int) -> None:
        """Add to `request_bytes`. Raises RpcError if that exceeds the limit."""
        self.request_bytes += difference
        if self.request_bytes > self.options.max_request_bytes:
            raise RpcError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "the requests of this connection exceed their limit in bytes"
            )

    def decompression_lock(self) -> asyncio.Lock:
        """Return the lock to hold while a message is decompressed.

        One message at a time limits the memory, and the time for which the event loop is busy.
        """
        if self._decompression_lock is None:
            self._decompression_lock = asyncio.Lock()
        return self._decompression_lock

    def cancel_handler(self, handler: "asyncio.Future[Any]") -> None:
        """Cancel the task or future of an ended call, and keep track of it until it is done."""
        self.cancelled_handlers.add(handler)
        handler.add_done_callback(self.cancelled_handlers.discard)
        handler.cancel()
