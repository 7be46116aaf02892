"""The request table: one row for each request code.

Validation, routing, retries, timeouts, metric labels, authorisation and the docs read this table. A new request code is
a new row, its permissions in `NEEDS` (`remoting.permissions`) and, where it is not merely forwarded, a handler in
`proxy.core.handlers`. The rows are RIP-55's 27 codes (`rip55`), the other codes that its clients and tools use, and the
codes that only Gantry itself sends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Final

from remoting import send_message
from remoting.codes import RequestCode
from remoting.permissions import NEEDS, Needs
from remoting.permissions import Action as Action
from remoting.request_kinds import Created, RequestKind
from remoting.send_message import SendFieldNames


class Direction(StrEnum):
    """Sender of a request."""

    CLIENT = "client"  # a client or tool
    BROKER = "broker"  # a broker; relayed to a client
    BOTH = "both"


class ReplicaChoice(StrEnum):
    """The brokers of a broker name that may serve a request."""

    MASTER = "master"
    ANY = "any"  # also a slave, if the master is gone or suggested that slave to the client
    ACTING_MASTER = "acting master"  # the master or, if there is none, the slave that acts as master


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One row of the request table.

    Attributes:
        action: effect on the topic and group, for authorisation and traffic rules.
        kind: effect on messages.
        creates: whether brokers may create the topic or the consumer group that the request names.
        required: ext fields without which the request is refused.
        topic, group, broker: names of the ext fields that hold these names; None if there is no such field.
        source_group: name of the ext field with a further group, whose offsets the request reads.
        direction: sender.
        replica: brokers that may serve the request.
        repeatable: whether the request may be sent again after its connection was lost. All others might take effect
            twice.
        member: whether the request must use the connection of the client's heartbeats, because brokers send later
            notifications to the connection that it came over.
        poll: name of the ext field with the milliseconds for which a broker may hold the request.
        tool: whether only operators' tools send the request, so that the setting `tools` may disable it.
        send: names of the other ext fields, if the request sends a message.
        rip55: whether RIP-55 lists the code.
        name: the code's name in metrics and logs.
        names: the ext fields with the topic and the group. required_fields: `required`, for iteration.
        needs: permissions that the request needs. None: it has no entry in `NEEDS`, since only Gantry and tools send
            it; `proxy.auth.resources` derives the permissions from `action` and the names.
        need_fields: the ext fields that name the resources of `needs`, of which there are two at most; "" for none.
    """

    code: IntEnum
    action: Action
    required: frozenset[str] = frozenset()
    topic: str | None = "topic"
    group: str | None = None
    broker: str = "bname"
    direction: Direction = Direction.CLIENT
    replica: ReplicaChoice = ReplicaChoice.MASTER
    repeatable: bool = False
    member: bool = False
    poll: str | None = None
    tool: bool = False
    send: SendFieldNames | None = None
    rip55: bool = True
    source_group: str | None = None
    kind: RequestKind = RequestKind.OTHER
    creates: Created | None = None

    name: str = field(init=False)
    names: tuple[str, ...] = field(init=False)
    required_fields: tuple[str, ...] = field(init=False)
    needs: Needs | None = field(init=False)
    need_fields: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.code.name)
        object.__setattr__(self, "required_fields", tuple(sorted(self.required)))
        object.__setattr__(self, "names", tuple(name for name in (self.topic, self.group) if name is not None))
        needs = NEEDS.get(self.code)
        object.__setattr__(self, "needs", needs)
        fields = [need.field or "" for need in needs.fields] if needs is not None else []
        object.__setattr__(self, "need_fields", (*fields, "", "")[:2])


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _auth(code: RequestCode, action: Action, *required: str) -> RequestSpec:
    """Return the row of a request about users or ACLs. Creating a user that exists is an error."""
    repeatable = code != RequestCode.AUTH_CREATE_USER
    return RequestSpec(code, action, frozenset(required), topic=None, repeatable=repeatable, tool=True, rip55=False)


def _tool(code: RequestCode, action: Action, required: str = "", **more: Any) -> RequestSpec:
    """Return the row of a tool's request that may be repeated."""
    return RequestSpec(code, action, _fields(required), repeatable=True, tool=True, rip55=False, **more)


def _reply(send: RequestSpec, code: RequestCode) -> RequestSpec:
    """Return the row of a reply with the fields of a send. Its topic is the cluster's, which exists."""
    return replace(send, code=code, kind=RequestKind.REPLY, creates=None, rip55=False)


_C = RequestCode
_PULL = "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion"
_SEND_MESSAGE = RequestSpec(
    _C.SEND_MESSAGE,
    Action.PUB,
    _fields("producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag"),
    topic=send_message.V1.topic,
    group=send_message.V1.producer_group,
    broker=send_message.V1.broker,
    send=send_message.V1,
    kind=RequestKind.SEND,
    creates=Created.TOPIC,
)
_SEND_MESSAGE_V2 = RequestSpec(
    _C.SEND_MESSAGE_V2,
    Action.PUB,
    # Producer group, topic, queue id, sys flag, born timestamp, flag.
    _fields("a b e f g h"),
    topic=send_message.V2.topic,
    group=send_message.V2.producer_group,
    broker=send_message.V2.broker,
    send=send_message.V2,
    kind=RequestKind.SEND,
    creates=Created.TOPIC,
)
_PULL_MESSAGE = RequestSpec(
    _C.PULL_MESSAGE,
    Action.SUB,
    _fields(_PULL),
    group="consumerGroup",
    replica=ReplicaChoice.ANY,
    repeatable=True,
    poll="suspendTimeoutMillis",
    kind=RequestKind.PULL,
    creates=Created.GROUP,
)
_QUEUE = RequestSpec(
    _C.GET_MAX_OFFSET, Action.GET, _fields("topic queueId"), replica=ReplicaChoice.ANY, repeatable=True
)
_LOCK = RequestSpec(_C.LOCK_BATCH_MQ, Action.SUB, topic=None, replica=ReplicaChoice.ACTING_MASTER, repeatable=True)
_CLIENT_TOOL = RequestSpec(
    _C.GET_CONSUMER_RUNNING_INFO,
    Action.GET,
    _fields("consumerGroup clientId"),
    topic=None,
    group="consumerGroup",
    direction=Direction.BOTH,
    tool=True,
    rip55=False,
)
_TOPIC_STATS = _tool(_C.GET_TOPIC_STATS_INFO, Action.GET, "topic", replica=ReplicaChoice.ANY)
_ALL_TOPICS = replace(_TOPIC_STATS, code=_C.GET_ALL_TOPIC_CONFIG, required=frozenset(), topic=None)
_DELETE_TOPIC = replace(
    _TOPIC_STATS, code=_C.DELETE_TOPIC_IN_BROKER, action=Action.DELETE, replica=ReplicaChoice.MASTER
)

_ROWS = (
    # Sending.
    _SEND_MESSAGE,
    _SEND_MESSAGE_V2,
    replace(_SEND_MESSAGE_V2, code=_C.SEND_BATCH_MESSAGE),
    RequestSpec(
        _C.CONSUMER_SEND_MSG_BACK,
        Action.SUB,
        _fields("offset group delayLevel"),
        topic="originTopic",
        group="group",
        replica=ReplicaChoice.ACTING_MASTER,
        kind=RequestKind.SEND_BACK,
        creates=Created.GROUP,
    ),
    RequestSpec(
        _C.END_TRANSACTION,
        Action.PUB,
        _fields("producerGroup tranStateTableOffset commitLogOffset commitOrRollback"),
        group="producerGroup",
    ),
    RequestSpec(_C.RECALL_MESSAGE, Action.PUB, _fields("topic recallHandle"), group="producerGroup", rip55=False),
    _reply(_SEND_MESSAGE, _C.SEND_REPLY_MESSAGE),
    _reply(_SEND_MESSAGE_V2, _C.SEND_REPLY_MESSAGE_V2),
    # Pulling.
    _PULL_MESSAGE,
    replace(_PULL_MESSAGE, code=_C.LITE_PULL_MESSAGE),
    # Offsets.
    RequestSpec(
        _C.QUERY_CONSUMER_OFFSET,
        Action.GET,
        _fields("consumerGroup topic queueId"),
        group="consumerGroup",
        replica=ReplicaChoice.ANY,
        repeatable=True,
    ),
    RequestSpec(
        _C.UPDATE_CONSUMER_OFFSET,
        Action.UPDATE,
        _fields("consumerGroup topic queueId commitOffset"),
        group="consumerGroup",
        replica=ReplicaChoice.ANY,
        repeatable=True,
        kind=RequestKind.COMMIT,
    ),
    replace(_QUEUE, code=_C.SEARCH_OFFSET_BY_TIMESTAMP, required=_fields("topic queueId timestamp")),
    _QUEUE,
    replace(_QUEUE, code=_C.GET_MIN_OFFSET),
    replace(_QUEUE, code=_C.GET_EARLIEST_MSG_STORETIME),
    # Popping. The master, or the slave that acts as master, keeps the checkpoints.
    RequestSpec(
        _C.POP_MESSAGE,
        Action.SUB,
        _fields("consumerGroup topic queueId maxMsgNums invisibleTime pollTime initMode"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        poll="pollTime",
        kind=RequestKind.POP,
        creates=Created.GROUP,
    ),
    RequestSpec(
        _C.ACK_MESSAGE,
        Action.SUB,
        _fields("consumerGroup topic queueId extraInfo offset"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        repeatable=True,
        kind=RequestKind.ACK,
    ),
    RequestSpec(
        _C.BATCH_ACK_MESSAGE,
        Action.SUB,
        topic=None,
        replica=ReplicaChoice.ACTING_MASTER,
        repeatable=True,
        kind=RequestKind.ACK,
        rip55=False,
    ),
    RequestSpec(
        _C.PEEK_MESSAGE,
        Action.SUB,
        _fields("consumerGroup topic queueId maxMsgNums"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        repeatable=True,
        kind=RequestKind.PEEK,
    ),
    RequestSpec(
        _C.CHANGE_MESSAGE_INVISIBLETIME,
        Action.SUB,
        _fields("consumerGroup topic queueId extraInfo offset invisibleTime"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        kind=RequestKind.CHANGE_INVISIBLE,
    ),
    RequestSpec(
        _C.NOTIFICATION,
        Action.SUB,
        _fields("consumerGroup topic queueId pollTime"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        repeatable=True,
        poll="pollTime",
    ),
    RequestSpec(
        _C.POLLING_INFO,
        Action.GET,
        _fields("consumerGroup topic queueId"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        repeatable=True,
    ),
    # Lite topics (RIP-83), for brokers from 5.5 on. Deliveries are acknowledged like popped ones.
    RequestSpec(
        _C.POP_LITE_MESSAGE,
        Action.SUB,
        _fields("clientId consumerGroup topic maxMsgNum invisibleTime pollTime"),
        group="consumerGroup",
        replica=ReplicaChoice.ACTING_MASTER,
        poll="pollTime",
        kind=RequestKind.POP,
        creates=Created.GROUP,
        rip55=False,
    ),
    RequestSpec(
        _C.LITE_SUBSCRIPTION_CTL,
        Action.SUB,
        topic=None,
        replica=ReplicaChoice.ACTING_MASTER,
        repeatable=True,
        member=True,
        rip55=False,
    ),
    # Clients and groups.
    RequestSpec(_C.HEART_BEAT, Action.SUB, topic=None, repeatable=True),
    RequestSpec(_C.UNREGISTER_CLIENT, Action.SUB, _fields("clientID"), topic=None, repeatable=True),
    RequestSpec(
        _C.CHECK_CLIENT_CONFIG, Action.SUB, topic=None, replica=ReplicaChoice.ANY, repeatable=True, rip55=False
    ),
    RequestSpec(
        _C.GET_CONSUMER_LIST_BY_GROUP,
        Action.GET,
        _fields("consumerGroup"),
        topic=None,
        group="consumerGroup",
        replica=ReplicaChoice.ANY,
        repeatable=True,
    ),
    RequestSpec(
        _C.GET_CONSUMER_CONNECTION_LIST,
        Action.GET,
        _fields("consumerGroup"),
        topic=None,
        group="consumerGroup",
        replica=ReplicaChoice.ANY,
        repeatable=True,
        rip55=False,
    ),
    _LOCK,
    replace(_LOCK, code=_C.UNLOCK_BATCH_MQ),
    RequestSpec(_C.QUERY_ASSIGNMENT, Action.SUB, topic=None, replica=ReplicaChoice.ANY, repeatable=True, rip55=False),
    # Routes.
    RequestSpec(_C.GET_ROUTEINFO_BY_TOPIC, Action.GET, _fields("topic"), repeatable=True),
    _tool(_C.GET_BROKER_CLUSTER_INFO, Action.GET, topic=None),
    # Message look-ups.
    RequestSpec(
        _C.QUERY_MESSAGE,
        Action.GET,
        _fields("topic key maxNum beginTimestamp endTimestamp"),
        replica=ReplicaChoice.ANY,
        repeatable=True,
        kind=RequestKind.LOOKUP,
        rip55=False,
    ),
    RequestSpec(
        _C.VIEW_MESSAGE_BY_ID,
        Action.GET,
        _fields("offset"),
        replica=ReplicaChoice.ANY,
        repeatable=True,
        kind=RequestKind.LOOKUP,
        rip55=False,
    ),
    # Administration of topics and groups by operators' tools.
    _ALL_TOPICS,
    _TOPIC_STATS,
    _tool(
        _C.UPDATE_AND_CREATE_TOPIC,
        Action.CREATE,
        "topic defaultTopic readQueueNums writeQueueNums perm topicFilterType",
    ),
    _DELETE_TOPIC,
    replace(_DELETE_TOPIC, code=_C.DELETE_TOPIC_IN_NAMESRV),
    replace(_ALL_TOPICS, code=_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    replace(_TOPIC_STATS, code=_C.GET_TOPIC_CONFIG),
    _tool(_C.GET_SUBSCRIPTIONGROUP_CONFIG, Action.GET, "group", topic=None, group="group", replica=ReplicaChoice.ANY),
    _tool(_C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Action.CREATE, topic=None),
    _tool(_C.DELETE_SUBSCRIPTIONGROUP, Action.DELETE, "groupName", topic=None, group="groupName"),
    _tool(_C.GET_CONSUME_STATS, Action.GET, "consumerGroup", topic=None, group="consumerGroup"),
    _tool(_C.INVOKE_BROKER_TO_RESET_OFFSET, Action.UPDATE, "topic group timestamp isForce", group="group"),
    _tool(_C.VIEW_BROKER_STATS_DATA, Action.GET, "statsName statsKey", topic=None),
    # Users and ACLs that the brokers keep (ACL 2.0).
    _auth(_C.AUTH_CREATE_USER, Action.CREATE, "username"),
    _auth(_C.AUTH_UPDATE_USER, Action.UPDATE, "username"),
    _auth(_C.AUTH_DELETE_USER, Action.DELETE, "username"),
    # The responses have passwords, with which everything can be changed.
    _auth(_C.AUTH_GET_USER, Action.UPDATE, "username"),
    _auth(_C.AUTH_LIST_USER, Action.UPDATE),
    _auth(_C.AUTH_CREATE_ACL, Action.CREATE, "subject"),
    _auth(_C.AUTH_UPDATE_ACL, Action.UPDATE, "subject"),
    _auth(_C.AUTH_DELETE_ACL, Action.DELETE, "subject"),
    _auth(_C.AUTH_GET_ACL, Action.GET, "subject"),
    _auth(_C.AUTH_LIST_ACL, Action.GET),
    # Requests from brokers to clients; tools send some of them too.
    RequestSpec(
        _C.CHECK_TRANSACTION_STATE,
        Action.ANY,
        _fields("tranStateTableOffset commitLogOffset"),
        direction=Direction.BROKER,
    ),
    RequestSpec(
        _C.NOTIFY_CONSUMER_IDS_CHANGED,
        Action.ANY,
        _fields("consumerGroup"),
        topic=None,
        group="consumerGroup",
        direction=Direction.BROKER,
        rip55=False,
    ),
    RequestSpec(
        _C.RESET_CONSUMER_CLIENT_OFFSET,
        Action.ANY,
        _fields("topic group"),
        group="group",
        direction=Direction.BROKER,
        rip55=False,
    ),
    RequestSpec(
        _C.GET_CONSUMER_STATUS_FROM_CLIENT,
        Action.ANY,
        _fields("topic group"),
        group="group",
        direction=Direction.BROKER,
        rip55=False,
    ),
    RequestSpec(
        _C.PUSH_REPLY_MESSAGE_TO_CLIENT,
        Action.ANY,
        _fields("producerGroup topic"),
        group="producerGroup",
        direction=Direction.BROKER,
        rip55=False,
    ),
    RequestSpec(
        _C.NOTIFY_UNSUBSCRIBE_LITE,
        Action.ANY,
        _fields("clientId liteTopic"),
        topic=None,
        group="consumerGroup",
        direction=Direction.BROKER,
        rip55=False,
    ),
    _CLIENT_TOOL,
    replace(_CLIENT_TOOL, code=_C.CONSUME_MESSAGE_DIRECTLY, action=Action.UPDATE, topic="topic", rip55=True),
)

_INTERNAL_ROWS = (
    RequestSpec(_C.GET_BROKER_CONFIG, Action.GET, topic=None, repeatable=True, rip55=False),
    RequestSpec(_C.QUERY_TOPIC_CONSUME_BY_WHO, Action.GET, repeatable=True, rip55=False),
    RequestSpec(_C.QUERY_TOPICS_BY_CONSUMER, Action.GET, topic=None, group="group", repeatable=True, rip55=False),
    RequestSpec(_C.QUERY_CONSUME_TIME_SPAN, Action.GET, group="group", repeatable=True, rip55=False),
)

# Rows of the requests that are served.
REQUESTS: Mapping[int, RequestSpec] = {int(row.code): row for row in _ROWS}
# Rows of the requests that Gantry itself sends, and beside it tools only.
INTERNAL_REQUESTS: Mapping[int, RequestSpec] = {int(row.code): row for row in _INTERNAL_ROWS}
# Names of the ext fields of the requests that send a message, by request code.
SEND_FIELD_NAMES: Mapping[int, SendFieldNames] = {int(row.code): row.send for row in _ROWS if row.send is not None}


def codes_of(*kinds: RequestKind) -> frozenset[int]:
    """Return the request codes of these kinds."""
    return frozenset(int(row.code) for row in _ROWS if row.kind in kinds)


PULLS: Final = codes_of(RequestKind.PULL)
POPS: Final = codes_of(RequestKind.POP)
# Requests whose replies carry messages to consumers, and those of them that consume.
RECEIVES: Final = codes_of(RequestKind.PULL, RequestKind.POP, RequestKind.PEEK)
DELIVERIES: Final = PULLS | POPS
# Requests that carry messages to brokers.
SENDS: Final = codes_of(RequestKind.SEND, RequestKind.REPLY)
# Requests after which brokers do not deliver messages again, or not at once.
SETTLEMENTS: Final = codes_of(RequestKind.ACK, RequestKind.CHANGE_INVISIBLE, RequestKind.SEND_BACK, RequestKind.COMMIT)


def request_spec(code: int) -> RequestSpec:
    """Return the row of a request that Gantry sends, served or internal."""
    return REQUESTS[code] if code in REQUESTS else INTERNAL_REQUESTS[code]
