"""Filter expressions of consumers."""

from dataclasses import dataclass
from functools import lru_cache

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType

_ALL = "*"
_OR = "||"
# Characters of an expression, which is sent with every request and cached here.
_MAX_LENGTH = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as brokers take it. kind: TAG or SQL92. tags: tags that match; None: any tag matches.

    Brokers compare hashes of tags, so the tags are compared again here. SQL is evaluated by brokers only.
    """

    kind: str
    expression: str
    tags: frozenset[str] | None

    def matches(self, tag: str | None) -> bool:
        """Return whether a message with this tag matches; always true for an SQL filter."""
        return self.tags is None or tag in self.tags


def parse_filter(expression: FilterExpression) -> Filter:
    """Parse a filter expression. Raises Refused (ILLEGAL_FILTER_EXPRESSION)."""
    text = expression.expression
    if len(text) > _MAX_LENGTH:
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"the filter expression has {len(text)} characters; the maximum is {_MAX_LENGTH}",
        )
    return _parse(expression.type, text)


@lru_cache(1024)
def _parse(kind: int, text: str) -> Filter:
    if kind == FilterType.SQL:
        if not text.strip():
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92")
        return Filter("SQL92", text, None)
    if not text or text.strip() == _ALL:
        return _MATCH_ALL
    tags = frozenset(tag.strip() for tag in text.split(_OR)) - {""}
    if not tags:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "subString split error")
    return Filter("TAG", text, tags)


_MATCH_ALL = Filter("TAG", _ALL, None)
