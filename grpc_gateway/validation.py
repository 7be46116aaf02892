"""Validation of request fields. Each function raises Refused with the v2 code of the rule.

Texts are those of the official proxy, because client code and test suites match on them.
"""

import unicodedata
from collections.abc import Iterable
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, Resource, Settings
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest
from remoting.names import MAX_CREATED_GROUP_LENGTH, MAX_TOPIC_LENGTH, is_system
from remoting.properties import MessageType

# For every message: reading a value from a generated enum is a search by name.
_ILLEGAL_TAG: Final = Code.ILLEGAL_MESSAGE_TAG
_ILLEGAL_KEY: Final = Code.ILLEGAL_MESSAGE_KEY
_ILLEGAL_GROUP: Final = Code.ILLEGAL_MESSAGE_GROUP

_CHARACTERS: Final = frozenset("%|_-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_LITE_CHARACTERS: Final = _CHARACTERS - {"%", "|"}
# The first size in UTF-8 that is too large.
_MESSAGE_GROUP_BYTES: Final = 64
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
# Characters of an invalid name that are shown in the error.
_MAX_SHOWN: Final = 256
_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
# Time between the end of a long poll and the client's deadline, in ms, if the client has asked for the poll's duration.
_POLLING_RESERVE: Final = 200
# The first version of clients that know ILLEGAL_POLLING_TIME, compared as a text, as the official proxy does.
_POLLING_TIME_VERSION: Final = "5.0.3"

# Caches of valid names: there are few, and each message needs one.
_valid_topics: set[str] = set()
_valid_groups: set[str] = set()
_MAX_CACHED: Final = 10_000


def topic(resource: Resource) -> str:
    """Return the name of a topic. Raises Refused (ILLEGAL_TOPIC)."""
    return topic_name(resource.name)


def topic_name(name: str) -> str:
    """Return the name of a topic. Raises Refused (ILLEGAL_TOPIC)."""
    if name not in _valid_topics:
        _check_topic(name)
        _cache(_valid_topics, name)
    return name


def group(resource: Resource) -> str:
    """Return the name of a consumer group. Raises Refused (ILLEGAL_CONSUMER_GROUP)."""
    return group_name(resource.name)


def group_name(name: str) -> str:
    """Return the name of a consumer group. Raises Refused (ILLEGAL_CONSUMER_GROUP)."""
    if name not in _valid_groups:
        _check_group(name)
        _cache(_valid_groups, name)
    return name


def lite_topic(name: str, options: GatewayOptions) -> str:
    """Return the name of a lite topic. Raises Refused (ILLEGAL_LITE_TOPIC)."""
    if not name or len(name) > options.lite_topic_size or not _LITE_CHARACTERS.issuperset(name):
        raise Refused(
            Code.ILLEGAL_LITE_TOPIC,
            f"lite_topic must have 1 to {options.lite_topic_size} of the characters a-z A-Z 0-9 _ -: "
            f"{name[:_MAX_SHOWN]!r}",
        )
    return name


def _check_topic(name: str) -> None:
    text = ""
    if not name or name.isspace():
        text = "The specified topic is blank"
    elif len(name) > MAX_TOPIC_LENGTH:
        text = f"The specified topic is longer than topic max length {MAX_TOPIC_LENGTH}."
    elif not _CHARACTERS.issuperset(name):
        text = f"The specified topic[{name}] contains illegal characters, allowing only {_PATTERN}"
    elif is_system(name):
        text = "cannot access system topic"
    if text:
        raise Refused(Code.ILLEGAL_TOPIC, text)


def _check_group(name: str) -> None:
    text, shown = "", name[:_MAX_SHOWN]
    if not name or name.isspace():
        text = "the specified group is blank"
    elif len(name) > MAX_CREATED_GROUP_LENGTH:
        text = f"the specified group[{shown}] is longer than group max length: {MAX_CREATED_GROUP_LENGTH}."
    elif not _CHARACTERS.issuperset(name):
        text = f"the specified group[{shown}] contains illegal characters, allowing only {_PATTERN}"
    elif name.startswith(_SYSTEM_GROUP_PREFIX):
        text = "cannot use system consumer group"
    if text:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, text)


def _cache(names: set[str], name: str) -> None:
    if len(names) >= _MAX_CACHED:
        names.clear()
    names.add(name)


def tag(text: str) -> None:
    """Check a message's tag. Raises Refused (ILLEGAL_MESSAGE_TAG)."""
    if "|" in text:
        raise Refused(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    _check_text("tag", text, _ILLEGAL_TAG)


def keys(texts: Iterable[str]) -> None:
    """Check a message's keys. Raises Refused (ILLEGAL_MESSAGE_KEY)."""
    for text in texts:
        _check_text("key", text, _ILLEGAL_KEY)


def message_group(text: str) -> None:
    """Check a message group. Raises Refused (ILLEGAL_MESSAGE_GROUP)."""
    _check_text("message group", text, _ILLEGAL_GROUP)
    if len(text.encode()) >= _MESSAGE_GROUP_BYTES:
        raise Refused(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {_MESSAGE_GROUP_BYTES}")


def _check_text(field: str, text: str, code: Code) -> None:
    """Reject a text that is not empty, but blank or with control characters."""
    if text.isspace():
        raise Refused(code, f"{field} cannot be the char sequence of whitespace")
    if not text.isprintable() and has_control(text):
        raise Refused(code, f"{field} cannot contain control character")


def has_control(text: str) -> bool:
    """Return whether a text contains ISO control characters (U+0000 to U+001F, U+007F to U+009F)."""
    # Fast path: a printable text has none.
    return not text.isprintable() and any(unicodedata.category(character) == "Cc" for character in text)


def milliseconds(duration: Duration | Timestamp) -> int:
    """Return a duration, or a time since 1970, in ms, rounded down."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def invisible_duration(duration: Duration, minimum: float, options: GatewayOptions) -> int:
    """Return an invisible duration in ms. Raises Refused (ILLEGAL_INVISIBLE_TIME).

    minimum: seconds.
    """
    value = milliseconds(duration)
    smallest, largest = int(minimum * 1000), int(options.max_invisible * 1000)
    if value < smallest:
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {smallest}")
    if value > largest:
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {largest}")
    return value


def polling_time(
    request: ReceiveMessageRequest,
    remaining: float | None,
    options: GatewayOptions,
    settings: Settings | None = None,
    version: str = "",
) -> int:
    """Return the long polling time of a receive in ms: the requested one, limited by the options and the deadline.

    remaining: seconds until the deadline. settings, version: the client's. Without a requested time, it is the time
    until the deadline less half the client's request timeout. Raises Refused if the deadline is too near for any poll.
    """
    maximum, minimum = int(options.max_polling * 1000), int(options.min_polling * 1000)
    requested = request.HasField("long_polling_timeout")
    if requested:
        polling = milliseconds(request.long_polling_timeout)
    elif remaining is None:
        polling = maximum
    else:
        timeout = 0 if settings is None else milliseconds(settings.request_timeout)
        polling = int(remaining * 1000) - timeout // 2
    polling = max(minimum, min(polling, maximum))
    if remaining is None:
        return polling
    available = int((remaining - options.polling_margin) * 1000)
    if available <= 0 or remaining * 1000 < minimum:
        raise Refused(
            Code.BAD_REQUEST if version < _POLLING_TIME_VERSION else Code.ILLEGAL_POLLING_TIME,
            "The deadline time remaining is not enough for polling, please check network condition",
        )
    if requested and polling + _POLLING_RESERVE <= remaining * 1000:
        return polling
    return min(polling, available)


def wrong_message_type(expected: MessageType, actual: MessageType) -> Refused:
    """Return the refusal of a message whose type the topic does not accept; the text is the official proxy's."""
    return Refused(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
    )
