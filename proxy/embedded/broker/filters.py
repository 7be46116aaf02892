"""Filters of subscriptions: by tag, compared by the hash codes in the queues, or by SQL92 expression."""

from collections.abc import Mapping
from typing import Any, Protocol

from proxy.embedded.broker.sql.comparison import EvaluationError
from proxy.embedded.broker.sql.parser import compile_filter
from proxy.embedded.store.queue import tag_code
from remoting import properties, tag_expression
from remoting.errors import BodyError

TAG = "TAG"
SQL = "SQL92"
# Characters of a 64-bit integer.
_MAX_VERSION_LENGTH = 20


class Filter(Protocol):
    """A test of a message."""

    def matches(self, pairs: Mapping[str, str]) -> bool:
        """Return whether a message with these properties passes."""


class TagFilter:
    """Passes messages whose tag has one of these hash codes."""

    __slots__ = ("codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes = codes

    def matches(self, pairs: Mapping[str, str]) -> bool:
        return tag_code(pairs.get(properties.TAGS)) in self.codes


class SqlFilter:
    """Passes messages for which an expression is true. Raises BodyError for an invalid expression."""

    __slots__ = ("_matches", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._matches = compile_filter(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlFilter) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, pairs: Mapping[str, str]) -> bool:
        try:
            return self._matches(pairs)
        except (EvaluationError, RecursionError):
            # The expression concerns its consumer only: the message must still be stored, and reach other consumers.
            return False


def new_filter(expression: str | None, kind: str | None) -> Filter | None:
    """Return the filter of an expression; None passes all messages. Raises BodyError."""
    if kind is None or not kind.strip() or kind == TAG:
        try:
            names = tag_expression.tags_of(expression)
        except ValueError:
            raise BodyError("the subscription names no tag") from None
        return None if names is None else TagFilter(frozenset(map(tag_code, names)))
    if kind != SQL:
        raise BodyError(f"subscriptions of type {kind[:40]!r} are not supported")
    if not expression:
        raise BodyError("the expression is missing")
    return SqlFilter(expression)


def version(data: Mapping[str, Any]) -> int:
    """Return the version of SubscriptionData, 0 if it is not a number; C++ clients write it as a string."""
    number = data.get("subVersion")
    if isinstance(number, str) and len(number) <= _MAX_VERSION_LENGTH and _is_number(number):
        return int(number)
    return number if type(number) is int else 0


class Subscription:
    """A group's subscription to a topic. `data` is SubscriptionData; `error` is that of an invalid filter."""

    __slots__ = ("data", "error", "filter", "topic", "version")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.topic = str(data.get("topic") or "")
        self.version = version(data)
        self.filter: Filter | None = None
        self.error: str | None = None
        kind = str(data.get("expressionType") or TAG)
        expression = str(data.get("subString") or "")
        try:
            self.filter = new_filter(expression, kind)
        except BodyError as error:
            self.error = str(error)
        if isinstance(self.filter, TagFilter) and (codes := _codes(data.get("codeSet"))):
            # The client's hash codes are used, because a queue contains only the hash code of a tag.
            self.filter = TagFilter(codes)

    @property
    def by_tag(self) -> bool:
        return str(self.data.get("expressionType") or TAG) == TAG


def _codes(value: object) -> frozenset[int]:
    """Return the hash codes of a codeSet; Go clients write them as strings, which Java's parser accepts too."""
    items = value if isinstance(value, list) else []
    return frozenset(int(item) for item in items if type(item) is int or (isinstance(item, str) and _is_number(item)))


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
