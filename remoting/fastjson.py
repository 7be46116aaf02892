"""The JSON dialect of fastjson, the library of Java's RocketMQ.

It differs from standard JSON in maps: a key that is a number has no quotes, a key that is an object is written as that
object, and the second occurrence of an object may be written as `{"$ref": path}`.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from remoting.errors import BodyError, Overloaded
from remoting.token_bucket import TokenBucket

# Maximum depth, which bounds the recursion of the parser. Bodies need less than ten.
_MAX_DEPTH = 100
# Maximum size of a document in the dialect, in bytes. It bounds the time that this slow parser blocks the event loop;
# bodies in the dialect are far smaller.
_MAX_DIALECT_SIZE = 256 * 1024
# Maximum size in bytes of a JSON body of a client's request. Bodies of messages are not JSON.
_MAX_REQUEST_SIZE = 1024 * 1024
# Maximum size in bytes of a document in the dialect in a client's request. Official clients write requests in standard
# JSON, with references at most; they use the rest of the dialect only in responses to brokers.
_MAX_REQUEST_DIALECT_SIZE = 16 * 1024
# Bytes per second of the dialect in requests of all clients, and at once. The parser needs a second of CPU time for
# about 700 KB, so that requests cannot take more than a fifth of the event loop.
_REQUEST_DIALECT_RATE = 128 * 1024
_REQUEST_DIALECT_BURST = 64 * 1024
# Maximum number of references in one document. References to references are rejected.
_MAX_REFERENCES = 1024
# Size in bytes that references may add to a document, as JSON, or the size of the document if that is more.
_MAX_ADDED_SIZE = 256 * 1024
# Estimate of the size of a number, a literal, or the punctuation of a string or container, in bytes.
_ITEM_SIZE = 4
_REFERENCE = "$ref"


@dataclass(frozen=True, slots=True)
class ObjectKeys:
    """A map with at least one object as a key, `{{"queueId":0}:5}`, as pairs in the document's order."""

    pairs: tuple[tuple[Any, Any], ...]


def loads(data: bytes) -> Any:
    """Parse a document, standard JSON or fastjson's dialect. Raises BodyError.

    Keys that are numbers become strings, as in standard JSON. Bare names as keys, single-quoted strings and trailing
    commas are accepted. References by path (`$.a[0].b`) are replaced by their targets, which are then shared and must
    not be changed; recursive references (`$`, `..`, `@`) and references to references are rejected.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if len(data) > _MAX_DIALECT_SIZE:
            raise BodyError(
                f"not standard JSON, and its {len(data)} bytes are over the limit of {_MAX_DIALECT_SIZE} for fastjson's"
                f": {error.msg}"
            ) from None
        value = _Parser(data.decode(errors="replace")).document()
    return _resolve(value, len(data)) if b"$ref" in data else value


class DialectRate:
    """A limit of bytes per second on documents in the dialect.

    rate: bytes per second. burst: bytes at once. clock: returns the time in seconds.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._bucket = TokenBucket(rate, burst, clock())
        self._clock = clock

    def take(self, size: int) -> None:
        """Count a document of `size` bytes. Raises Overloaded if the limit is reached."""
        now = self._clock()
        if size > self._bucket.tokens(now):
            raise Overloaded(
                "too many request bodies that are not standard JSON; send standard JSON, or try again later"
            )
        self._bucket.take(size, now)


_dialect_rate = DialectRate(_REQUEST_DIALECT_RATE, _REQUEST_DIALECT_BURST)


def load_request(data: bytes) -> dict[str, Any]:
    """Parse the body of a client's request like `load_object`.

    The body is limited to 1 MiB, and to 256 KiB with references. The dialect is limited further in size, and in bytes
    per second over all clients, because parsing it is slow. Nesting is limited to the 254 levels that orjson encodes.
    Raises BodyError, or Overloaded over the rate.
    """
    if len(data) > _MAX_REQUEST_SIZE:
        raise BodyError(f"a JSON body of {len(data)} bytes is over the limit of {_MAX_REQUEST_SIZE}")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if len(data) > _MAX_REQUEST_DIALECT_SIZE:
            raise BodyError(f"not standard JSON: {error.msg}") from None
        _dialect_rate.take(len(data))
        value = _Parser(data.decode(errors="replace")).document()
    if b"$ref" in data:
        if len(data) > _MAX_DIALECT_SIZE:
            raise BodyError(
                f"a JSON body of {len(data)} bytes with references is over the limit of {_MAX_DIALECT_SIZE}"
            )
        value = _resolve(value, len(data))
    if not isinstance(value, dict):
        raise BodyError("the body is not a JSON object")
    if data.count(b"[") + data.count(b"{") > _MAX_DEPTH:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            raise BodyError("the body is nested too deeply") from None
    return value


def load_object(data: bytes) -> dict[str, Any]:
    """Parse a document that is one JSON object, standard JSON or fastjson's dialect. Raises BodyError."""
    value = loads(data)
    if not isinstance(value, dict):
        raise BodyError("the body is not a JSON object")
    return value


def dumps(value: Any) -> bytes:
    """Return a document for old clients: int keys of dicts without quotes, keys of ObjectKeys as objects.

    All else is standard JSON. Raises TypeError for types that JSON does not have.
    """
    return _write(value)


def _write(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"{" + b",".join(_write_key(key) + b":" + _write(item) for key, item in value.items()) + b"}"
    if isinstance(value, ObjectKeys):
        return b"{" + b",".join(_write(key) + b":" + _write(item) for key, item in value.pairs) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_write, value)) + b"]"
    return orjson.dumps(value)


def _write_key(key: object) -> bytes:
    if type(key) is not int and not isinstance(key, str):
        raise TypeError(f"a key of type {type(key).__name__}")
    return orjson.dumps(key)


# Parsing.

_BLANK = re.compile(r"[ \t\r\n\f\b]*")
_NUMBER = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*|-?[0-9]+")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = {"u": 4, "x": 2}
_ESCAPES = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_LITERALS = {"true": True, "false": False, "null": None}


class _Parser:
    """Recursive-descent parser of one document."""

    __slots__ = ("_depth", "_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def document(self) -> Any:
        value = self._value()
        if self._peek():
            raise self._error("unexpected text after the document")
        return value

    def _peek(self) -> str:
        """Return the next character that is not blank, or "" at the end."""
        self._position = self._match(_BLANK).end()
        return self._text[self._position : self._position + 1]

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._error("unexpected text")
        return match

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = self._match(pattern)
        self._position = match.end()
        return match[0]

    def _error(self, problem: str) -> BodyError:
        return BodyError(f"not JSON: {problem} at character {self._position}")

    def _value(self) -> Any:
        first = self._peek()
        if first == "{":
            return self._nested(self._object)
        if first == "[":
            return self._nested(self._array)
        if first in _PLAIN:
            return self._string(first)
        if first.isalpha():
            return self._literal()
        return self._number()

    def _nested(self, parse: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("nested too deeply")
        self._position += 1
        value = parse()
        self._position += 1
        self._depth -= 1
        return value

    def _object(self) -> Any:
        pairs: list[tuple[Any, Any]] = []
        while self._peek() != "}":
            key = self._key()
            if self._peek() != ":":
                raise self._error("no colon after a key")
            self._position += 1
            pairs.append((key, self._value()))
            self._comma("}")
        if all(isinstance(key, str) for key, _ in pairs):
            return dict(pairs)
        return ObjectKeys(tuple(pairs))

    def _key(self) -> Any:
        first = self._peek()
        if first == "{":
            return self._nested(self._object)
        return self._string(first) if first in _PLAIN else self._take(_NAME)

    def _array(self) -> list[Any]:
        values = []
        while self._peek() != "]":
            values.append(self._value())
            self._comma("]")
        return values

    def _comma(self, end: str) -> None:
        """Skip the comma between two items, which is optional before the end."""
        character = self._peek()
        if character == ",":
            self._position += 1
        elif character != end:
            raise self._error(f"neither a comma nor {end}")

    def _string(self, quote: str) -> str:
        self._position += 1
        parts = []
        while True:
            parts.append(self._take(_PLAIN[quote]))
            character = self._text[self._position : self._position + 1]
            self._position += 1
            if character == quote:
                return _without_surrogates("".join(parts))
            if not character:
                raise self._error("a string without an end")
            parts.append(self._escape())

    def _escape(self) -> str:
        kind = self._text[self._position : self._position + 1]
        self._position += 1
        size = _HEX.get(kind)
        if size is None:
            if kind not in _ESCAPES:
                raise self._error("an unknown escape")
            return _ESCAPES[kind]
        digits = self._text[self._position : self._position + size]
        self._position += size
        if re.fullmatch(r"[0-9A-Fa-f]+", digits) is None or len(digits) != size:
            raise self._error("an escape without its digits")
        return chr(int(digits, 16))

    def _literal(self) -> Any:
        name = self._take(_NAME) if self._text[self._position].isascii() else ""
        if name not in _LITERALS:
            raise self._error("an unknown word")
        return _LITERALS[name]

    def _number(self) -> int | float:
        text = self._take(_NUMBER)
        if text.lstrip("-").isdigit():
            return int(text)
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise self._error("a number too large")
        return number


def _without_surrogates(text: str) -> str:
    """Combine escaped surrogate pairs; replace unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


# References.

_STEP = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)|\[([0-9]{1,9})\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _resolve(document: Any, size: int) -> Any:
    """Return a document of `size` bytes with its references replaced. Raises BodyError."""
    try:
        return _References(document, max(size, _MAX_ADDED_SIZE)).replaced(document)
    except RecursionError:
        raise BodyError("a document with references is nested too deeply") from None


class _References:
    """The references of one document.

    `_holders` are the ids of all containers with references at any depth. Other values stay unchanged, and may be
    referred to. `_sizes` are the sizes of referenced containers by id, in bytes as JSON; `_remaining` is the size that
    further references may add.
    """

    __slots__ = ("_count", "_document", "_holders", "_remaining", "_sizes")

    def __init__(self, document: Any, max_added: int) -> None:
        self._document = document
        self._count = 0
        self._holders: set[int] = set()
        self._sizes: dict[int, int] = {}
        self._remaining = max_added
        self._find_holders(document)

    def _find_holders(self, value: Any) -> bool:
        holds_references = False
        if isinstance(value, dict) and _path(value) is not None:
            self._count += 1
            if self._count > _MAX_REFERENCES:
                raise BodyError(f"more than {_MAX_REFERENCES} references in a document")
            holds_references = True
        for item in _items(value):
            holds_references |= self._find_holders(item)
        if holds_references:
            self._holders.add(id(value))
        return holds_references

    def replaced(self, value: Any) -> Any:
        """Return the value with its references replaced by their targets."""
        if id(value) not in self._holders:
            return value
        if isinstance(value, ObjectKeys):
            return ObjectKeys(tuple((self.replaced(key), self.replaced(item)) for key, item in value.pairs))
        if isinstance(value, list):
            return [self.replaced(item) for item in value]
        path = _path(value)
        if path is not None:
            return self._target(path)
        return {key: self.replaced(item) for key, item in value.items()}

    def _target(self, path: str) -> Any:
        target = self._document
        for step in _steps(path):
            target = _follow(target, step, path)
        if id(target) in self._holders:
            raise BodyError(f"the reference {path[:60]!r} leads to references")
        self._remaining -= self._size(target)
        if self._remaining < 0:
            raise BodyError("references make the document too large")
        return target

    def _size(self, value: Any) -> int:
        """Return about the size of a value as JSON, in bytes. Each container is measured once."""
        if isinstance(value, str):
            return _ITEM_SIZE + len(value)
        if not isinstance(value, dict | list | ObjectKeys):
            return _ITEM_SIZE
        size = self._sizes.get(id(value))
        if size is None:
            keys = value if isinstance(value, dict) else ()
            size = _ITEM_SIZE + sum(map(self._size, chain(keys, _items(value))))
            self._sizes[id(value)] = size
        return size


def _items(value: Any) -> Iterable[Any]:
    """Return the keys and values that a value contains directly."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, ObjectKeys):
        return chain.from_iterable(value.pairs)
    return value if isinstance(value, list) else ()


def _path(value: dict[str, Any]) -> str | None:
    path = value.get(_REFERENCE)
    return path if len(value) == 1 and isinstance(path, str) else None


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 1
    while path.startswith("$") and (match := _STEP.match(path, position)):
        steps.append(int(match[2]) if match[2] else _ESCAPED.sub(r"\1", match[1]))
        position = match.end()
    if not steps or position != len(path):
        raise BodyError(f"an unsupported reference: {path[:60]!r}")
    return steps


def _follow(value: Any, step: str | int, path: str) -> Any:
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            return value[step]
    elif isinstance(value, list) and step < len(value):
        return value[step]
    raise BodyError(f"a reference to nothing: {path[:60]!r}")
