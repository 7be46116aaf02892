"""JSON bodies: every topic and group that stands in one, by the name of its key."""

from collections.abc import Callable
from typing import Any

import orjson

from remoting import fastjson
from remoting.errors import BodyError
from remoting.fastjson import ObjectKeys

# Names of keys with a topic or a group, in the bodies that clients and brokers exchange; those of batch acks are short.
TOPICS = frozenset({"topic", "topicName"})
GROUPS = frozenset({"group", "groupName", "consumerGroup", "producerGroup"})
SHORT_TOPICS = frozenset({"t"})
SHORT_GROUPS = frozenset({"c"})
# Maps whose keys are topics, in lower case.
_BY_TOPIC = frozenset({"subscriptiontable", "statustable"})

Rename = Callable[[str], str]

_REFERENCE = "$ref"
# Brokers take a key in any case, with `_` and `-` anywhere in it (fastjson's smart match).
_IGNORED = str.maketrans("", "", "_-")


def _plain(keys: frozenset[str]) -> frozenset[str]:
    return frozenset(key.lower() for key in keys)


class Walk:
    """Goes through a document and puts other names into it."""

    def __init__(
        self, topic: Rename, group: Rename, topics: frozenset[str] = TOPICS, groups: frozenset[str] = GROUPS
    ) -> None:
        self._topic = topic
        self._group = group
        self._topics = _plain(topics)
        self._groups = _plain(groups)

    def renamed(self, value: Any, key: object = None) -> Any:
        """The value that stands under `key`, with other names."""
        key = key.translate(_IGNORED).lower() if isinstance(key, str) else None
        if isinstance(value, dict):
            if _REFERENCE in value:
                # One that was hidden from our parser by an escape; a broker would follow it.
                raise BodyError("a reference that is not followed")
            if key in _BY_TOPIC:
                return {self._topic(name): self.renamed(item) for name, item in value.items()}
            return {name: self.renamed(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.renamed(item) for item in value]
        if isinstance(value, ObjectKeys):
            return ObjectKeys(tuple((self.renamed(name), self.renamed(item)) for name, item in value.pairs))
        if isinstance(value, str):
            if key in self._topics:
                return self._topic(value)
            if key in self._groups:
                return self._group(value)
        return value


def renamed(body: bytes, walk: Walk) -> bytes:
    """A JSON body with other names; as it was written: in fastjson's dialect where it needs that. Raises BodyError."""
    document = _walked(body, walk)
    try:
        # ObjectKeys is a dataclass, of which orjson would make an object.
        return orjson.dumps(document, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return fastjson.dumps(document)


def names(body: bytes, short: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The topics and groups in a JSON body, each once, in their order. Raises BodyError."""
    topics: dict[str, None] = {}
    groups: dict[str, None] = {}

    def topic(name: str) -> str:
        topics[name] = None
        return name

    def group(name: str) -> str:
        groups[name] = None
        return name

    keys = (SHORT_TOPICS, SHORT_GROUPS) if short else (TOPICS, GROUPS)
    _walked(body, Walk(topic, group, *keys))
    return tuple(topics), tuple(groups)


def _walked(body: bytes, walk: Walk) -> Any:
    try:
        return walk.renamed(fastjson.loads(body))
    except RecursionError:
        raise BodyError("not JSON: nested too deeply") from None
