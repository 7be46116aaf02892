"""Topic and group names in JSON bodies, found by their keys."""

from collections.abc import Callable
from typing import Any

import orjson

from remoting import fastjson
from remoting.errors import BodyError
from remoting.fastjson import ObjectKeys

# Keys with a topic or a group in the bodies that clients and brokers exchange. Batch acks have short keys, and brokers
# accept the long ones in them, too.
TOPICS = frozenset({"topic", "topicName"})
GROUPS = frozenset({"group", "groupName", "consumerGroup", "producerGroup"})
BATCH_ACK_TOPICS = TOPICS | {"t"}
BATCH_ACK_GROUPS = GROUPS | {"c"}
# Keys of maps from topics, in lower case.
_MAPS_BY_TOPIC = frozenset({"subscriptiontable", "statustable"})

Rename = Callable[[str], str]

_REFERENCE = "$ref"
# Brokers ignore the case of keys, and `_` and `-` in them (fastjson's smart match).
_IGNORED_CHARACTERS = str.maketrans("", "", "_-")


def _lower(keys: frozenset[str]) -> frozenset[str]:
    return frozenset(key.lower() for key in keys)


class NameReplacer:
    """Replaces the topics and groups in a JSON document.

    text_only: names that are not texts are rejected. Brokers read a number or a container as a text.
    """

    def __init__(
        self,
        topic: Rename,
        group: Rename,
        topics: frozenset[str] = TOPICS,
        groups: frozenset[str] = GROUPS,
        *,
        text_only: bool = False,
    ) -> None:
        self._topic = topic
        self._group = group
        self._topics = _lower(topics)
        self._groups = _lower(groups)
        self._texts = self._topics | self._groups if text_only else frozenset()

    def replace(self, value: Any, key: object = None) -> Any:
        """Return the value of `key` with its names replaced. Raises BodyError if it contains a reference."""
        key = _normalised(key) if isinstance(key, str) else None
        if key in self._texts and value is not None and not isinstance(value, str):
            raise BodyError(f"the {key} is not a text")
        if isinstance(value, dict):
            if _REFERENCE in value:
                # Hidden from our parser by an escape; a broker would follow it.
                raise BodyError("JSON references are not supported")
            if key in _MAPS_BY_TOPIC:
                return {self._topic(name): self.replace(item) for name, item in value.items()}
            return {name: self.replace(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.replace(item) for item in value]
        if isinstance(value, ObjectKeys):
            return ObjectKeys(tuple((self.replace(name), self.replace(item)) for name, item in value.pairs))
        if isinstance(value, str):
            if key in self._topics:
                return self._topic(value)
            if key in self._groups:
                return self._group(value)
        return value


def _normalised(key: str) -> str:
    return key.translate(_IGNORED_CHARACTERS).lower()


def replace_names(body: bytes, replacer: NameReplacer, *, client_request: bool = False) -> bytes:
    """Return a JSON body with its names replaced, in fastjson's dialect if JSON cannot express it.

    The body of a client's request is parsed with the limits of `fastjson.load_request`. Raises BodyError.
    """
    document = _replaced(body, replacer, fastjson.load_request if client_request else fastjson.loads)
    try:
        # ObjectKeys is a dataclass, which orjson would otherwise write as an object.
        return orjson.dumps(document, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return fastjson.dumps(document)


def collect_names(
    body: bytes, batch_ack: bool = False, omitted: str | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the distinct topics and groups in the JSON body of a client's request, in order. Raises BodyError.

    batch_ack: whether the body is that of BATCH_ACK_MESSAGE. omitted: a key of the document, in lower case, whose
    value is left out.
    """
    topics: dict[str, None] = {}
    groups: dict[str, None] = {}

    def topic(name: str) -> str:
        topics[name] = None
        return name

    def group(name: str) -> str:
        groups[name] = None
        return name

    keys = (BATCH_ACK_TOPICS, BATCH_ACK_GROUPS) if batch_ack else (TOPICS, GROUPS)

    def load(data: bytes) -> Any:
        document = fastjson.load_request(data)
        if omitted is not None and isinstance(document, dict):
            return {key: value for key, value in document.items() if _normalised(key) != omitted}
        return document

    _replaced(body, NameReplacer(topic, group, *keys, text_only=True), load)
    return tuple(topics), tuple(groups)


def _replaced(body: bytes, replacer: NameReplacer, load: Callable[[bytes], Any]) -> Any:
    try:
        return replacer.replace(load(body))
    except RecursionError:
        raise BodyError("not JSON: nested too deeply") from None
