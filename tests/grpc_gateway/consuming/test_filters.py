"""Filters, and the clocks of brokers."""

import pytest

from grpc_gateway.consuming.filters import parse_filter
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType


@pytest.mark.parametrize("kind", [FilterType.TAG, FilterType.FILTER_TYPE_UNSPECIFIED])
@pytest.mark.parametrize(
    ("text", "tags"),
    [("", None), ("*", None), (" * ", None), ("a", {"a"}), ("a||b", {"a", "b"}), (" a || || b ", {"a", "b"})],
)
def test_a_tag_filter_is_read(kind: FilterType, text: str, tags: set[str] | None) -> None:
    found = parse_filter(FilterExpression(type=kind, expression=text))
    assert found.kind == "TAG"
    assert found.expression == ("*" if tags is None else text)
    assert found.tags == tags


def test_an_sql_filter_is_the_brokers_to_read() -> None:
    found = parse_filter(FilterExpression(type=FilterType.SQL, expression="a > 1"))
    assert (found.kind, found.expression) == ("SQL92", "a > 1")
    assert found.matches(None)


@pytest.mark.parametrize(("kind", "text"), [(FilterType.SQL, " "), (FilterType.TAG, "||"), (FilterType.TAG, " ")])
def test_a_filter_of_nothing_is_refused(kind: FilterType, text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_filter(FilterExpression(type=kind, expression=text))
    assert refused.value.code == Code.ILLEGAL_FILTER_EXPRESSION


def test_tags_are_looked_at_again() -> None:
    found = parse_filter(FilterExpression(type=FilterType.TAG, expression="a||b"))
    assert found.matches("a")
    assert not found.matches("c")
    assert not found.matches(None)


def test_a_filter_is_bounded() -> None:
    parse_filter(FilterExpression(type=FilterType.SQL, expression="x" * 16_384))
    with pytest.raises(Refused) as refused:
        parse_filter(FilterExpression(type=FilterType.SQL, expression="x" * 16_385))
    assert refused.value.code == Code.ILLEGAL_FILTER_EXPRESSION
