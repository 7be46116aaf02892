"""The body of a heartbeat: HeartbeatData, with the client's groups."""

from dataclasses import dataclass
from typing import Any

import orjson

from proxy.core.client_registry import ConsumerData, Groups
from remoting import fastjson
from remoting.errors import BodyError
from remoting.fastjson import load_object, load_request
from remoting.names import MAX_MEMBER_GROUP_LENGTH, MAX_NAME_LENGTH

# Maximum size of a heartbeat's body, in bytes.
MAX_HEARTBEAT_SIZE = 256 * 1024
# Maximum number of producer and consumer groups of one client.
MAX_GROUPS = 1000
# Maximum number of subscriptions of all consumers of one client. A list to which several groups refer counts for each.
MAX_SUBSCRIPTIONS = 4096
# Names of the enums ConsumeType, MessageModel and ConsumeFromWhere, by ordinal.
_ENUMS = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A client's id and groups; `topics` are the subscriptions of its consumers."""

    client_id: str
    producers: frozenset[str]
    consumers: dict[str, ConsumerData]
    topics: frozenset[str]

    @property
    def groups(self) -> Groups:
        return Groups(self.producers, frozenset(self.consumers))


def parse(body: bytes) -> Heartbeat:
    """Parse HeartbeatData. Raises BodyError that names the invalid field or the exceeded limit."""
    if len(body) > MAX_HEARTBEAT_SIZE:
        raise BodyError(f"a heartbeat of {len(body)} bytes is over the limit of {MAX_HEARTBEAT_SIZE}")
    data = load_request(body)
    client_id = data.get("clientID")
    if not isinstance(client_id, str) or not client_id:
        raise BodyError("a heartbeat has no clientID")
    _check_length("clientID", client_id)
    producer_data, consumer_data = _objects(data, "producerDataSet"), _objects(data, "consumerDataSet")
    check_groups(len(producer_data) + len(consumer_data))
    producers = frozenset(map(_group, producer_data))
    consumers = {_group(item): ConsumerData(_with_enum_names(item)) for item in consumer_data}
    # Before the items are looked at: groups may share one list.
    subscriptions = sum(len(_list(item, "subscriptionDataSet")) for item in consumer_data)
    if subscriptions > MAX_SUBSCRIPTIONS:
        raise BodyError(f"{subscriptions} subscriptions in a heartbeat are over the limit of {MAX_SUBSCRIPTIONS}")
    topics = frozenset(
        str(subscription["topic"])
        for consumer in consumers.values()
        for subscription in _objects(consumer.data, "subscriptionDataSet")
        if subscription.get("topic")
    )
    for topic in topics:
        _check_length("topic", topic)
    return Heartbeat(client_id, producers, consumers, topics)


def _with_enum_names(data: dict[str, Any]) -> dict[str, Any]:
    """Replace the ordinals of enums in ConsumerData, which C++ clients send and fastjson accepts, by the names."""
    for key, names in _ENUMS.items():
        ordinal = data.get(key)
        if type(ordinal) is int and 0 <= ordinal < len(names):
            data[key] = names[ordinal]
    return data


def accepted_groups(body: bytes) -> Groups:
    """Return the groups of a heartbeat that `parse` has accepted; its limits apply to requests only."""
    data = load_object(body)
    return Groups(
        frozenset(map(_group, _objects(data, "producerDataSet"))),
        frozenset(map(_group, _objects(data, "consumerDataSet"))),
    )


def check_groups(count: int) -> None:
    """Raise BodyError if a client may not be in this number of groups."""
    if count > MAX_GROUPS:
        raise BodyError(f"{count} groups of the client of a heartbeat are over the limit of {MAX_GROUPS}")


def without(body: bytes, groups: Groups) -> bytes:
    """Return the body of a heartbeat that `parse` has accepted, without these groups."""
    data = load_object(body)
    removed = {"producerDataSet": groups.producers, "consumerDataSet": groups.consumers}
    for key, names in removed.items():
        data[key] = [item for item in _objects(data, key) if _group(item) not in names]
    try:
        # fastjson's maps with objects as keys are dataclasses here, which orjson would encode as objects.
        return orjson.dumps(data, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return fastjson.dumps(data)


def _list(data: dict[str, Any], key: str) -> list[Any]:
    items = data.get(key) or []
    if not isinstance(items, list):
        raise BodyError(f"a heartbeat's {key} is not a list of objects")
    return items


def _objects(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = _list(data, key)
    if not all(isinstance(item, dict) for item in items):
        raise BodyError(f"a heartbeat's {key} is not a list of objects")
    return items


def _group(data: dict[str, Any]) -> str:
    name = data.get("groupName")
    if not isinstance(name, str) or not name:
        raise BodyError("a heartbeat has a group without a groupName")
    _check_length("groupName", name, MAX_MEMBER_GROUP_LENGTH)
    return name


def _check_length(key: str, name: str, limit: int = MAX_NAME_LENGTH) -> None:
    if len(name) > limit:
        raise BodyError(f"a heartbeat's {key} of {len(name)} characters is over the limit of {limit}")
