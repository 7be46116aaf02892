"""PULL_MESSAGE and LITE_PULL_MESSAGE, with long polling (RocketMQ's PullMessageProcessor)."""

from contextlib import suppress

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Forbidden, ForbiddenType
from proxy.embedded.broker.filters import Filter, Subscription, build
from proxy.embedded.broker.groups import Group
from proxy.embedded.broker.long_polls import Held
from proxy.embedded.broker.queues import LARGEST_READ, Fetched, Status, fetch
from proxy.embedded.broker.request import Answer, Refused, Request
from proxy.embedded.broker.sending import known_group
from proxy.embedded.broker.topics import Topic
from proxy.embedded.store import StorageError
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import BodyError, InvalidRequest
from remoting.messages import PullSysFlag

# There are no names for these two in the list of response codes in use.
_FILTER_DATA_NOT_EXIST = 27

_CODES = {
    Status.FOUND: ResponseCode.SUCCESS,
    Status.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


def pull(broker: Broker, request: Request) -> Answer:
    """The messages of a queue from an offset on; waits for one where there is none and the client wants it."""
    group = consuming_group(broker, request)
    topic = readable_topic(broker, request)
    queue_id, offset = request.number("queueId"), request.number("queueOffset")
    count, sys_flag = request.number("maxMsgNums"), request.number("sysFlag")
    wait = request.number("suspendTimeoutMillis", 0) if sys_flag & PullSysFlag.SUSPEND else 0
    commit = request.number("commitOffset", 0)
    if not 0 <= queue_id < topic.read:
        raise InvalidRequest(f"topic {topic.name} has {topic.read} queues to read from, not one of id {queue_id}")
    wanted = _filter(broker, request, group, topic.name, sys_flag)
    found = _read(broker, request, group, topic, queue_id, offset, count, wanted)
    code = _code(found.status, offset)
    if sys_flag & PullSysFlag.COMMIT_OFFSET and not request.resumed:
        # A full disk is no reason why a group could not read; it commits again.
        with suppress(StorageError):
            broker.offsets.commit(topic.name, group.name, queue_id, commit)
    if code == ResponseCode.PULL_NOT_FOUND and not request.resumed and sys_flag & PullSysFlag.SUSPEND:
        held = Held(request, request.now + wait, broker.future(), code, wanted, offset)
        broker.pulls.add((topic.name, queue_id), held)
        return held.reply
    broker.offsets.pulled(topic.name, group.name, queue_id, found.next_offset)
    broker.counts["got"] += len(found.records)
    return commands.response(code, _fields(found, topic, group), b"".join(found.records), found.status)


def consuming_group(broker: Broker, request: Request) -> Group:
    """The consumer group of a request, which may consume. Raises Refused."""
    group = known_group(broker, request.text("consumerGroup"))
    if not group.enabled:
        raise Forbidden(ForbiddenType.GROUP, f"consumer group {group.name} may not consume")
    return group


def readable_topic(broker: Broker, request: Request) -> Topic:
    """The topic of a request, which may be read. Raises Refused."""
    topic = existing_topic(broker, request.text("topic"))
    if not topic.readable:
        raise Forbidden(ForbiddenType.TOPIC, f"topic {topic.name} may not be read")
    return topic


def existing_topic(broker: Broker, name: str) -> Topic:
    """A topic. Raises Refused."""
    topic = broker.topics.get(name)
    if topic is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist: create it first")
    return topic


def _filter(broker: Broker, request: Request, group: Group, topic: str, sys_flag: int) -> Filter | None:
    if sys_flag & PullSysFlag.SUBSCRIPTION:
        try:
            return build(request.fields.get("subscription"), request.fields.get("expressionType"))
        except BodyError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    subscription = _subscription(broker, request, group, topic)
    if subscription.broken is not None:
        code = ResponseCode.SUBSCRIPTION_PARSE_FAILED if subscription.by_tag else _FILTER_DATA_NOT_EXIST
        raise Refused(code, subscription.broken)
    return subscription.filter


def _subscription(broker: Broker, request: Request, group: Group, topic: str) -> Subscription:
    """What the group's heartbeats said."""
    consumers = broker.members.consumers.get(group.name)
    if consumers is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"nobody is in consumer group {group.name}")
    if consumers.broadcasting and not group.broadcast_enabled:
        raise Forbidden(ForbiddenType.BROADCASTING, f"consumer group {group.name} may not consume by broadcast")
    subscription = consumers.subscriptions.get(topic)
    if subscription is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {group.name} does not subscribe to topic {topic}")
    if subscription.version < request.number("subVersion", 0):
        raise Refused(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, f"group {group.name}'s subscription to {topic} is not the latest"
        )
    return subscription


def _read(
    broker: Broker,
    request: Request,
    group: Group,
    topic: Topic,
    queue_id: int,
    offset: int,
    count: int,
    wanted: Filter | None,
) -> Fetched:
    if broker.settings.server_side_reset:
        reset = broker.offsets.take_reset(topic.name, group.name, queue_id)
        if reset is not None:
            return Fetched(Status.OFFSET_RESET, reset, *broker.store.bounds(topic.name, queue_id))
    size = request.number("maxMsgBytes", 0)
    return fetch(broker.store, topic.name, queue_id, offset, count, wanted, size if size > 0 else LARGEST_READ)


def _code(status: Status, offset: int) -> ResponseCode:
    # A queue without messages is just empty, unless the client has been further.
    empty = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES.get(status, empty)


def _fields(found: Fetched, topic: Topic, group: Group) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(group.broker_id),
        "nextBeginOffset": str(found.next_offset),
        "minOffset": str(found.least),
        "maxOffset": str(found.most),
        "topicSysFlag": str(topic.sys_flag),
        "groupSysFlag": str(group.sys_flag),
    }
