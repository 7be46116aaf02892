"""Permissions that rpcs need, as the request table has them for request codes.

`RPC_PERMISSIONS` has an entry for each rpc of the messaging service. The core checks the commands of an rpc as well.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from grpc_gateway.response_status import Refused
from protocol_negotiation.peer import Peer
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, Resource, Settings
from remoting.permissions import Action, Actions, Permission, ResourceKind


class Unauthorized(Refused):
    """The sender of an rpc is not authenticated. delay: seconds until the response is sent."""

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(Code.UNAUTHORIZED, message)
        self.delay = delay


class Guard(Protocol):
    """Authenticates the senders of rpcs, and decides about their permissions. Principals are opaque here."""

    def authenticate(self, metadata: Mapping[str, str | bytes], peer: Peer, rpc: str) -> Any:
        """Return the sender of an rpc; it has an attribute `user`. Raises Unauthorized."""

    def require(self, principal: Any, permissions: Iterable[Permission], peer: Peer, rpc: str) -> None:
        """Check that the sender has these permissions. Raises RemotingError."""


def _topic(resource: Resource, *actions: Action) -> Permission:
    return Permission(ResourceKind.TOPIC, resource.name, actions)


def _group(resource: Resource, *actions: Action) -> Permission:
    return Permission(ResourceKind.GROUP, resource.name, actions)


_PUB: Actions = (Action.PUB,)
_SUB: Actions = (Action.SUB,)
_READ: Actions = (Action.SUB, Action.GET)
_COMMIT: Actions = (Action.SUB, Action.UPDATE)
_Permissions = Iterable[Permission]


def _any_user(_: Any) -> _Permissions:
    return ()


def _route(request: pb.QueryRouteRequest) -> _Permissions:
    return (_topic(request.topic, Action.PUB, Action.SUB, Action.GET),)


def send_permission(topic: str) -> Permission:
    """Return the permission to send to a topic."""
    return Permission(ResourceKind.TOPIC, topic, _PUB)


def member_permission(group: str) -> Permission:
    """Return the permission to be a member of a consumer group."""
    return Permission(ResourceKind.GROUP, group, _SUB)


def consume_permissions(topic: str, group: str) -> tuple[Permission, Permission]:
    """Return the permissions to consume a topic as a member of a group."""
    return Permission(ResourceKind.TOPIC, topic, _SUB), member_permission(group)


def _send(request: pb.SendMessageRequest) -> _Permissions:
    # All messages of one request have the same topic, as a rule.
    return [send_permission(message.topic.name) for message in request.messages]


def _publish(request: pb.EndTransactionRequest | pb.RecallMessageRequest) -> _Permissions:
    return (send_permission(request.topic.name),)


def _consume(
    request: pb.AckMessageRequest
    | pb.ChangeInvisibleDurationRequest
    | pb.ForwardMessageToDeadLetterQueueRequest
    | pb.QueryAssignmentRequest
    | pb.SyncLiteSubscriptionRequest,
) -> _Permissions:
    return consume_permissions(request.topic.name, request.group.name)


def _receive(request: pb.ReceiveMessageRequest | pb.PullMessageRequest) -> _Permissions:
    return consume_permissions(request.message_queue.topic.name, request.group.name)


def _update_offset(request: pb.UpdateOffsetRequest) -> _Permissions:
    return _topic(request.message_queue.topic, *_COMMIT), _group(request.group, *_COMMIT)


def _get_offset(request: pb.GetOffsetRequest) -> _Permissions:
    return _topic(request.message_queue.topic, *_READ), _group(request.group, *_READ)


def _query_offset(request: pb.QueryOffsetRequest) -> _Permissions:
    return (_topic(request.message_queue.topic, *_READ),)


def _heartbeat(request: pb.HeartbeatRequest) -> _Permissions:
    """Return the consumer group's permission; producers send a group without a meaning."""
    if request.client_type == ClientType.PRODUCER or not request.group.name:
        return ()
    return (_group(request.group, Action.SUB),)


def settings_permissions(settings: Settings) -> _Permissions:
    """Return the permissions that a client needs for its settings, which arrive on a telemetry stream."""
    needed = [_topic(topic, Action.PUB) for topic in settings.publishing.topics]
    needed += (_topic(entry.topic, Action.SUB) for entry in settings.subscription.subscriptions)
    if settings.HasField("subscription"):
        needed.append(_group(settings.subscription.group, Action.SUB))
    return needed


# A client can only end its own session. The settings on a telemetry stream are checked by `settings_permissions`.
RPC_PERMISSIONS: Mapping[str, Callable[[Any], _Permissions]] = {
    "QueryRoute": _route,
    "SendMessage": _send,
    "EndTransaction": _publish,
    "RecallMessage": _publish,
    "QueryAssignment": _consume,
    "ReceiveMessage": _receive,
    "AckMessage": _consume,
    "ChangeInvisibleDuration": _consume,
    "ForwardMessageToDeadLetterQueue": _consume,
    "SyncLiteSubscription": _consume,
    "PullMessage": _receive,
    "UpdateOffset": _update_offset,
    "GetOffset": _get_offset,
    "QueryOffset": _query_offset,
    "Heartbeat": _heartbeat,
    "NotifyClientTermination": _any_user,
    "Telemetry": _any_user,
}
