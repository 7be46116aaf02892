"""Filter expressions of consumers."""

from dataclasses import dataclass
from functools import lru_cache

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType
from remoting import tag_expression

# Characters of an expression, which is sent with every request; and of one whose filter is cached: the tags of 1,024
# long ones would take some hundred MiB.
_MAX_LENGTH = 16 * 2**10
_MAX_CACHED_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as brokers take it. kind: TAG or SQL92. tags: tags that match; without tags any matches.

    Brokers compare hashes of tags, so the tags are compared again here. SQL is evaluated by brokers only.
    """

    kind: str
    expression: str
    tags: frozenset[str]

    def matches(self, tag: str | None) -> bool:
        """Return whether a message with this tag matches; always true for an SQL filter."""
        return not self.tags or tag in self.tags


def parse_filter(expression: FilterExpression) -> Filter:
    """Parse a filter expression. Raises Refused (ILLEGAL_FILTER_EXPRESSION)."""
    text = expression.expression
    if len(text) > _MAX_LENGTH:
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"the filter expression has {len(text)} characters; the maximum is {_MAX_LENGTH}",
        )
    return (_parse_cached if len(text) <= _MAX_CACHED_LENGTH else _parse)(expression.type, text)


def _parse(kind: int, text: str) -> Filter:
    if kind == FilterType.SQL:
        if not text.strip():
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92")
        return Filter("SQL92", text, frozenset())
    try:
        tags = tag_expression.tags_of(text)
    except ValueError as error:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
    return Filter("TAG", tag_expression.ALL, frozenset()) if tags is None else Filter("TAG", text, tags)


_parse_cached = lru_cache(1024)(_parse)
