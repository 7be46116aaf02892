"""One client's connection: its streams become calls."""

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from grpc_gateway.http2.channel import Http2Channel
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.stream import Stream
from grpc_gateway.server import handlers
from grpc_gateway.server.call import Call
from grpc_gateway.server.methods import CallDetails
from grpc_gateway.server.plain_http import PlainAnswer
from grpc_gateway.server.request import Request, understand
from grpc_gateway.server.request_reader import LARGE
from protocol_negotiation.peer import Peer

if TYPE_CHECKING:
    from grpc_gateway.server.server import Server


class GrpcConnection(Http2Channel):
    """Compared by identity, hashable, and the same for all calls of a connection.

    calls: those whose handlers have not ended yet, or not been begun. held: bytes of their requests, as
    `ServerOptions.max_request_bytes` bounds them. inflating: whose message is decompressed; one at a time, so that many
    cost neither the memory nor the time of all.
    """

    def __init__(self, server: "Server", peer: Peer) -> None:
        super().__init__(peer, server.options.limits, server.options.upkeep)
        self.server = server
        self.options = server.options
        self.calls: set[Call] = set()
        # Handlers whose calls have ended, but who have not heard of it yet.
        self.lingering: set[asyncio.Future[Any]] = set()
        self.held = 0
        self.inflating = asyncio.Lock()

    def opened(self) -> None:
        self.server.connection_opened(self)

    def ended(self) -> None:
        self.server.connection_ended(self)

    def serve(self, stream: Stream) -> None:
        call = stream.call
        if call is not None:
            call.news()
            return
        request = understand(stream.head)
        if request.http_status is not None:
            self._refuse(stream, request)
        else:
            self._open(stream, request)

    def _refuse(self, stream: Stream, request: Request) -> None:
        assert request.http_status is not None
        self.server.stats.plain[request.http_status] += 1
        stream.call = answer = PlainAnswer(stream, request, request.http_status, self.options.max_plain_body)
        answer.news()

    def _open(self, stream: Stream, request: Request) -> None:
        server = self.server
        if len(self.calls) + len(self.lingering) >= 2 * self.options.limits.concurrent_streams:
            # Handlers that go on though their streams were reset.
            stream.reset(ErrorCode.REFUSED_STREAM)
            return
        stream.call = call = Call(self, stream, request)
        call.method = server.unknown
        self.calls.add(call)
        if request.timeout is not None:
            call.start_deadline(request.timeout)
        if request.refusal is not None:
            call.finish(*request.refusal)
        elif server.interceptors:
            handlers.start(call, self._intercept(call, request))
        else:
            method = server.methods.find(request.path, request.metadata)
            if method is None:
                self._unimplemented(call)
            else:
                call.method = method
                self._take_up(call, stream)

    def _take_up(self, call: Call, stream: Stream) -> None:
        if call.method.request_streaming:
            handlers.begin(call, None)
            return
        inbox = stream.inbox
        if stream.ended and len(inbox) == 1:
            data = inbox[0]
            # The common request: one whole message, not compressed.
            if len(data) >= 5 and int.from_bytes(data[:5]) == len(data) - 5 <= self.options.max_receive_message:
                inbox.clear()
                stream.consume(len(data))
                if len(data) <= LARGE:
                    handlers.begin(call, data[5:])
                else:
                    call.begin(data[5:])
                return
        call.collect()

    def begin(self, call: Call, flag: int, message: bytes) -> None:
        """A unary request is complete; the call cannot know who runs it."""
        handlers.begin(call, message, flag)

    def failed(self, stream: Stream) -> None:
        if isinstance(stream.call, Call):
            stream.call.news()

    def _unimplemented(self, call: Call) -> None:
        call.finish(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {call.path}")

    async def _intercept(self, call: Call, request: Request) -> None:
        """Interceptors decide which handler it is; the first one asks the second and so on."""
        try:
            handler = await self.server.intercepted(CallDetails(request.path, request.metadata))
        except BaseException as error:
            call.fail(error)
            return
        if call.done():
            return
        if handler is None:
            self._unimplemented(call)
            return
        call.method = self.server.methods.method(request.path, handler)
        self._take_up(call, call.stream)
