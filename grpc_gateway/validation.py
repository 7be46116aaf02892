"""Validation of request fields. Each function raises Refused with the v2 code of the rule."""

import unicodedata
from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, Resource
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest
from remoting.names import is_system

_CHARACTERS = frozenset("%|_-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_LITE_CHARACTERS = _CHARACTERS - {"%", "|"}
_MAX_TOPIC_LENGTH = 127
_MAX_GROUP_LENGTH = 120
_MAX_MESSAGE_GROUP_BYTES = 63
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
# Characters of an invalid name that are shown in the error.
_MAX_SHOWN = 80

# Caches of valid names: there are few, and each message needs one.
_valid_topics: set[str] = set()
_valid_groups: set[str] = set()
_MAX_CACHED = 10_000


def topic(resource: Resource) -> str:
    """Return the name of a topic. Raises Refused (ILLEGAL_TOPIC)."""
    name = resource.name
    if name not in _valid_topics:
        _check_name(name, "topic", _MAX_TOPIC_LENGTH, Code.ILLEGAL_TOPIC)
        if is_system(name):
            raise Refused(Code.ILLEGAL_TOPIC, f"topic {name} is a system topic")
        _cache(_valid_topics, name)
    return name


def group(resource: Resource) -> str:
    """Return the name of a consumer group. Raises Refused (ILLEGAL_CONSUMER_GROUP)."""
    name = resource.name
    if name not in _valid_groups:
        _check_name(name, "consumer group", _MAX_GROUP_LENGTH, Code.ILLEGAL_CONSUMER_GROUP)
        if name.startswith(_SYSTEM_GROUP_PREFIX):
            raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"consumer group {name} is a system group")
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


def _check_name(name: str, field: str, max_length: int, code: Code) -> None:
    if not name or name.isspace():
        raise Refused(code, f"the {field} name is blank")
    if len(name) > max_length:
        raise Refused(code, f"the {field} name has {len(name)} characters; the maximum is {max_length}")
    if not _CHARACTERS.issuperset(name):
        raise Refused(code, f"the {field} name must have only the characters a-z A-Z 0-9 % | _ -: {name!r}")


def _cache(names: set[str], name: str) -> None:
    if len(names) >= _MAX_CACHED:
        names.clear()
    names.add(name)


def tag(text: str) -> None:
    """Check a message's tag. Raises Refused (ILLEGAL_MESSAGE_TAG)."""
    if text and (text.isspace() or "|" in text or has_control(text)):
        raise Refused(Code.ILLEGAL_MESSAGE_TAG, "tag must not be blank or contain | or control characters")


def keys(texts: Iterable[str]) -> None:
    """Check a message's keys. Raises Refused (ILLEGAL_MESSAGE_KEY)."""
    for text in texts:
        if text and (text.isspace() or has_control(text)):
            raise Refused(Code.ILLEGAL_MESSAGE_KEY, "keys must not be blank or contain control characters")


def message_group(text: str) -> None:
    """Check a message group. Raises Refused (ILLEGAL_MESSAGE_GROUP)."""
    if text and (text.isspace() or has_control(text)):
        raise Refused(Code.ILLEGAL_MESSAGE_GROUP, "message_group must not be blank or contain control characters")
    if (size := len(text.encode())) > _MAX_MESSAGE_GROUP_BYTES:
        raise Refused(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message_group has {size} bytes in UTF-8; the maximum is {_MAX_MESSAGE_GROUP_BYTES}",
        )


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
    # Clients match on the wording of the official proxy.
    if value < smallest:
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {smallest}")
    if value > largest:
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {largest}")
    return value


def polling_time(request: ReceiveMessageRequest, remaining: float | None, options: GatewayOptions) -> int:
    """Return the long polling time of a receive in ms: the requested one, limited by the options and the deadline.

    remaining: seconds until the deadline. Raises Refused (ILLEGAL_POLLING_TIME) if no time is left.
    """
    maximum, minimum = int(options.max_polling * 1000), int(options.min_polling * 1000)
    if request.HasField("long_polling_timeout"):
        polling = max(minimum, min(milliseconds(request.long_polling_timeout), maximum))
    else:
        polling = maximum
    if remaining is None:
        return polling
    available = int((remaining - options.polling_margin) * 1000)
    if available <= 0:
        raise Refused(
            Code.ILLEGAL_POLLING_TIME,
            f"the deadline is in {remaining:.3f} s; a receive needs more than {options.polling_margin:g} s",
        )
    return min(polling, available)
