"""The request table: everything that is known about each request code, once.

Validation, routing, retries, timeouts, metric labels, authorisation and the docs read this table;
adding a request code is adding a row (and, where it is more than forwarding, a handler in
`proxy.core.handlers`). The list is RIP-55's 27 codes (`rip55`) and those which its clients and tools
need besides.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from remoting.codes import RequestCode


class Direction(StrEnum):
    """Who sends a request."""

    CLIENT = "client"  # a client or tool, to us
    BROKER = "broker"  # a broker, for us to relay to a client
    BOTH = "both"


class Action(StrEnum):
    """What a request does to its topic and group, in the words of RocketMQ's ACL 2.0."""

    PUB = "Pub"
    SUB = "Sub"
    GET = "Get"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    ANY = "Any"


class Replica(StrEnum):
    """Which brokers of a broker name may serve a request."""

    MASTER = "master"
    ANY = "any"  # a slave too, where the master is gone or has pointed the client there
    ESCAPE = "escape"  # the master; where there is none, a slave that acts as master


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request code.

    topic, group, broker name the ext fields that hold them (None: there is none). required are the
    ext fields without which the request is refused. poll names the ext field with the milliseconds
    which a broker may hold the request. repeatable requests may be sent again when a connection was
    lost before the answer; all others might then happen twice. member requests go the way of the
    client's heartbeats: brokers will have more to say to it later, and say it there. tool requests come
    from operators' tools alone, and may be switched off (`tools`).
    """

    code: RequestCode
    action: Action
    required: frozenset[str] = frozenset()
    topic: str | None = "topic"
    group: str | None = None
    broker: str = "bname"
    direction: Direction = Direction.CLIENT
    replica: Replica = Replica.MASTER
    repeatable: bool = False
    member: bool = False
    poll: str | None = None
    tool: bool = False
    rip55: bool = True

    # The code's name, as metrics and logs show it.
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.code.name)


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


_C = RequestCode
_SEND = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag"
_PULL = "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion"
_SEND_V2 = RequestSpec(_C.SEND_MESSAGE_V2, Action.PUB, _fields("a b e f g h"), topic="b", group="a", broker="n")
_PULL_MESSAGE = RequestSpec(
    _C.PULL_MESSAGE,
    Action.SUB,
    _fields(_PULL),
    group="consumerGroup",
    replica=Replica.ANY,
    repeatable=True,
    poll="suspendTimeoutMillis",
)
_QUEUE = RequestSpec(_C.GET_MAX_OFFSET, Action.GET, _fields("topic queueId"), replica=Replica.ANY, repeatable=True)
_LOCK = RequestSpec(_C.LOCK_BATCH_MQ, Action.SUB, topic=None, replica=Replica.ESCAPE, repeatable=True)
_CLIENT_TOOL = RequestSpec(
    _C.GET_CONSUMER_RUNNING_INFO,
    Action.GET,
    _fields("consumerGroup clientId"),
    topic=None,
    group="consumerGroup",
    direction=Direction.BOTH,
    rip55=False,
)
_TOPIC_STATS = RequestSpec(
    _C.GET_TOPIC_STATS_INFO,
    Action.GET,
    _fields("topic"),
    replica=Replica.ANY,
    repeatable=True,
    tool=True,
    rip55=False,
)
_ALL_TOPICS = replace(_TOPIC_STATS, code=_C.GET_ALL_TOPIC_CONFIG, required=frozenset(), topic=None)
_DELETE_TOPIC = replace(_TOPIC_STATS, code=_C.DELETE_TOPIC_IN_BROKER, action=Action.DELETE, replica=Replica.MASTER)

_ROWS = (
    # Sending.
    RequestSpec(_C.SEND_MESSAGE, Action.PUB, _fields(_SEND), group="producerGroup"),
    _SEND_V2,
    replace(_SEND_V2, code=_C.SEND_BATCH_MESSAGE),
    RequestSpec(
        _C.CONSUMER_SEND_MSG_BACK,
        Action.SUB,
        _fields("offset group delayLevel"),
        topic="originTopic",
        group="group",
        replica=Replica.ESCAPE,
    ),
    RequestSpec(
        _C.END_TRANSACTION,
        Action.PUB,
        _fields("producerGroup tranStateTableOffset commitLogOffset commitOrRollback"),
        group="producerGroup",
        repeatable=True,
    ),
    RequestSpec(_C.RECALL_MESSAGE, Action.PUB, _fields("topic recallHandle"), group="producerGroup", rip55=False),
    RequestSpec(_C.SEND_REPLY_MESSAGE, Action.PUB, _fields(_SEND), group="producerGroup", rip55=False),
    replace(_SEND_V2, code=_C.SEND_REPLY_MESSAGE_V2, rip55=False),
    # Pulling.
    _PULL_MESSAGE,
    replace(_PULL_MESSAGE, code=_C.LITE_PULL_MESSAGE),
    # Offsets.
    RequestSpec(
        _C.QUERY_CONSUMER_OFFSET,
        Action.GET,
        _fields("consumerGroup topic queueId"),
        group="consumerGroup",
        replica=Replica.ANY,
        repeatable=True,
    ),
    RequestSpec(
        _C.UPDATE_CONSUMER_OFFSET,
        Action.UPDATE,
        _fields("consumerGroup topic queueId commitOffset"),
        group="consumerGroup",
        replica=Replica.ANY,
        repeatable=True,
    ),
    replace(_QUEUE, code=_C.SEARCH_OFFSET_BY_TIMESTAMP, required=_fields("topic queueId timestamp")),
    _QUEUE,
    replace(_QUEUE, code=_C.GET_MIN_OFFSET),
    replace(_QUEUE, code=_C.GET_EARLIEST_MSG_STORETIME),
    # Popping. Checkpoints are kept by the master, or by the slave that acts as such.
    RequestSpec(
        _C.POP_MESSAGE,
        Action.SUB,
        _fields("consumerGroup topic queueId maxMsgNums invisibleTime pollTime initMode"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
        poll="pollTime",
    ),
    RequestSpec(
        _C.ACK_MESSAGE,
        Action.SUB,
        _fields("consumerGroup topic queueId extraInfo offset"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
        repeatable=True,
    ),
    RequestSpec(_C.BATCH_ACK_MESSAGE, Action.SUB, topic=None, replica=Replica.ESCAPE, repeatable=True, rip55=False),
    RequestSpec(
        _C.PEEK_MESSAGE,
        Action.SUB,
        _fields("consumerGroup topic queueId maxMsgNums"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
        repeatable=True,
    ),
    RequestSpec(
        _C.CHANGE_MESSAGE_INVISIBLETIME,
        Action.SUB,
        _fields("consumerGroup topic queueId extraInfo offset invisibleTime"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
    ),
    RequestSpec(
        _C.NOTIFICATION,
        Action.SUB,
        _fields("consumerGroup topic queueId pollTime"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
        repeatable=True,
        poll="pollTime",
    ),
    RequestSpec(
        _C.POLLING_INFO,
        Action.GET,
        _fields("consumerGroup topic queueId"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
        repeatable=True,
    ),
    # Lite topics (RIP-83), brokers from 5.5 on. Deliveries are settled as popped ones are.
    RequestSpec(
        _C.POP_LITE_MESSAGE,
        Action.SUB,
        _fields("clientId consumerGroup topic maxMsgNum invisibleTime pollTime"),
        group="consumerGroup",
        replica=Replica.ESCAPE,
        poll="pollTime",
        rip55=False,
    ),
    RequestSpec(
        _C.LITE_SUBSCRIPTION_CTL,
        Action.SUB,
        topic=None,
        replica=Replica.ESCAPE,
        repeatable=True,
        member=True,
        rip55=False,
    ),
    # Clients and groups.
    RequestSpec(_C.HEART_BEAT, Action.SUB, topic=None, repeatable=True),
    RequestSpec(_C.UNREGISTER_CLIENT, Action.SUB, _fields("clientID"), topic=None, repeatable=True),
    RequestSpec(_C.CHECK_CLIENT_CONFIG, Action.SUB, topic=None, replica=Replica.ANY, repeatable=True, rip55=False),
    RequestSpec(
        _C.GET_CONSUMER_LIST_BY_GROUP,
        Action.GET,
        _fields("consumerGroup"),
        topic=None,
        group="consumerGroup",
        replica=Replica.ANY,
        repeatable=True,
    ),
    RequestSpec(
        _C.GET_CONSUMER_CONNECTION_LIST,
        Action.GET,
        _fields("consumerGroup"),
        topic=None,
        group="consumerGroup",
        replica=Replica.ANY,
        repeatable=True,
        rip55=False,
    ),
    _LOCK,
    replace(_LOCK, code=_C.UNLOCK_BATCH_MQ),
    RequestSpec(_C.QUERY_ASSIGNMENT, Action.SUB, topic=None, replica=Replica.ANY, repeatable=True, rip55=False),
    # Routes.
    RequestSpec(_C.GET_ROUTEINFO_BY_TOPIC, Action.GET, _fields("topic"), repeatable=True),
    # Looking up messages.
    RequestSpec(
        _C.QUERY_MESSAGE,
        Action.GET,
        _fields("topic key maxNum beginTimestamp endTimestamp"),
        replica=Replica.ANY,
        repeatable=True,
        rip55=False,
    ),
    RequestSpec(
        _C.VIEW_MESSAGE_BY_ID,
        Action.GET,
        _fields("offset"),
        replica=Replica.ANY,
        repeatable=True,
        rip55=False,
    ),
    # What operators' tools ask of brokers about topics and groups, or have them do.
    _ALL_TOPICS,
    _TOPIC_STATS,
    RequestSpec(
        _C.UPDATE_AND_CREATE_TOPIC,
        Action.CREATE,
        _fields("topic defaultTopic readQueueNums writeQueueNums perm topicFilterType"),
        repeatable=True,
        tool=True,
        rip55=False,
    ),
    _DELETE_TOPIC,
    replace(_DELETE_TOPIC, code=_C.DELETE_TOPIC_IN_NAMESRV),
    replace(_ALL_TOPICS, code=_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    RequestSpec(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Action.CREATE,
        topic=None,
        repeatable=True,
        tool=True,
        rip55=False,
    ),
    RequestSpec(
        _C.GET_CONSUME_STATS,
        Action.GET,
        _fields("consumerGroup"),
        topic=None,
        group="consumerGroup",
        repeatable=True,
        tool=True,
        rip55=False,
    ),
    RequestSpec(
        _C.INVOKE_BROKER_TO_RESET_OFFSET,
        Action.UPDATE,
        _fields("topic group timestamp isForce"),
        group="group",
        repeatable=True,
        tool=True,
        rip55=False,
    ),
    # What brokers ask of clients, and, where tools do too, tools through us.
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
    replace(_CLIENT_TOOL, code=_C.CONSUME_MESSAGE_DIRECTLY, rip55=True),
)

REQUESTS: dict[int, RequestSpec] = {int(row.code): row for row in _ROWS}
