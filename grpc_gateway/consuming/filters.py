"""Filters: which of a topic's messages a consumer wants."""

from dataclasses import dataclass
from functools import lru_cache

from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType

_ALL = "*"
_OR = "||"
# Characters of an expression, which goes into the header of every request, and into the cache here.
_LONGEST = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as brokers take it: type (TAG or SQL92) and expression; tags: those that match, None: all do.

    Brokers compare hashes of tags, so a tag has to be looked at again; SQL is theirs alone.
    """

    kind: str
    expression: str
    tags: frozenset[str] | None

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag is wanted, as far as we can say."""
        return self.tags is None or tag in self.tags


def of(expression: FilterExpression) -> Filter:
    """Read a filter. Raises Refused (ILLEGAL_FILTER_EXPRESSION)."""
    text = expression.expression
    if len(text) > _LONGEST:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"a filter has at most {_LONGEST} characters, not {len(text)}")
    return _read(expression.type, text)


@lru_cache(1024)
def _read(kind: int, text: str) -> Filter:
    if kind == FilterType.SQL:
        if not text.strip():
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "an SQL filter is blank")
        return Filter("SQL92", text, None)
    if not text or text.strip() == _ALL:
        return _EVERYTHING
    tags = frozenset(tag.strip() for tag in text.split(_OR)) - {""}
    if not tags:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"a tag filter names no tag: {text[:80]!r}")
    return Filter("TAG", text, tags)


_EVERYTHING = Filter("TAG", _ALL, None)
