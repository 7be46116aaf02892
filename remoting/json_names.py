"""Topic and group names in JSON bodies, found by their keys."""

from collections.abc import Callable
from typing import Any

import orjson

from remoting import fastjson
from remoting.errors import BodyError
from remoting.fastjson import ObjectKeys
from remoting.json_keys import check_escapes, field_name, normalised

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
# The character for an invalid UTF-8 sequence; brokers may decode it to another character.
_REPLACEMENT = "\ufffd"
# Maximum number of different keys in a client's request, which bounds the time that is spent on their hashes. Official
# clients use less than 40.
_MAX_KEYS = 512


def _lower(keys: frozenset[str]) -> frozenset[str]:
    return frozenset(key.lower() for key in keys)


class NameReplacer:
    """Replaces the topics and groups in a JSON document.

    client_request: whether it is the body of one client's request. Then names that are not texts are rejected, since
    brokers read a number or a container as a text, and so are keys that brokers may read as others (`json_keys`).
    """

    def __init__(
        self,
        topic: Rename,
        group: Rename,
        topics: frozenset[str] = TOPICS,
        groups: frozenset[str] = GROUPS,
        *,
        client_request: bool = False,
    ) -> None:
        self._topic = topic
        self._group = group
        self._topics = _lower(topics)
        self._groups = _lower(groups)
        self._texts = self._topics | self._groups if client_request else frozenset()
        self._keys: set[str] | None = set() if client_request else None

    def replace(self, value: Any, key: object = None) -> Any:
        """Return the value of `key` with its names replaced. Raises BodyError if it contains a reference."""
        key = self._field(key) if isinstance(key, str) else None
        if key in self._texts and value is not None and (not isinstance(value, str) or _REPLACEMENT in value):
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

    def _field(self, key: str) -> str:
        keys = self._keys
        if keys is None:
            return normalised(key)
        if key not in keys:
            if len(keys) >= _MAX_KEYS:
                raise BodyError(f"the body has more than {_MAX_KEYS} different keys")
            keys.add(key)
        return field_name(key)


def replace_names(body: bytes, replacer: NameReplacer, *, client_request: bool = False) -> bytes:
    """Return a JSON body with its names replaced, in fastjson's dialect if JSON cannot express it.

    The body of a client's request is parsed with the limits of `fastjson.load_request`. Raises BodyError.
    """
    document = _replaced(body, replacer, _load_request if client_request else fastjson.loads)
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
        document = _load_request(data)
        if omitted is not None:
            return {key: value for key, value in document.items() if normalised(key) != omitted}
        return document

    _replaced(body, NameReplacer(topic, group, *keys, client_request=True), load)
    return tuple(topics), tuple(groups)


def _load_request(body: bytes) -> dict[str, Any]:
    document = fastjson.load_request(body)
    # Only now: the time that it takes is bounded for bodies that are JSON.
    check_escapes(body)
    return document


def _replaced(body: bytes, replacer: NameReplacer, load: Callable[[bytes], Any]) -> Any:
    try:
        return replacer.replace(load(body))
    except RecursionError:
        raise BodyError("not JSON: nested too deeply") from None
