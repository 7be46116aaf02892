"""The page: well-formed, self-contained, and equal to its tables."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pandas as pd
import pyarrow as pa
import pytest

from analytics.report import charts
from analytics.report.page import Origin, render
from analytics.report.sections import Section, clock, period, rows

ORIGIN = Origin(
    "Traffic <b>",
    datetime(2026, 10, 24, 22, tzinfo=UTC),
    datetime(2026, 10, 25, 23, tzinfo=UTC),
    "Europe/Berlin",
    12345,
    7,
    [],
)
MADE = datetime(2026, 11, 1, tzinfo=UTC)
TIMES = pd.date_range("2026-10-19", periods=3, freq="1h")


def text(table: pd.DataFrame | None = None, skipped: tuple[tuple[str, str], ...] = ()) -> str:
    section = Section(
        "load", "Load", "A <sentence>.", [charts.lines(pd.DataFrame({"time": TIMES, "n": [1, 2, 3]}), "n")], table
    )
    origin = replace(ORIGIN, skipped=skipped)
    return render(origin, [("requests", "12.3 k")], [section], MADE)


class Checker(HTMLParser):
    """Check that elements are closed in order, and collect fetched URLs."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)
        self.fetched += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "link", "br", "img"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_and_self_contained() -> None:
    checker = Checker()
    checker.feed(text(pd.DataFrame({"a": [1]})))
    assert not checker.open
    assert not checker.fetched
    assert "url(http" not in text()


def test_page_escapes_texts_and_shows_local_times() -> None:
    page = text()
    assert "Traffic &lt;b&gt;" in page
    assert "A &lt;sentence&gt;." in page
    assert "Sunday 25 October 2026, 00:00 to Monday 26 October 2026, 00:00 (Europe/Berlin)" in page


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("n", 1234567, "1\u202f234\u202f567"),
        ("n", 0.123456, "0.123"),
        ("n", 3.0, "3"),
        ("n", float("nan"), "\u2013"),
        ("n", None, "\u2013"),
        ("share", 0.25, "25 %"),
        ("error_rate", 0.001, "0.1 %"),
        ("bytes_in", 2_500_000, "2.5 MB"),
        ("bytes_in", 12, "12 B"),
        ("time", pd.Timestamp("2026-10-19 14:00"), "19 Oct 14:00"),
        ("outdated", True, "yes"),
        ("groups", ["a", "b"], "a, b"),
        ("groups", list("abcdefg"), "a, b, c, d, e and 2 more"),
        ("topic", "<script>", "&lt;script&gt;"),
    ],
)
def test_page_formats_cells(name: str, value: object, shown: str) -> None:
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text(pd.DataFrame({name: [value]})))
    assert cells == [shown]


def test_page_truncates_long_tables_with_a_note() -> None:
    page = text(pd.DataFrame({"n": range(20)}))
    assert page.count("<td") == 15
    assert "5 more rows" in page


def test_page_names_unreadable_files() -> None:
    page = text(skipped=(("requests/bad.parquet", "it is no Parquet file"),))
    assert "1 could not be read" in page
    assert "requests/bad.parquet: it is no Parquet file" in page


def test_same_figure_gives_the_same_svg() -> None:
    frame = pd.DataFrame({"time": TIMES, "n": [1, 2, 3]})
    assert charts.svg(charts.lines(frame, "n")) == charts.svg(charts.lines(frame, "n"))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_charts_accept_sparse_data(rows: int) -> None:
    frame = pd.DataFrame({"time": TIMES[:rows], "n": [0.0] * rows, "by": ["a"] * rows})
    for figure in (
        charts.lines(frame, "n", logarithmic=True),
        charts.lines(frame, "n", "by", weight="n"),
        charts.areas(frame, "n", "by"),
        charts.bars(frame, "by", "n"),
    ):
        assert charts.svg(figure).startswith("<svg")


@pytest.mark.parametrize(("hours", "every"), [(1, "5 minutes"), (30, "5 minutes"), (31, "1 hour"), (24 * 31, "1 day")])
def test_pictures_have_about_a_hundred_points(hours: int, every: str) -> None:
    start = datetime(2026, 10, 1, tzinfo=UTC)
    assert period(start, start + pd.Timedelta(hours=hours)) == every


def test_the_hour_that_clocks_show_twice_has_two_places() -> None:
    """Berlin, 25 October 2026: 02:00 comes twice; the picture must not add the two."""
    times = pa.array([datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in range(3)], pa.timestamp("us", "UTC"))
    frame = rows(pa.table({"time": times, "protocol": ["grpc"] * 3, "requests": [5, 7, 9]}), "Europe/Berlin")
    assert [clock(time) for time in frame["time"]] == ["02:00+0200", "02:00+0100", "03:00"]
    axes = charts.areas(frame, "requests", "protocol").axes[0]
    assert axes.dataLim.intervaly[1] == 9.0
    (start, *_), end = axes.dataLim.intervalx, axes.dataLim.intervalx[1]
    assert (end - start) * 24 == pytest.approx(2)
    assert {"02:00+0200", "02:00+0100"} <= set(re.findall(r"02:00\+0[12]00", text(frame)))


@pytest.mark.parametrize("name", [r"$\foo$", "a$x_{$b", "^", "{"])
def test_any_name_of_a_topic_can_be_drawn(name: str) -> None:
    """Clients choose names, which are no formulas."""
    frame = pd.DataFrame({"time": TIMES, "n": [1, 2, 3], "topic": name})
    for figure in (
        charts.lines(frame, "n", "topic"),
        charts.areas(frame, "n", "topic"),
        charts.bars(frame, "topic", "n"),
    ):
        assert charts.svg(figure).startswith("<svg")
