import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import datetime

import pytest

from proxy.tools.cli import arguments
from proxy.tools.cli.arguments import Filter, Start


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("2m", 120), ("1.5h", 5400), ("3d", 259_200), ("7", 7)]
)
def test_durations(text: str, seconds: float) -> None:
    assert arguments.duration(text) == seconds


def test_durations_above_zero() -> None:
    assert arguments.positive_duration("500ms") == 0.5
    with pytest.raises(ArgumentTypeError, match="not a duration above zero: '0s'"):
        arguments.positive_duration("0s")


@pytest.mark.parametrize(
    ("text", "size"), [("300", 300), ("4KiB", 4096), ("4k", 4096), ("1MB", 10**6), ("2mib", 2**21)]
)
def test_sizes(text: str, size: int) -> None:
    assert arguments.size(text) == size


def test_rates_pairs_and_counts() -> None:
    assert arguments.rate("500/s") == arguments.rate("500") == 500
    assert arguments.pair("a=b=c") == ("a", "b=c")
    assert arguments.positive("7") == 7
    assert arguments.queues("1024") == 1024
    assert arguments.retries("0") == 0


def test_queues_are_numbers_with_or_without_their_broker() -> None:
    assert arguments.queue("3") == (None, 3)
    assert arguments.queue("broker-a/3") == ("broker-a", 3)
    for text in ("/3", "broker-a/", "broker-a", "-1"):
        with pytest.raises(ArgumentTypeError):
            arguments.queue(text)


def test_starting_points() -> None:
    assert arguments.start("earliest") == Start(edge="earliest")
    assert arguments.start("-10") == Start(last=10)
    assert arguments.start("1795276337374") == Start(time=1_795_276_337_374)
    moment = datetime(2026, 11, 21, 12, 30)
    assert arguments.start("2026-11-21T12:30") == Start(time=int(moment.timestamp() * 1000))
    ago = arguments.start("10m").time
    assert ago is not None
    assert 0 <= time.time() * 1000 - 600_000 - ago < 60_000


def test_filters() -> None:
    assert arguments.tags("*") == Filter()
    chosen = arguments.tags("b||a")
    assert (chosen.expression, chosen.kind) == ("a || b", "TAG")
    assert [chosen.passes(tag) for tag in ("a", "c", None)] == [True, False, False]
    assert arguments.sql("x > 1").passes(None)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (arguments.duration, "soon"),
        (arguments.duration, "-1s"),
        (arguments.duration, "999999999d"),
        (arguments.point, "999999999d"),
        (arguments.point, "0001-01-01"),
        (arguments.start, "-99999999999999999999999"),
        (arguments.size, "99999999999999999999999"),
        (arguments.size, "1.5k"),
        (arguments.rate, "0"),
        (arguments.rate, "inf"),
        (arguments.rate, "nan/s"),
        (arguments.positive, "0"),
        (arguments.positive, "-1"),
        (arguments.queues, "0"),
        (arguments.queues, "1025"),
        (arguments.retries, "10001"),
        (arguments.pair, "=v"),
        (arguments.pair, "k"),
        (arguments.start, "yesterday"),
        (arguments.target, "-10"),
    ],
)
def test_invalid_arguments_have_messages(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"^not a "):
        parse(text)
