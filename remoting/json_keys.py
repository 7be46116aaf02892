"""Keys of JSON bodies of clients' requests, as the parsers of Java's servers find the fields for them.

fastjson and fastjson2 compare no texts: they look for a field by a 64-bit hash of the key (FNV-1a, and in fastjson2 the
bytes themselves of up to 8 characters), as it is written and then in lower case without `_`, `-` and spaces
(fastjson2's `Fnv` and `JSONReader.getNameHashCodeLCase`, fastjson's `TypeUtils.fnv1a_64_lower` and
`fnv1a_64_extract`). Other keys with the hash of a field can be computed, and would be read as that field.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from remoting.errors import BodyError

# Fields of requests whose names or structure are read here; all are plain ASCII.
_FIELDS = (
    *("topic", "topicName", "group", "groupName", "consumerGroup", "producerGroup", "t", "c", "subject"),
    *("clientID", "clientId", "producerDataSet", "consumerDataSet", "subscriptionDataSet", "subscriptionData"),
    *("mqSet", "brokerName", "queueId", "onlyThisBroker", "acks", "topicConfigList", "groupConfigList"),
    *("subscriptionTable", "statusTable", "$ref", "@type"),
)
_PRIME, _BASIS, _MASK = 0x100000001B3, 0xCBF29CE484222325, 2**64 - 1
# Keys up to this length are their own hash in fastjson2.
_PACKED_LENGTH = 8
# Maximum length of a key: that of a group's name.
_MAX_LENGTH = 255
_SEPARATORS = str.maketrans("", "", "_- ")
_IGNORED = str.maketrans("", "", "_-")
# fastjson2 keeps a separator before the same one, and at the end of a key.
_DROPPED = re.compile(r"([_\- ])(?!\1|$)")
# A string in quotes before a colon, and any other one.
_STRING = re.compile(rb'("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')(\s*:)?', re.DOTALL)


def normalised(key: str) -> str:
    """Return a key in lower case without `_` and `-`, which servers ignore."""
    return key.translate(_IGNORED).lower()


@lru_cache(4096)
def field_name(key: str) -> str:
    """Return the normalised key of a client's request. Raises BodyError for a key that a server may take for another.

    Fields of RocketMQ and keys of its maps are printable ASCII: other characters and U+FFFD, which stands for bytes
    that are not UTF-8, only serve to hide a field.
    """
    if not key.isascii() or not key.isprintable():
        raise BodyError("a key of the JSON body has characters other than printable ASCII")
    name = normalised(key)
    if name in _KNOWN:
        return name
    if len(key) > _MAX_LENGTH:
        raise BodyError(f"a key of the JSON body has {len(key)} characters; at most {_MAX_LENGTH} are allowed")
    if any(not _HASHES.isdisjoint(_hashes(spelling)) for spelling in _spellings(key)):
        raise BodyError("a key of the JSON body has the hash of another key")
    return name


def check_escapes(body: bytes) -> None:
    """Reject a parsed body with an escape in a key: servers hash such keys otherwise. Raises BodyError."""
    if b"\\" in body and any(match[2] is not None and b"\\" in match[1] for match in _STRING.finditer(body)):
        raise BodyError("a key of the JSON body has an escape")


def _spellings(key: str) -> set[str]:
    """Return the spellings of a key that servers compute hashes of."""
    lower = key.lower()
    return {
        key,
        lower,
        lower.translate(_IGNORED),
        lower.translate(_SEPARATORS),
        _DROPPED.sub("", lower),
    }


def _hashes(text: str) -> Iterator[int]:
    data, value = text.encode(), _BASIS
    if len(data) <= _PACKED_LENGTH:
        yield int.from_bytes(data, "little")
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    yield value


_KNOWN = frozenset(map(normalised, _FIELDS))
_HASHES = frozenset(number for field in _FIELDS for text in (field, field.lower()) for number in _hashes(text))
