"""The body of a heartbeat: HeartbeatData, with the client's groups."""

from dataclasses import dataclass
from typing import Any

import orjson

from proxy.core.client_registry import ConsumerData, Groups
from remoting import fastjson
from remoting.errors import BodyError
from remoting.fastjson import load_object


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
    """Parse HeartbeatData. Raises BodyError that names the invalid field."""
    data = load_object(body)
    client_id = data.get("clientID")
    if not isinstance(client_id, str) or not client_id:
        raise BodyError("a heartbeat has no clientID")
    producers = frozenset(_group(item) for item in _objects(data, "producerDataSet"))
    consumers = {_group(item): ConsumerData(item) for item in _objects(data, "consumerDataSet")}
    topics = frozenset(
        str(subscription["topic"])
        for consumer in consumers.values()
        for subscription in _objects(consumer.data, "subscriptionDataSet")
        if subscription.get("topic")
    )
    return Heartbeat(client_id, producers, consumers, topics)


def without(body: bytes, groups: Groups) -> bytes:
    """Return the body without these groups, or unchanged if it is nested too deeply to be encoded."""
    data = load_object(body)
    removed = {"producerDataSet": groups.producers, "consumerDataSet": groups.consumers}
    for key, names in removed.items():
        data[key] = [item for item in _objects(data, key) if _group(item) not in names]
    try:
        # fastjson's maps with objects as keys are dataclasses here, which orjson would encode as objects.
        return orjson.dumps(data, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        pass
    try:
        return fastjson.dumps(data)
    except RecursionError:
        return body


def _objects(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = data.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BodyError(f"a heartbeat's {key} is not a list of objects")
    return items


def _group(data: dict[str, Any]) -> str:
    name = data.get("groupName")
    if not isinstance(name, str) or not name:
        raise BodyError("a heartbeat has a group without a groupName")
    return name
