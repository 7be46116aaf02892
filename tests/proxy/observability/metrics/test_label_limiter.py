"""Limit of label values."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.observability.metrics.label_limiter import OTHER, LabelLimiter


def test_the_busiest_values_are_selected() -> None:
    limiter = LabelLimiter(2, idle=100)
    assert limiter.update({"a": 5, "b": 1, "c": 9, "": 50}, 0.0) == set()
    assert [limiter.label(value) for value in ("a", "b", "c", "", "unheard")] == ["a", OTHER, "c", "", OTHER]


def test_a_value_twice_as_busy_replaces_the_quietest() -> None:
    limiter = LabelLimiter(2, idle=100)
    limiter.update({"a": 10, "b": 4}, 0.0)
    assert limiter.update({"c": 7}, 1.0) == set()
    assert limiter.update({"c": 1}, 2.0) == {"b"}
    assert (limiter.label("b"), limiter.label("c")) == (OTHER, "c")


def test_former_traffic_decays() -> None:
    limiter = LabelLimiter(1, idle=100_000)
    limiter.update({"a": 1000}, 0.0)
    assert limiter.update({"b": 10}, 600.0) == set()
    # After ten half-lives, 1000 count about 1.
    assert limiter.update({"b": 10}, 6600.0) == {"a"}


def test_idle_values_are_dropped_and_may_return() -> None:
    limiter = LabelLimiter(2, idle=100)
    limiter.update({"a": 1}, 0.0)
    assert limiter.update({"b": 1}, 100.0) == set()
    assert limiter.update({"b": 1}, 101.0) == {"a"}
    assert limiter.label("a") == OTHER
    limiter.update({"a": 1}, 102.0)
    assert limiter.label("a") == "a"


def test_a_limit_of_zero_selects_nothing() -> None:
    limiter = LabelLimiter(0, idle=100)
    assert limiter.update({"a": 1}, 0.0) == set()
    assert limiter.label("a") == OTHER


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50)), max_size=30), st.integers(0, 4))
def test_the_limit_is_never_exceeded(rounds: list[dict[str, int]], max_values: int) -> None:
    limiter = LabelLimiter(max_values, idle=3)
    for now, traffic in enumerate(rounds):
        before = {value for value in "abcdefgh" if limiter.label(value) == value}
        dropped = limiter.update(traffic, float(now))
        after = {value for value in "abcdefgh" if limiter.label(value) == value}
        assert len(after) <= max_values
        assert dropped == before - after
