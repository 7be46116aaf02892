"""Permissions that requests need: resources and actions, in the terms of RocketMQ's ACL 2.0.

`NEEDS` has an entry for each code of the request table. The entries follow the
official proxy's `DefaultAuthorizationContextBuilder` and the annotations of RocketMQ's request headers. They also cover
the requests that the official proxy does not authorize: LITE_PULL_MESSAGE, CHECK_CLIENT_CONFIG, BATCH_ACK_MESSAGE, and
requests in which the name of the resource is missing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from remoting import send_message
from remoting.codes import RequestCode
from remoting.names import listed

# The field of GET_CONSUMER_RUNNING_INFO for thread stacks.
STACKS_FIELD: Final = "jstackEnable"


class Action(StrEnum):
    """Effect of a request on its resources."""

    PUB = "Pub"
    SUB = "Sub"
    GET = "Get"
    LIST = "List"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    ANY = "Any"


class ResourceKind(StrEnum):
    """Kind of a resource. ANY is for patterns only."""

    ANY = "Any"
    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


Actions = tuple[Action, ...]


class Permission(NamedTuple):
    """A permission on one resource; one of the actions is enough.

    An empty name stands for a resource that the request does not name; only a pattern for all names covers it.
    """

    kind: ResourceKind
    name: str
    actions: Actions


class Need(NamedTuple):
    """A permission that a request needs, on the resource that an ext field names; one of the actions is enough.

    Without a field, or if the request lacks the field, the name is empty. optional: a request without the field does
    not need the permission. several: the field has a list of names, which may be empty.
    """

    kind: ResourceKind
    field: str | None
    actions: Actions
    optional: bool = False
    several: bool = False

    def names(self, fields: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the resources in a request's ext fields; none if the permission is not needed."""
        text = fields.get(self.field, "") if self.field is not None else ""
        if self.several:
            return listed(text)
        return () if self.optional and not text else (text,)


def requests_stacks(fields: Mapping[str, str]) -> bool:
    """Return whether the ext fields request thread stacks: they make a client work, so that this counts as a change."""
    return fields.get(STACKS_FIELD, "").lower() == "true"


class BodyFormat(StrEnum):
    """A body that names resources. `proxy.auth.resources` reads it."""

    HEARTBEAT = "HeartbeatData"
    BATCH_ACK = "BatchAckMessageRequestBody"
    LITE_SUBSCRIPTION = "LiteSubscriptionCtlRequestBody"
    CHECK_CLIENT = "CheckClientRequestBody"
    QUEUE_LOCKS = "LockBatchRequestBody"
    ASSIGNMENT = "QueryAssignmentRequestBody"
    GROUP_CONFIG = "SubscriptionGroupConfig"


class Needs(NamedTuple):
    """All permissions that a request needs. body: the format of its body, if resources are named there.

    Without fields and body, any authenticated user may send the request.
    """

    fields: tuple[Need, ...] = ()
    body: BodyFormat | None = None


def _topic(*actions: Action, field: str = "topic", optional: bool = False) -> Need:
    return Need(ResourceKind.TOPIC, field, actions, optional)


def _group(*actions: Action, field: str = "consumerGroup") -> Need:
    return Need(ResourceKind.GROUP, field, actions)


_C = RequestCode
_READ = (Action.SUB, Action.GET)
_SEND = Needs((_topic(Action.PUB, field=send_message.V1.topic),))
_SEND_V2 = Needs((_topic(Action.PUB, field=send_message.V2.topic),))
_CONSUME = Needs((_topic(Action.SUB), _group(Action.SUB)))
_QUERY_QUEUE = Needs((_topic(*_READ),))
_QUERY_GROUP = Needs((_group(*_READ),))
_CLUSTER = Needs((Need(ResourceKind.CLUSTER, None, (Action.GET, Action.LIST)),))
_USERS = Needs((Need(ResourceKind.CLUSTER, None, (Action.UPDATE,)),))
_DELETE_TOPIC = Needs((_topic(Action.DELETE),))
_ANY_USER = Needs()

NEEDS: Mapping[int, Needs] = {
    # Sending.
    _C.SEND_MESSAGE: _SEND,
    _C.SEND_MESSAGE_V2: _SEND_V2,
    _C.SEND_BATCH_MESSAGE: _SEND_V2,
    _C.SEND_REPLY_MESSAGE: _SEND,
    _C.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    _C.END_TRANSACTION: Needs((_topic(Action.PUB),)),
    _C.RECALL_MESSAGE: Needs((_topic(Action.PUB),)),
    # Consuming.
    _C.CONSUMER_SEND_MSG_BACK: Needs(
        (_group(Action.SUB, field="group"), _topic(Action.SUB, field="originTopic", optional=True))
    ),
    _C.PULL_MESSAGE: _CONSUME,
    _C.LITE_PULL_MESSAGE: _CONSUME,
    _C.POP_MESSAGE: _CONSUME,
    _C.POP_LITE_MESSAGE: _CONSUME,
    _C.PEEK_MESSAGE: _CONSUME,
    _C.ACK_MESSAGE: _CONSUME,
    _C.BATCH_ACK_MESSAGE: Needs(body=BodyFormat.BATCH_ACK),
    _C.CHANGE_MESSAGE_INVISIBLETIME: _CONSUME,
    _C.NOTIFICATION: _CONSUME,
    _C.POLLING_INFO: Needs((_topic(*_READ), _group(*_READ))),
    _C.QUERY_CONSUMER_OFFSET: Needs((_topic(*_READ), _group(*_READ))),
    _C.UPDATE_CONSUMER_OFFSET: Needs((_topic(Action.SUB, Action.UPDATE), _group(Action.SUB, Action.UPDATE))),
    _C.SEARCH_OFFSET_BY_TIMESTAMP: _QUERY_QUEUE,
    _C.GET_MAX_OFFSET: _QUERY_QUEUE,
    _C.GET_MIN_OFFSET: _QUERY_QUEUE,
    _C.GET_EARLIEST_MSG_STORETIME: _QUERY_QUEUE,
    _C.LITE_SUBSCRIPTION_CTL: Needs(body=BodyFormat.LITE_SUBSCRIPTION),
    _C.LOCK_BATCH_MQ: Needs(body=BodyFormat.QUEUE_LOCKS),
    _C.UNLOCK_BATCH_MQ: Needs(body=BodyFormat.QUEUE_LOCKS),
    _C.QUERY_ASSIGNMENT: Needs(body=BodyFormat.ASSIGNMENT),
    # Clients and groups. A client can only end its own membership.
    _C.HEART_BEAT: Needs(body=BodyFormat.HEARTBEAT),
    _C.UNREGISTER_CLIENT: _ANY_USER,
    _C.CHECK_CLIENT_CONFIG: Needs(body=BodyFormat.CHECK_CLIENT),
    _C.GET_CONSUMER_LIST_BY_GROUP: _QUERY_GROUP,
    _C.GET_CONSUMER_CONNECTION_LIST: _QUERY_GROUP,
    # Routes and look-ups.
    _C.GET_ROUTEINFO_BY_TOPIC: Needs((_topic(Action.PUB, Action.SUB, Action.GET),)),
    _C.GET_BROKER_CLUSTER_INFO: _CLUSTER,
    _C.QUERY_MESSAGE: _QUERY_QUEUE,
    _C.VIEW_MESSAGE_BY_ID: _QUERY_QUEUE,
    # Tools.
    _C.GET_ALL_TOPIC_CONFIG: _CLUSTER,
    _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _CLUSTER,
    _C.GET_TOPIC_STATS_INFO: Needs((_topic(Action.GET),)),
    _C.GET_TOPIC_CONFIG: Needs((_topic(Action.GET),)),
    _C.GET_SUBSCRIPTIONGROUP_CONFIG: Needs((_group(Action.GET, field="group"),)),
    _C.UPDATE_AND_CREATE_TOPIC: Needs((_topic(Action.CREATE),)),
    _C.DELETE_TOPIC_IN_BROKER: _DELETE_TOPIC,
    _C.DELETE_TOPIC_IN_NAMESRV: _DELETE_TOPIC,
    _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Needs(body=BodyFormat.GROUP_CONFIG),
    _C.DELETE_SUBSCRIPTIONGROUP: Needs((_group(Action.DELETE, field="groupName"),)),
    _C.GET_CONSUME_STATS: Needs(
        (
            _group(Action.GET),
            _topic(Action.GET, optional=True),
            Need(ResourceKind.TOPIC, "topicList", (Action.GET,), several=True),
        )
    ),
    _C.INVOKE_BROKER_TO_RESET_OFFSET: Needs((_topic(Action.UPDATE), _group(Action.UPDATE, field="group"))),
    _C.VIEW_BROKER_STATS_DATA: _CLUSTER,
    # For thread stacks `proxy.auth.resources` demands more.
    _C.GET_CONSUMER_RUNNING_INFO: Needs((_group(Action.GET),)),
    _C.CONSUME_MESSAGE_DIRECTLY: Needs((_group(Action.UPDATE),)),
    # Users and ACLs. The responses about users have passwords, so that reading them needs the permission to change.
    _C.AUTH_CREATE_USER: _USERS,
    _C.AUTH_UPDATE_USER: _USERS,
    _C.AUTH_DELETE_USER: _USERS,
    _C.AUTH_GET_USER: _USERS,
    _C.AUTH_LIST_USER: _USERS,
    _C.AUTH_CREATE_ACL: _USERS,
    _C.AUTH_UPDATE_ACL: _USERS,
    _C.AUTH_DELETE_ACL: _USERS,
    _C.AUTH_GET_ACL: _CLUSTER,
    _C.AUTH_LIST_ACL: _CLUSTER,
    # From brokers, or by Gantry itself.
    _C.CHECK_TRANSACTION_STATE: _ANY_USER,
    _C.NOTIFY_CONSUMER_IDS_CHANGED: _ANY_USER,
    _C.RESET_CONSUMER_CLIENT_OFFSET: _ANY_USER,
    _C.GET_CONSUMER_STATUS_FROM_CLIENT: _ANY_USER,
    _C.PUSH_REPLY_MESSAGE_TO_CLIENT: _ANY_USER,
    _C.NOTIFY_UNSUBSCRIBE_LITE: _ANY_USER,
}
