from hypothesis import given
from hypothesis import strategies as st

from proxy.observability.metrics.label_limiter import OTHER, Shown


def test_the_busiest_are_shown_and_the_rest_is_one() -> None:
    shown = Shown(2, idle=100)
    assert shown.note({"a": 5, "b": 1, "c": 9, "": 50}, 0.0) == set()
    assert [shown.name(value) for value in ("a", "b", "c", "", "unheard")] == ["a", OTHER, "c", "", OTHER]


def test_a_newcomer_takes_the_quietest_ones_place_when_it_is_twice_as_busy() -> None:
    shown = Shown(2, idle=100)
    shown.note({"a": 10, "b": 4}, 0.0)
    assert shown.note({"c": 7}, 1.0) == set()
    assert shown.note({"c": 1}, 2.0) == {"b"}
    assert (shown.name("b"), shown.name("c")) == (OTHER, "c")


def test_former_traffic_fades() -> None:
    shown = Shown(1, idle=100_000)
    shown.note({"a": 1000}, 0.0)
    assert shown.note({"b": 10}, 600.0) == set()
    # After ten half-lives a thousand are about one.
    assert shown.note({"b": 10}, 6600.0) == {"a"}


def test_the_silent_are_dropped_and_may_come_back() -> None:
    shown = Shown(2, idle=100)
    shown.note({"a": 1}, 0.0)
    assert shown.note({"b": 1}, 100.0) == set()
    assert shown.note({"b": 1}, 101.0) == {"a"}
    assert shown.name("a") == OTHER
    shown.note({"a": 1}, 102.0)
    assert shown.name("a") == "a"


def test_none_need_be_shown() -> None:
    shown = Shown(0, idle=100)
    assert shown.note({"a": 1}, 0.0) == set()
    assert shown.name("a") == OTHER


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50)), max_size=30), st.integers(0, 4))
def test_never_more_than_so_many(rounds: list[dict[str, int]], most: int) -> None:
    shown = Shown(most, idle=3)
    for now, traffic in enumerate(rounds):
        before = {value for value in "abcdefgh" if shown.name(value) == value}
        dropped = shown.note(traffic, float(now))
        after = {value for value in "abcdefgh" if shown.name(value) == value}
        assert len(after) <= most
        assert dropped == before - after
