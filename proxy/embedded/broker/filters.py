"""Which messages a subscription wants: by tag, compared by hash as queues keep them, or by SQL92 expression."""

from collections.abc import Mapping
from typing import Any, Protocol

from proxy.embedded.broker.sql import EvaluationError, compile_filter
from proxy.embedded.store.queue import tag_code
from remoting import properties
from remoting.errors import BodyError

ALL = "*"
TAG = "TAG"
SQL = "SQL92"


class Filter(Protocol):
    """Wants a message or not."""

    def wants(self, pairs: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted."""


class TagFilter:
    """Wants messages whose tag has one of these hashes."""

    __slots__ = ("codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes = codes

    def wants(self, pairs: Mapping[str, str]) -> bool:
        tag = pairs.get(properties.TAGS)
        return (0 if not tag else tag_code(tag)) in self.codes


class SqlFilter:
    """Wants messages for which an expression is true. Raises BodyError for what is no expression."""

    __slots__ = ("_matches",)

    def __init__(self, text: str) -> None:
        self._matches = compile_filter(text)

    def wants(self, pairs: Mapping[str, str]) -> bool:
        try:
            return self._matches(pairs)
        except EvaluationError:
            return False


def tags(expression: str | None) -> list[str]:
    """The tags of an expression `a || b`; none where it wants everything. Raises BodyError for one without any."""
    if not expression or expression == ALL:
        return []
    found = [tag for tag in map(str.strip, expression.split("||")) if tag]
    if not found:
        raise BodyError("the subscription names no tag")
    return found


def build(expression: str | None, kind: str | None) -> Filter | None:
    """The filter of an expression; None wants everything. Raises BodyError."""
    if kind is None or not kind.strip() or kind == TAG:
        wanted = tags(expression)
        return TagFilter(frozenset(map(tag_code, wanted))) if wanted else None
    if kind != SQL:
        raise BodyError(f"subscriptions of type {kind[:40]!r} are not known")
    if not expression:
        raise BodyError("the expression is missing")
    return SqlFilter(expression)


def version(data: Mapping[str, Any]) -> int:
    """The version of SubscriptionData, 0 for one that is no number."""
    number = data.get("subVersion")
    return number if type(number) is int else 0


class Subscription:
    """What a group wants of a topic; `data` is SubscriptionData. `broken` says why its filter cannot be compiled."""

    __slots__ = ("broken", "data", "filter", "topic", "version")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.topic = str(data.get("topic") or "")
        self.version = version(data)
        self.filter: Filter | None = None
        self.broken: str | None = None
        kind = str(data.get("expressionType") or TAG)
        expression = str(data.get("subString") or "")
        try:
            self.filter = build(expression, kind)
        except BodyError as error:
            self.broken = str(error)
        if isinstance(self.filter, TagFilter) and (codes := _codes(data.get("codeSet"))):
            # The client's own hashes: a queue knows no more of a tag.
            self.filter = TagFilter(codes)

    @property
    def by_tag(self) -> bool:
        return str(self.data.get("expressionType") or TAG) == TAG


def _codes(value: object) -> frozenset[int]:
    """The hashes of a codeSet; Go clients write them as texts, which Java's parser takes too."""
    items = value if isinstance(value, list) else []
    return frozenset(int(item) for item in items if type(item) is int or (isinstance(item, str) and _is_number(item)))


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
