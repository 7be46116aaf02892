"""The permissions that a request needs, from its row in the request table, its ext fields and its body."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from remoting import properties
from remoting.batch_flag import may_be_batch
from remoting.codes import RequestCode
from remoting.errors import BodyError
from remoting.json_names import collect_names
from remoting.messages import iterate_batch
from remoting.names import DEFAULT_TOPIC, popped_topic
from remoting.permissions import (
    STACKS_FIELD,
    Action,
    BodyFormat,
    Need,
    Needs,
    Permission,
    ResourceKind,
    requests_stacks,
)
from remoting.requests import RequestSpec

# Bodies up to this size are parsed once and remembered: clients repeat their heartbeats and locks.
_MAX_REMEMBERED = 8 * 1024


class _BodyNeeds(NamedTuple):
    """Actions on the topics and groups of a body. required: kinds of which it must name at least one."""

    topics: tuple[Action, ...]
    groups: tuple[Action, ...]
    required: tuple[ResourceKind, ...] = (ResourceKind.GROUP,)


_SUB = (Action.SUB,)
# As QUERY_CONSUMER_OFFSET needs them.
_READ_OFFSETS = (Action.SUB, Action.GET)
_BOTH = (ResourceKind.TOPIC, ResourceKind.GROUP)
_BODIES = {
    BodyFormat.HEARTBEAT: _BodyNeeds(_SUB, _SUB, ()),
    BodyFormat.BATCH_ACK: _BodyNeeds(_SUB, _SUB, _BOTH),
    BodyFormat.LITE_SUBSCRIPTION: _BodyNeeds(_SUB, _SUB, _BOTH),
    BodyFormat.CHECK_CLIENT: _BodyNeeds(_SUB, _SUB, _BOTH),
    BodyFormat.QUEUE_LOCKS: _BodyNeeds(_SUB, _SUB),
    BodyFormat.ASSIGNMENT: _BodyNeeds(_SUB, _SUB, _BOTH),
    BodyFormat.GROUP_CONFIG: _BodyNeeds((), (Action.CREATE,)),
}
_PUB = (Action.PUB,)
# A message for unknown queues may be for those of internal topics, for which Pub on all topics does not suffice.
_ALL_QUEUES = (
    Permission(ResourceKind.TOPIC, "", _PUB),
    Permission(ResourceKind.CLUSTER, "", (Action.UPDATE,)),
)
_QUEUE_SEPARATOR = ","
# The beginnings of properties, with their separator, in the body of a batch.
_MULTI_DISPATCH = f"{properties.INNER_MULTI_DISPATCH}\x01".encode()
_TIMER_DELETION = f"{properties.TIMER_DEL_UNIQKEY}\x01".encode()
_RETRY_TOPIC = f"{properties.RETRY_TOPIC}\x01".encode()
_EITHER = (Action.PUB, Action.SUB)
# The groups of producers need no permission: sending to a topic does.
_PRODUCERS = "producerdataset"


def permissions(spec: RequestSpec, fields: dict[str, str], body: bytes) -> Iterator[Permission]:
    """Yield the permissions that a request needs. Raises BodyError if its body cannot be read.

    A request without an entry in the table, which only tools send, needs its action on the topic and the group that it
    names, or on the cluster, and needs to read the group that it copies from.
    """
    needs = _derived(spec) if spec.needs is None else spec.needs
    group = next((fields.get(need.field or "", "") for need in needs.fields if need.kind is ResourceKind.GROUP), "")
    for need in needs.fields:
        for name in need.names(fields):
            if spec.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and name == DEFAULT_TOPIC:
                # Every producer of a topic that does not exist yet asks for it; it has no messages.
                continue
            # The group's own permission is checked as well. A pop retry topic could also be the retry topic of another
            # group, `group_topic`: a client with permissions on the group and on the topic is not stopped by that.
            yield Permission(need.kind, popped_topic(name, group), _actions(need, fields))
    if needs.body is not None:
        read = _remembered if len(body) <= _MAX_REMEMBERED else _read
        yield from read(needs.body, body)
    if spec.send is not None:
        yield from of_properties(fields.get(spec.send.properties, ""))
        yield from _of_batch(spec, fields, body)


def depend_on_names(spec: RequestSpec, fields: dict[str, str], body: bytes) -> bool:
    """Return whether the permissions depend on the names in `spec.need_fields` alone."""
    if spec.needs is None or spec.needs.body is not None or STACKS_FIELD in fields:
        return False
    if len(spec.needs.fields) > len(spec.need_fields):
        # The fields name the resources of the first two needs only.
        return False
    if spec.send is None:
        return True
    text = fields.get(spec.send.properties, "")
    if (
        properties.INNER_MULTI_DISPATCH in text
        or properties.TIMER_DEL_UNIQKEY in text
        or properties.RETRY_TOPIC in text
    ):
        return False
    return not _of_batch(spec, fields, body)


def _of_batch(spec: RequestSpec, fields: dict[str, str], body: bytes) -> tuple[Permission, ...]:
    """Return the permissions that a batch needs because its messages affect other topics, as only forged ones do.

    The batch is not parsed: brokers read negative lengths in it otherwise than we do. They remove a delayed message
    when they store one of the batch again, after a delivery that was not acknowledged (PopReviveService.reviveRetry).
    Only RETRY_TOPIC is also in messages that a program forwards.
    """
    if not may_be_batch(spec.code, fields):
        return ()
    if _MULTI_DISPATCH in body:
        return _ALL_QUEUES
    if _TIMER_DELETION in body:
        return _ALL_QUEUES[:1]
    return _of_retries(body) if _RETRY_TOPIC in body else ()


def _of_retries(batch: bytes) -> tuple[Permission, ...]:
    """Return the permissions for RETRY_TOPIC in the messages of a batch, on all topics if it cannot be parsed."""
    try:
        names = {properties.get(message.properties, properties.RETRY_TOPIC) for message in iterate_batch(batch)}
    except BodyError:
        return _ALL_QUEUES[:1]
    return tuple(Permission(ResourceKind.TOPIC, name, _EITHER) for name in sorted(filter(None, names)))


def of_properties(text: str) -> Iterator[Permission]:
    """Yield the permissions that a message needs because its properties affect other topics.

    A broker also puts a message into the queues that INNER_MULTI_DISPATCH names, and removes the delayed message that
    TIMER_DEL_UNIQKEY names, of any topic. Official clients send RECALL_MESSAGE instead.

    After a first delivery has failed, the message comes to its consumers as one of the topic that RETRY_TOPIC names:
    brokers keep it where a message has it (AbstractSendMessageProcessor.consumerSendMsgBack), and clients read the
    topic of a retry from it (DefaultMQPushConsumerImpl.resetRetryAndNamespace). Consumers write it when they send a
    message back by themselves, and programs that forward a message with all its properties, which have received it.
    """
    if (queues := properties.get(text, properties.INNER_MULTI_DISPATCH)) is not None:
        for name in queues.split(_QUEUE_SEPARATOR):
            yield Permission(ResourceKind.TOPIC, name.strip(), _PUB)
    if properties.get(text, properties.TIMER_DEL_UNIQKEY) is not None:
        yield Permission(ResourceKind.TOPIC, "", _PUB)
    if (topic := properties.get(text, properties.RETRY_TOPIC)) is not None:
        yield Permission(ResourceKind.TOPIC, topic, _EITHER)


@lru_cache(None)
def _derived(spec: RequestSpec) -> Needs:
    actions = (Action.GET, Action.LIST) if spec.action is Action.GET else (spec.action,)
    needs = [
        Need(kind, field, actions)
        for kind, field in ((ResourceKind.TOPIC, spec.topic), (ResourceKind.GROUP, spec.group))
        if field is not None
    ]
    if spec.source_group is not None:
        needs.append(Need(ResourceKind.GROUP, spec.source_group, _READ_OFFSETS))
    return Needs(tuple(needs) or (Need(ResourceKind.CLUSTER, None, actions),))


def _actions(need: Need, fields: dict[str, str]) -> tuple[Action, ...]:
    return (Action.UPDATE,) if requests_stacks(fields) else need.actions


def _read(body_format: BodyFormat, body: bytes) -> tuple[Permission, ...]:
    needs = _BODIES[body_format]
    topics, groups = collect_names(
        body, body_format is BodyFormat.BATCH_ACK, _PRODUCERS if body_format is BodyFormat.HEARTBEAT else None
    )
    result: list[Permission] = []
    for kind, names, actions in (
        (ResourceKind.TOPIC, topics, needs.topics),
        (ResourceKind.GROUP, groups, needs.groups),
    ):
        if actions:
            result += (Permission(kind, name, actions) for name in names)
        if kind in needs.required and not names:
            result.append(Permission(kind, "", actions))
    return tuple(result)


_remembered = lru_cache(1024)(_read)
