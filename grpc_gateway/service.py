"""The v2 messaging service: each rpc with the part of the gateway that serves it.

A servicer for grpcio's registration API. Business errors are answers with a status; they never end a call with a
gRPC status.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from grpc_gateway.call import Call, Observer, stranger
from grpc_gateway.clients.client_lifecycle import ClientLifecycle
from grpc_gateway.clients.client_table import Clients
from grpc_gateway.clients.telemetry import Telemetry
from grpc_gateway.consuming.ack_service import Acking
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.lite import Lite
from grpc_gateway.consuming.pulling import Pulling
from grpc_gateway.consuming.receiving import Receiving
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.core import Core
from grpc_gateway.name_mapping import Names
from grpc_gateway.options import Options
from grpc_gateway.producing.recall import Recall
from grpc_gateway.producing.sending import Sending
from grpc_gateway.producing.transactions import Transactions
from grpc_gateway.routes import Routes
from grpc_gateway.server import immediate
from grpc_gateway.status import Refused, of_error
from grpc_gateway.taskless import run_eagerly
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceServicer
from remoting.errors import RemotingError

_log = logging.getLogger("gantry.grpc")

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
# A client that a slow broker holds up is there all the same.
_NOT_HELD = frozenset({"Heartbeat", "NotifyClientTermination"})
# Seconds for which a stream is held before it is told TOO_MANY_REQUESTS: consumers come again after 20 ms.
_HOLD = 1.0


class MessagingService(MessagingServiceServicer):
    """All rpcs of apache.rocketmq.v2.MessagingService."""

    def __init__(self, core: Core, clients: Clients, renewal: Renewal, options: Options, observe: Observer) -> None:
        self._clients = clients
        self._observe = observe
        self._routes = Routes(core, options)
        self._sending = Sending(core, options)
        self._transactions = Transactions(core)
        self._recall = Recall(core, options)
        clocks = BrokerClocks()
        self._receiving = Receiving(core, renewal, options, clocks)
        self._acking = Acking(core, renewal, options, clocks)
        self._pulling = Pulling(core, options)
        self._lite = Lite(core, options)
        self.presence = ClientLifecycle(core, clients, renewal, options)
        self.telemetry = Telemetry(core, clients, self.presence, options, observe)

    # Sending.

    async def QueryRoute(self, request: pb.QueryRouteRequest, context: Any) -> pb.QueryRouteResponse:
        return await self._answer("QueryRoute", pb.QueryRouteResponse, self._routes.query_route, request, context)

    # The two that are called for every message are run without a task. They are coroutine functions to grpcio.

    @immediate
    def SendMessage(
        self, request: pb.SendMessageRequest, context: Any
    ) -> "pb.SendMessageResponse | asyncio.Future[pb.SendMessageResponse]":
        return run_eagerly(self._answer("SendMessage", pb.SendMessageResponse, self._sending.send, request, context))

    async def EndTransaction(self, request: pb.EndTransactionRequest, context: Any) -> pb.EndTransactionResponse:
        return await self._answer("EndTransaction", pb.EndTransactionResponse, self._transactions.end, request, context)

    async def RecallMessage(self, request: pb.RecallMessageRequest, context: Any) -> pb.RecallMessageResponse:
        return await self._answer("RecallMessage", pb.RecallMessageResponse, self._recall.recall, request, context)

    # Receiving.

    async def QueryAssignment(self, request: pb.QueryAssignmentRequest, context: Any) -> pb.QueryAssignmentResponse:
        return await self._answer(
            "QueryAssignment", pb.QueryAssignmentResponse, self._routes.query_assignment, request, context
        )

    async def ReceiveMessage(
        self, request: pb.ReceiveMessageRequest, context: Any
    ) -> AsyncIterator[pb.ReceiveMessageResponse]:
        async with aclosing(
            self._stream("ReceiveMessage", pb.ReceiveMessageResponse, self._receiving.receive, request, context)
        ) as responses:
            async for response in responses:
                yield response

    @immediate
    def AckMessage(
        self, request: pb.AckMessageRequest, context: Any
    ) -> "pb.AckMessageResponse | asyncio.Future[pb.AckMessageResponse]":
        return run_eagerly(self._answer("AckMessage", pb.AckMessageResponse, self._acking.ack, request, context))

    async def ChangeInvisibleDuration(
        self, request: pb.ChangeInvisibleDurationRequest, context: Any
    ) -> pb.ChangeInvisibleDurationResponse:
        return await self._answer(
            "ChangeInvisibleDuration",
            pb.ChangeInvisibleDurationResponse,
            self._acking.change_invisible,
            request,
            context,
        )

    async def ForwardMessageToDeadLetterQueue(
        self, request: pb.ForwardMessageToDeadLetterQueueRequest, context: Any
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        return await self._answer(
            "ForwardMessageToDeadLetterQueue",
            pb.ForwardMessageToDeadLetterQueueResponse,
            self._acking.forward,
            request,
            context,
        )

    async def SyncLiteSubscription(
        self, request: pb.SyncLiteSubscriptionRequest, context: Any
    ) -> pb.SyncLiteSubscriptionResponse:
        return await self._answer(
            "SyncLiteSubscription", pb.SyncLiteSubscriptionResponse, self._lite.sync, request, context
        )

    # Pulling by offset.

    async def PullMessage(self, request: pb.PullMessageRequest, context: Any) -> AsyncIterator[pb.PullMessageResponse]:
        async with aclosing(
            self._stream("PullMessage", pb.PullMessageResponse, self._pulling.pull, request, context)
        ) as responses:
            async for response in responses:
                yield response

    async def UpdateOffset(self, request: pb.UpdateOffsetRequest, context: Any) -> pb.UpdateOffsetResponse:
        return await self._answer(
            "UpdateOffset", pb.UpdateOffsetResponse, self._pulling.update_offset, request, context
        )

    async def GetOffset(self, request: pb.GetOffsetRequest, context: Any) -> pb.GetOffsetResponse:
        return await self._answer("GetOffset", pb.GetOffsetResponse, self._pulling.get_offset, request, context)

    async def QueryOffset(self, request: pb.QueryOffsetRequest, context: Any) -> pb.QueryOffsetResponse:
        return await self._answer("QueryOffset", pb.QueryOffsetResponse, self._pulling.query_offset, request, context)

    # Being a client.

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        return await self._answer("Heartbeat", pb.HeartbeatResponse, self.presence.heartbeat, request, context)

    async def NotifyClientTermination(
        self, request: pb.NotifyClientTerminationRequest, context: Any
    ) -> pb.NotifyClientTerminationResponse:
        return await self._answer(
            "NotifyClientTermination",
            pb.NotifyClientTerminationResponse,
            self.presence.terminate,
            request,
            context,
        )

    async def Telemetry(
        self, request_iterator: AsyncIterator[pb.TelemetryCommand], context: Any
    ) -> AsyncIterator[pb.TelemetryCommand]:
        # Closed with this generator, not some time after it.
        async with aclosing(self.telemetry.stream(request_iterator, context)) as commands:
            async for command in commands:
                yield command

    # What all have in common.

    async def _answer(
        self,
        name: str,
        kind: type[_Response],
        work: Callable[[Call, _Request], Awaitable[_Response]],
        request: _Request,
        context: Any,
    ) -> _Response:
        """The response, or one that holds nothing but the status of what went wrong."""
        started = time.monotonic()
        call: Call | None = None
        names: Names | None = None
        try:
            call = self._clients.call(context, name)
            names = call.client.names
            if names is not None:
                names.inward(request)
            if call.client.held and name not in _NOT_HELD:
                await call.client.released()
            response = await work(call, request)
        except Exception as error:
            response = _failure(name, kind, error)
        if names is not None:
            names.outward(response)
        self._observe(name, call or stranger(context), request, response.status.code, started)  # type: ignore[attr-defined]
        return response

    async def _stream(
        self,
        name: str,
        kind: type[_Response],
        work: Callable[[Call, _Request], AsyncGenerator[_Response, None]],
        request: _Request,
        context: Any,
    ) -> AsyncGenerator[_Response, None]:
        """The responses; the failure of a stream is one response with its status."""
        started = time.monotonic()
        code = 0
        call: Call | None = None
        names: Names | None = None
        try:
            call = self._clients.call(context, name)
            names = call.client.names
            if names is not None:
                names.inward(request)
            async with aclosing(work(call, request)) as responses:
                async for response in responses:
                    if names is not None:
                        names.outward(response)
                    code = code or response.status.code  # type: ignore[attr-defined]
                    yield response
        except Exception as error:
            failure = _failure(name, kind, error)
            code = failure.status.code  # type: ignore[attr-defined]
            if code == Code.TOO_MANY_REQUESTS:
                await asyncio.sleep(_HOLD)
            if names is not None:
                names.outward(failure)
            yield failure
        finally:
            self._observe(name, call or stranger(context), request, code, started)


def _failure(name: str, kind: type[_Response], error: Exception) -> _Response:
    if not isinstance(error, Refused | RemotingError):
        _log.error("%s failed", name, exc_info=error)
    return kind(status=of_error(error))  # type: ignore[call-arg]  # every response has one
