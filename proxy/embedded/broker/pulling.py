"""Handler of PULL_MESSAGE and LITE_PULL_MESSAGE, with long polling (RocketMQ's PullMessageProcessor)."""

from contextlib import suppress

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Forbidden, ForbiddenType, Refused
from proxy.embedded.broker.filters import Filter, Subscription, new_filter
from proxy.embedded.broker.groups import Group
from proxy.embedded.broker.long_polls import LongPoll
from proxy.embedded.broker.queues import READ_SIZE, Fetched, Status, fetch
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.sending import known_group
from proxy.embedded.broker.source_share import has_place, source_of_client
from proxy.embedded.broker.topics import Topic
from proxy.embedded.store import StorageError
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import BodyError, InvalidRequest
from remoting.messages import PullSysFlag

# Not a member of ResponseCode.
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

# Messages of a response; RocketMQ's brokers return as many from memory (maxTransferCountOnMessageInMemory).
_MAX_MESSAGES = 32


def pull(broker: Broker, request: Request) -> Answer:
    """PULL_MESSAGE: return the messages of a queue from an offset on; wait for one if the client requests it."""
    group = consuming_group(broker, request)
    topic = readable_topic(broker, request)
    queue_id, offset = request.number("queueId"), request.number("queueOffset")
    count, sys_flag = min(request.number("maxMsgNums"), _MAX_MESSAGES), request.number("sysFlag")
    wait = request.number("suspendTimeoutMillis", 0) if sys_flag & PullSysFlag.SUSPEND else 0
    commit = request.number("commitOffset", 0)
    if not 0 <= queue_id < topic.read:
        raise InvalidRequest(f"topic {topic.name} has {topic.read} queues to read from, but not queue {queue_id}")
    message_filter = _filter(broker, request, group, topic.name, sys_flag)
    fetched = _read(broker, request, group, topic, queue_id, offset, count, message_filter)
    code = _code(fetched.status, offset)
    if sys_flag & PullSysFlag.COMMIT_OFFSET and not request.resumed and broker.offsets.admits(topic.name, group.name):
        # A group can read even if the disk is full; it commits again later.
        with suppress(StorageError):
            broker.offsets.commit(topic.name, group.name, queue_id, commit)
    if code == ResponseCode.PULL_NOT_FOUND and not request.resumed and sys_flag & PullSysFlag.SUSPEND:
        _check_room(broker, request, topic.name, queue_id)
        poll = LongPoll(request, request.now + wait, broker.future(), code, message_filter, offset)
        broker.waiting_pulls.add((topic.name, queue_id), poll)
        return poll.reply
    broker.offsets.set_pulled(topic.name, group.name, queue_id, fetched.next_offset)
    broker.statistics.add_delivered(topic.name, group.name, fetched.records, request.now)
    return commands.response(code, _fields(fetched, topic, group), b"".join(fetched.records), fetched.status)


def _check_room(broker: Broker, request: Request, topic: str, queue_id: int) -> None:
    """Raise Refused if no further pull may wait; clients repeat it seconds later, but an empty response at once."""
    settings, polls, key = broker.settings, broker.waiting_pulls, (topic, queue_id)
    source, waiting = source_of_client(request.channel), polls.count(key)
    own, own_waiting = polls.count_of(source), polls.count_of_key(key, source)
    if not has_place(own, polls.total, settings.max_pulls) or not has_place(
        own_waiting, waiting, settings.max_pulls_per_queue
    ):
        raise Refused(
            ResponseCode.SYSTEM_BUSY,
            f"{polls.total} pulls wait, {waiting} of them for queue {queue_id} of topic {topic}; at most"
            f" {settings.max_pulls} may, and {settings.max_pulls_per_queue} for one queue; {own} and {own_waiting} of"
            " them have your address, which may have twice as many as are left",
        )


def consuming_group(broker: Broker, request: Request) -> Group:
    """Return the consumer group of a request if it may consume. Raises Refused."""
    group = known_group(broker, request.text("consumerGroup"))
    if not group.enabled:
        raise Forbidden(ForbiddenType.GROUP, f"consumer group {group.name} may not consume")
    return group


def readable_topic(broker: Broker, request: Request) -> Topic:
    """Return the topic of a request if it may be read. Raises Refused."""
    topic = existing_topic(broker, request.text("topic"))
    if not topic.readable:
        raise Forbidden(ForbiddenType.TOPIC, f"topic {topic.name} may not be read")
    return topic


def existing_topic(broker: Broker, name: str) -> Topic:
    """Return a topic. Raises Refused if it does not exist."""
    topic = broker.topics.get(name)
    if topic is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist: create it first")
    return topic


def _filter(broker: Broker, request: Request, group: Group, topic: str, sys_flag: int) -> Filter | None:
    if sys_flag & PullSysFlag.SUBSCRIPTION:
        try:
            return new_filter(request.fields.get("subscription"), request.fields.get("expressionType"))
        except BodyError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    subscription = _subscription(broker, request, group, topic)
    if subscription.error is not None:
        code = ResponseCode.SUBSCRIPTION_PARSE_FAILED if subscription.by_tag else _FILTER_DATA_NOT_EXIST
        raise Refused(code, subscription.error)
    return subscription.filter


def _subscription(broker: Broker, request: Request, group: Group, topic: str) -> Subscription:
    """Return the subscription of the group's heartbeats. Raises Refused."""
    consumers = broker.members.consumers.get(group.name)
    if consumers is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"consumer group {group.name} has no members")
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
    message_filter: Filter | None,
) -> Fetched:
    if broker.settings.server_side_reset:
        reset = broker.offsets.take_reset(topic.name, group.name, queue_id)
        if reset is not None:
            return Fetched(Status.OFFSET_RESET, reset, *broker.store.bounds(topic.name, queue_id))
    size = request.number("maxMsgBytes", 0)
    return fetch(broker.store, topic.name, queue_id, offset, count, message_filter, size if size > 0 else READ_SIZE)


def _code(status: Status, offset: int) -> ResponseCode:
    # A queue without messages is empty, unless the client's offset is beyond its start.
    empty = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES.get(status, empty)


def _fields(fetched: Fetched, topic: Topic, group: Group) -> dict[str, str]:
    return {
        # There are no slaves to which a group's `brokerId` could direct clients.
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(fetched.next_offset),
        "minOffset": str(fetched.min_offset),
        "maxOffset": str(fetched.max_offset),
        "topicSysFlag": str(topic.sys_flag),
        "groupSysFlag": str(group.sys_flag),
    }
