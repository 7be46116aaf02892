"""A client's connection to the gRPC server."""

from collections.abc import Callable
from typing import Final

import grpc

from grpc_gateway.http2.channel import CloseCause, Http2Channel
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import handlers
from grpc_gateway.server.deadlines import Deadlines
from grpc_gateway.server.decompressions import Decompressions
from grpc_gateway.server.http_rejection import HttpRejection
from grpc_gateway.server.methods import Registry
from grpc_gateway.server.open_calls import MemoryWatch, OpenCalls
from grpc_gateway.server.request import Request, parsed_request
from grpc_gateway.server.request_reader import LARGE_REQUEST
from grpc_gateway.server.server_call import ServerCall
from grpc_gateway.server.server_options import ServerOptions
from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import Peer

# Bytes of memory that a call takes until its handler ends: stream, context, task.
_CALL_MEMORY: Final = 16 * 1024


class GrpcConnection(Http2Channel):
    """An HTTP/2 channel whose streams are gRPC calls. Compared and hashed by identity."""

    def __init__(
        self,
        peer: Peer,
        options: ServerOptions,
        methods: Registry,
        deadlines: Deadlines,
        decompressions: Decompressions,
        on_open: "Callable[[GrpcConnection], None]",
        on_close: "Callable[[GrpcConnection], None]",
        turns: FairTurns,
        memory: MemoryWatch | None = None,
        client_memory: "Callable[[GrpcConnection], int] | None" = None,
    ) -> None:
        super().__init__(peer, options.limits, options.timeouts, turns)
        self.open_calls = OpenCalls(options, deadlines, decompressions, memory)
        self._options = options
        self._methods = methods
        self._notify_open = on_open
        self._notify_close = on_close
        self._client_memory = client_memory

    def on_open(self) -> None:
        self._notify_open(self)

    def on_close(self) -> None:
        self._notify_close(self)

    def check(self, now: float) -> None:
        if self.reading:
            self.open_calls.check_timeouts(now)
        else:
            self.open_calls.restart_timeouts(now)
        super().check(now)

    @property
    def held_request_bytes(self) -> int:
        """The memory of clients and of calls that have not ended, in bytes, without their request messages."""
        clients = 0 if self._client_memory is None else self._client_memory(self)
        return clients + len(self.open_calls) * _CALL_MEMORY

    @property
    def held_response_bytes(self) -> int:
        """The bytes of responses that wait for the client, in handlers, windows and socket."""
        return self.unread_bytes + self.open_calls.response_bytes

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of requests that have not arrived in full, or are large."""
        return super().unfinished_bytes + self.open_calls.request_bytes

    def shed(self) -> None:
        """Close the connection in the next turn of the event loop, because the process has too little memory.

        This turn may be handling one of its requests.
        """
        self.loop.call_soon(self.abort if self.unread_bytes else self.end, CloseCause.OVERLOAD)

    def on_stream_change(self, stream: Stream) -> None:
        call = stream.call
        if call is not None:
            call.on_stream_change()
            return
        request = parsed_request(stream.head)
        if request.http_status is None:
            self._open(stream, request)
        else:
            stream.call = HttpRejection(stream, request.http_status, self._options.max_rejected_body, self.open_calls)
            stream.call.on_stream_change()

    def _open(self, stream: Stream, request: Request) -> None:
        calls = self.open_calls
        if len(calls) >= 2 * self._options.limits.concurrent_streams:
            # Handlers that go on although their streams were reset.
            stream.reset(ErrorCode.REFUSED_STREAM)
            return
        unknown = self._methods.unknown
        stream.call = call = ServerCall(self, calls, stream, request, unknown)
        calls.calls.add(call)
        if request.timeout is not None:
            call.start_deadline(request.timeout)
        if request.refusal is not None:
            call.finish(*request.refusal)
            return
        method = self._methods.find(request)
        if method is None:
            call.finish(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {request.path}")
        else:
            call.method = method
            self._start(call, stream)

    def _start(self, call: ServerCall, stream: Stream) -> None:
        if call.method.request_streaming:
            handlers.start_streaming(call)
            return
        inbox = stream.inbox
        if stream.ended and len(inbox) == 1:
            data = inbox[0]
            size = len(data)
            # The common request: one whole message, uncompressed and small.
            if 5 <= size <= LARGE_REQUEST and int.from_bytes(data[:5]) == size - 5 <= self._options.max_receive_message:
                inbox.clear()
                stream.consume(size)
                handlers.start_unary(call, data[5:])
                return
        call.collect(handlers.start_unary)

    def on_stream_error(self, stream: Stream) -> None:
        if isinstance(stream.call, ServerCall):
            stream.call.on_stream_change()
