"""What a request must look like: each rule with the code that tells a client which one it broke."""

import unicodedata
from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from grpc_gateway.options import Options
from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, Resource
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest
from remoting.names import is_system

_ALPHABET = frozenset("%|_-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_LITE_ALPHABET = _ALPHABET - {"%", "|"}
_LONGEST_TOPIC = 127
_LONGEST_GROUP = 120
_LONGEST_MESSAGE_GROUP = 63
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

# Names that were valid; there are few, and each is asked for with every message.
_topics: set[str] = set()
_groups: set[str] = set()
_MAX_REMEMBERED = 10_000


def topic(resource: Resource) -> str:
    """The name of a topic. Raises Refused (ILLEGAL_TOPIC)."""
    name = resource.name
    if name not in _topics:
        _named(name, "topic", _LONGEST_TOPIC, Code.ILLEGAL_TOPIC)
        if is_system(name):
            raise Refused(Code.ILLEGAL_TOPIC, f"{name} is a system topic")
        _remember(_topics, name)
    return name


def group(resource: Resource) -> str:
    """The name of a consumer group. Raises Refused (ILLEGAL_CONSUMER_GROUP)."""
    name = resource.name
    if name not in _groups:
        _named(name, "consumer group", _LONGEST_GROUP, Code.ILLEGAL_CONSUMER_GROUP)
        if name.startswith(_SYSTEM_GROUP_PREFIX):
            raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"{name} is a system group")
        _remember(_groups, name)
    return name


def lite_topic(name: str, options: Options) -> str:
    """A lite topic's name. Raises Refused (ILLEGAL_LITE_TOPIC)."""
    if not name or len(name) > options.lite_topic_size or not _LITE_ALPHABET.issuperset(name):
        raise Refused(
            Code.ILLEGAL_LITE_TOPIC,
            f"a lite topic has 1 to {options.lite_topic_size} of the characters a-z A-Z 0-9 _ -: {name[:80]!r}",
        )
    return name


def _named(name: str, what: str, longest: int, code: Code) -> None:
    if not name or name.isspace():
        raise Refused(code, f"the {what} is blank")
    if len(name) > longest:
        raise Refused(code, f"the {what} has {len(name)} characters, at most {longest} are allowed")
    if not _ALPHABET.issuperset(name):
        raise Refused(code, f"the {what} may only have the characters a-z A-Z 0-9 % | _ -: {name!r}")


def _remember(names: set[str], name: str) -> None:
    if len(names) >= _MAX_REMEMBERED:
        names.clear()
    names.add(name)


def tag(text: str) -> None:
    """A message's tag. Raises Refused (ILLEGAL_MESSAGE_TAG)."""
    if text and (text.isspace() or "|" in text or has_control(text)):
        raise Refused(Code.ILLEGAL_MESSAGE_TAG, "a tag must not be blank nor have a | or control characters")


def keys(texts: Iterable[str]) -> None:
    """A message's keys. Raises Refused (ILLEGAL_MESSAGE_KEY)."""
    for text in texts:
        if text and (text.isspace() or has_control(text)):
            raise Refused(Code.ILLEGAL_MESSAGE_KEY, "a key must not be blank nor have control characters")


def message_group(text: str) -> None:
    """A message group. Raises Refused (ILLEGAL_MESSAGE_GROUP)."""
    if text and (text.isspace() or has_control(text)):
        raise Refused(Code.ILLEGAL_MESSAGE_GROUP, "a message group must not be blank nor have control characters")
    if len(text.encode()) > _LONGEST_MESSAGE_GROUP:
        raise Refused(
            Code.ILLEGAL_MESSAGE_GROUP, f"a message group has at most {_LONGEST_MESSAGE_GROUP} bytes of UTF-8"
        )


def has_control(text: str) -> bool:
    """Whether a text has control characters (ISO: U+0000 to U+001F, U+007F to U+009F)."""
    # Most texts are printable as a whole, which is one look.
    return not text.isprintable() and any(unicodedata.category(character) == "Cc" for character in text)


def milliseconds(duration: Duration | Timestamp) -> int:
    """A duration, or a time since 1970, in ms, rounded down."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def invisible(duration: Duration, least: float, options: Options) -> int:
    """An invisible duration in ms, at least `least` seconds. Raises Refused (ILLEGAL_INVISIBLE_TIME)."""
    value = milliseconds(duration)
    if not least * 1000 <= value <= options.max_invisible * 1000:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"an invisible duration is {least:g} s to {options.max_invisible:g} s, not {value} ms",
        )
    return value


def polling(request: ReceiveMessageRequest, remaining: float | None, options: Options) -> int:
    """How long a receive may wait for messages, in ms: what it asks for, within bounds and its call's deadline.

    remaining: seconds until the deadline. Raises Refused (ILLEGAL_POLLING_TIME) where that leaves no time at all.
    """
    asked = milliseconds(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None
    longest, least = int(options.max_polling * 1000), int(options.min_polling * 1000)
    wait = longest if asked is None else max(least, min(asked, longest))
    if remaining is None:
        return wait
    most = int((remaining - options.polling_margin) * 1000)
    if most <= 0:
        raise Refused(
            Code.ILLEGAL_POLLING_TIME,
            f"the deadline is {remaining:.3f} s away; a receive needs more than {options.polling_margin:g} s",
        )
    return min(wait, most)
