"""Filter expressions."""

import pytest

from grpc_gateway.consuming import filters
from grpc_gateway.consuming.filters import parse_filter
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code, FilterExpression, FilterType


@pytest.mark.parametrize("kind", [FilterType.TAG, FilterType.FILTER_TYPE_UNSPECIFIED])
@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("", set()),
        ("*", set()),
        (" * ", {"*"}),
        ("a", {"a"}),
        ("a||b", {"a", "b"}),
        (" a || || b ", {"a", "b"}),
        # No tag: brokers pass no message.
        (" ", set()),
        (" || ", set()),
        ("|| ||", set()),
        # Java trims no other blanks.
        ("\u3000a", {"\u3000a"}),
        ("\x01a\t", {"a"}),
    ],
)
def test_tag_filter_is_parsed(kind: FilterType, text: str, tags: set[str]) -> None:
    parsed = parse_filter(FilterExpression(type=kind, expression=text))
    assert parsed.kind == "TAG"
    assert parsed.expression == (text or "*")
    assert parsed.tags == tags


def test_sql_filter_matches_any_tag() -> None:
    parsed = parse_filter(FilterExpression(type=FilterType.SQL, expression="a > 1"))
    assert (parsed.kind, parsed.expression) == ("SQL92", "a > 1")
    assert parsed.matches(None)


@pytest.mark.parametrize(("kind", "text"), [(FilterType.SQL, " "), (FilterType.TAG, "||"), (FilterType.TAG, "||||")])
def test_blank_filter_is_rejected(kind: FilterType, text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_filter(FilterExpression(type=kind, expression=text))
    assert refused.value.code == Code.ILLEGAL_FILTER_EXPRESSION


def test_tag_filter_matches_its_tags_only() -> None:
    parsed = parse_filter(FilterExpression(type=FilterType.TAG, expression="a||b"))
    assert parsed.matches("a")
    assert not parsed.matches("c")
    assert not parsed.matches(None)


def test_length_of_a_filter_is_limited() -> None:
    parse_filter(FilterExpression(type=FilterType.SQL, expression="x" * 16_384))
    with pytest.raises(Refused) as refused:
        parse_filter(FilterExpression(type=FilterType.SQL, expression="x" * 16_385))
    assert refused.value.code == Code.ILLEGAL_FILTER_EXPRESSION


def test_filters_of_long_expressions_are_not_cached() -> None:
    """A thousand of them would take some hundred MiB."""
    filters._parse_cached.cache_clear()
    long = FilterExpression(type=FilterType.TAG, expression="||".join(f"{number:09}" for number in range(1000)))
    assert len(parse_filter(long).tags) == 1000
    assert filters._parse_cached.cache_info().currsize == 0
    short = FilterExpression(type=FilterType.TAG, expression="a||b")
    assert parse_filter(short) is parse_filter(short)
