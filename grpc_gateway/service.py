"""The v2 messaging service: a servicer for grpcio's registration API, with a method for each rpc.

Business errors are responses with a status; they never end a call with a gRPC status.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from grpc_gateway.clients.client_lifecycle import ClientLifecycle
from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.rpc import Observer, Rpc
from grpc_gateway.clients.telemetry import Telemetry
from grpc_gateway.consuming.ack_request import read_ack_request
from grpc_gateway.consuming.ack_service import AckService
from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.lite_subscriptions import LiteSubscriptionService
from grpc_gateway.consuming.pull_service import PullService
from grpc_gateway.consuming.receive_service import ReceiveService
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.message_trace import Change, Forward, MessageTrace, Receive, Serve
from grpc_gateway.permissions import Guard
from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.producing.recall_service import RecallService
from grpc_gateway.producing.send_service import SendService
from grpc_gateway.producing.transaction_service import TransactionService
from grpc_gateway.route_service import RouteService
from grpc_gateway.sent_message import read_send_request
from grpc_gateway.server import immediate, read_by
from grpc_gateway.streaming import StreamingRpcs
from grpc_gateway.unary import UnaryRpcs
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import ClientType
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceServicer
from remoting.taskless import Running, start


class MessagingService(MessagingServiceServicer):
    """All rpcs of apache.rocketmq.v2.MessagingService."""

    def __init__(
        self,
        core: Core,
        clients: ClientTable,
        renewal: Renewal,
        options: GatewayOptions,
        observe: Observer,
        guard: Guard | None = None,
        trace: MessageTrace | None = None,
    ) -> None:
        self._rpcs = UnaryRpcs(clients, observe, guard)
        self._streams = StreamingRpcs(clients, observe, guard)
        self._route_service = RouteService(core)
        half_messages = HalfMessages(core)
        self._send_service = SendService(core, options, half_messages)
        self._transaction_service = TransactionService(core, half_messages)
        self._recall_service = RecallService(core, options)
        clocks = BrokerClocks(options.handle_grace)
        self._receive_service = ReceiveService(core, renewal, options, clocks)
        self._ack_service = AckService(core, renewal, options, clocks)
        self._pull_service = PullService(core, options)
        self._lite_subscriptions = LiteSubscriptionService(core, options)
        self._send: Serve[pb.SendMessageRequest, pb.SendMessageResponse] = self._send_service.send
        self._receive: Receive = self._receive_service.receive
        self._ack: Serve[pb.AckMessageRequest, pb.AckMessageResponse] = self._ack_service.ack
        self._change: Change = self._ack_service.change_invisible_duration
        self._forward: Forward = self._ack_service.forward_to_dead_letter_queue
        if trace is not None:
            self._trace_messages(trace)
        # Before the lifecycle, so that the deliveries of a departed client are returned before it is unregistered.
        clients.departure_listeners.append(renewal.client_departed)
        self.client_lifecycle = ClientLifecycle(core, clients, options)
        self.client_lifecycle.producers.check_listeners.append(self._transaction_service.checked)
        self.telemetry = Telemetry(core, clients, self.client_lifecycle, options, observe, guard)

    def _trace_messages(self, trace: MessageTrace) -> None:
        self._send = trace.sends(self._send)
        self._receive = trace.receives(self._receive)
        self._ack = trace.acks(self._ack)
        self._change = trace.changes(self._change, _returns_by_change)
        self._forward = trace.dead_letters(self._forward)

    # Producing.

    async def QueryRoute(self, request: pb.QueryRouteRequest, context: Any) -> pb.QueryRouteResponse:
        return await self._rpcs.run(
            "QueryRoute", pb.QueryRouteResponse, self._route_service.query_route, request, context
        )

    # SendMessage and AckMessage, which are called for every message, run without a task. For grpcio they are coroutine
    # functions.

    @immediate
    @read_by(read_send_request)
    def SendMessage(
        self, request: pb.SendMessageRequest, context: Any
    ) -> "pb.SendMessageResponse | Running[pb.SendMessageResponse]":
        return start(self._rpcs.run("SendMessage", pb.SendMessageResponse, self._send, request, context))

    async def EndTransaction(self, request: pb.EndTransactionRequest, context: Any) -> pb.EndTransactionResponse:
        return await self._rpcs.run(
            "EndTransaction", pb.EndTransactionResponse, self._transaction_service.end, request, context
        )

    async def RecallMessage(self, request: pb.RecallMessageRequest, context: Any) -> pb.RecallMessageResponse:
        return await self._rpcs.run(
            "RecallMessage", pb.RecallMessageResponse, self._recall_service.recall, request, context
        )

    # Consuming.

    async def QueryAssignment(self, request: pb.QueryAssignmentRequest, context: Any) -> pb.QueryAssignmentResponse:
        return await self._rpcs.run(
            "QueryAssignment", pb.QueryAssignmentResponse, self._route_service.query_assignment, request, context
        )

    # Streams are written instead of yielded, which the generated types do not know: several messages are one write.

    async def ReceiveMessage(self, request: pb.ReceiveMessageRequest, context: Any) -> None:  # type: ignore[override]
        await self._streams.run("ReceiveMessage", pb.ReceiveMessageResponse, self._receive, request, context)

    @immediate
    @read_by(read_ack_request)
    def AckMessage(
        self, request: pb.AckMessageRequest, context: Any
    ) -> "pb.AckMessageResponse | Running[pb.AckMessageResponse]":
        return start(self._rpcs.run("AckMessage", pb.AckMessageResponse, self._ack, request, context))

    async def ChangeInvisibleDuration(
        self, request: pb.ChangeInvisibleDurationRequest, context: Any
    ) -> pb.ChangeInvisibleDurationResponse:
        return await self._rpcs.run(
            "ChangeInvisibleDuration",
            pb.ChangeInvisibleDurationResponse,
            self._change,
            request,
            context,
        )

    async def ForwardMessageToDeadLetterQueue(
        self, request: pb.ForwardMessageToDeadLetterQueueRequest, context: Any
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        return await self._rpcs.run(
            "ForwardMessageToDeadLetterQueue",
            pb.ForwardMessageToDeadLetterQueueResponse,
            self._forward,
            request,
            context,
        )

    async def SyncLiteSubscription(
        self, request: pb.SyncLiteSubscriptionRequest, context: Any
    ) -> pb.SyncLiteSubscriptionResponse:
        return await self._rpcs.run(
            "SyncLiteSubscription", pb.SyncLiteSubscriptionResponse, self._lite_subscriptions.sync, request, context
        )

    # Pulling by offset.

    async def PullMessage(self, request: pb.PullMessageRequest, context: Any) -> None:  # type: ignore[override]
        await self._streams.run("PullMessage", pb.PullMessageResponse, self._pull_service.pull, request, context)

    async def UpdateOffset(self, request: pb.UpdateOffsetRequest, context: Any) -> pb.UpdateOffsetResponse:
        return await self._rpcs.run(
            "UpdateOffset", pb.UpdateOffsetResponse, self._pull_service.update_offset, request, context
        )

    async def GetOffset(self, request: pb.GetOffsetRequest, context: Any) -> pb.GetOffsetResponse:
        return await self._rpcs.run("GetOffset", pb.GetOffsetResponse, self._pull_service.get_offset, request, context)

    async def QueryOffset(self, request: pb.QueryOffsetRequest, context: Any) -> pb.QueryOffsetResponse:
        return await self._rpcs.run(
            "QueryOffset", pb.QueryOffsetResponse, self._pull_service.query_offset, request, context
        )

    # Clients.

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        return await self._rpcs.run(
            "Heartbeat", pb.HeartbeatResponse, self.client_lifecycle.heartbeat, request, context
        )

    async def NotifyClientTermination(
        self, request: pb.NotifyClientTerminationRequest, context: Any
    ) -> pb.NotifyClientTerminationResponse:
        return await self._rpcs.run(
            "NotifyClientTermination",
            pb.NotifyClientTerminationResponse,
            self.client_lifecycle.terminate,
            request,
            context,
        )

    async def Telemetry(
        self, request_iterator: AsyncIterator[pb.TelemetryCommand], context: Any
    ) -> AsyncIterator[pb.TelemetryCommand]:
        # aclosing: the stream ends with this generator instead of at its garbage collection.
        async with aclosing(self.telemetry.stream(request_iterator, context)) as commands:
            async for command in commands:
                yield command


def _returns_by_change(rpc: Rpc) -> bool:
    return rpc.client.client_type is ClientType.PUSH_CONSUMER
