"""SQL92 filters, compared with results of RocketMQ's parser (golden/FilterTable.java, RocketMQ 5.4.0)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.embedded.broker.filters import SqlFilter
from proxy.embedded.broker.sql.parser import compile_filter
from remoting.errors import BodyError

_GOLDEN = Path(__file__).parent / "golden"


def _lines(name: str) -> list[str]:
    return (_GOLDEN / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")


_SETS = [dict(pair.split("=", 1) for pair in line.split(";")) for line in _lines("properties.txt")]


def _evaluated(expression: str) -> str:
    try:
        message_filter = SqlFilter(expression)
    except BodyError:
        return "X"
    return "".join("T" if message_filter.matches(pairs) else "F" for pairs in _SETS)


_TABLE = list(zip(_lines("expressions.txt"), _lines("results.txt"), strict=True))


@pytest.mark.parametrize(("expression", "result"), _TABLE)
def test_expressions_evaluate_as_in_rocketmq(expression: str, result: str) -> None:
    assert _evaluated(expression) == result


@given(st.text(alphabet="ab1'()=<>,- \tNOTandORisnull/*.5eE", max_size=40))
def test_any_text_is_rejected_or_evaluated(text: str) -> None:
    try:
        message_filter = SqlFilter(text)
    except BodyError:
        return
    for pairs in _SETS:
        message_filter.matches(pairs)


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "a" + ")" * 5000, "not " * 5000 + "a", "a" * 20_000, "-" * 9000 + "1 = 1"]
)
def test_expensive_expressions_are_rejected(text: str) -> None:
    with pytest.raises(BodyError):
        compile_filter(text)


def test_a_long_chain_of_operators_is_accepted() -> None:
    text = " or ".join(f"a = {number}" for number in range(500))
    assert compile_filter(text)({"a": "499"})
    assert not compile_filter(text)({"a": "500"})


@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_a_chain_of_thousands_of_conditions_is_evaluated(operator: str) -> None:
    text = f" {operator} ".join(["a = '1'"] * 1200)
    assert compile_filter(text)({"a": "1"})
    assert not compile_filter(text)({"a": "2"})


def test_chained_comparisons_are_bounded_over_the_whole_expression() -> None:
    chain = " = ".join(["a"] * 52)
    assert not compile_filter(f"({chain}) AND ({chain})")({})
    with pytest.raises(BodyError, match="more than 100 chained comparisons"):
        compile_filter(f"({chain}) AND ({chain} = a)")
