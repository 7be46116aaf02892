"""Roll-ups, report tables and SQL equal an independent count of the same rows.

The files are random: damaged ones, rows of another hour than their directory's, late and rewritten files, two schema
versions, days on which clocks change, and runs that die at any operation on a file.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from analytics.generator import files
from analytics.jobs.engine import select
from analytics.jobs.place import Directory
from analytics.jobs.report import Order, report
from analytics.jobs.rollups import DAILY, HOURLY, read, roll
from analytics.record_errors import NoRecords
from analytics.schema import REQUESTS
from proxy.observability.records import arrow
from tests.analytics import frames as kit

_ZONE = "Europe/Berlin"
# Sundays on which clocks go back and forward.
_SUNDAYS = (datetime(2026, 10, 25, tzinfo=UTC), datetime(2027, 3, 28, tzinfo=UTC))
_FATES = ("whole", "whole", "late", "rewritten", "old version", "damaged", "stray")
Key = tuple[datetime, str]
Sums = tuple[float, float, float]


@dataclass(frozen=True)
class RecordFile:
    """A file of one hour. rows: minute, topic, success, messages, weight of each."""

    hour: int
    fate: str
    rows: tuple[tuple[int, str, bool, int, float | None], ...]


_ROWS = st.tuples(
    st.integers(0, 59),
    st.sampled_from(["shop%orders", "shop%paid", "plain"]),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from([None, 1.0, 4.0]),
)
# From Saturday 22:00 UTC to Monday 00:00: days of Berlin begin at 22:00 or 23:00 UTC.
_FILES = st.builds(
    RecordFile,
    st.integers(-2, 23),
    st.sampled_from(_FATES),
    st.lists(_ROWS, min_size=1, max_size=12).map(tuple),
)


def _records(sunday: datetime, file: RecordFile) -> list[kit.Row]:
    begin = sunday + timedelta(hours=file.hour)
    rows = []
    for minute, topic, ok, messages, weight in file.rows:
        row = kit.send(begin + timedelta(minutes=minute), topic=topic, ok=ok, messages=messages, weight=weight)
        rows.append(row | {"response": 20000 if ok else 50001})
    if file.fate == "stray":
        rows[0]["time"] += timedelta(hours=3)
    return rows


def _write(root: Path, sunday: datetime, file: RecordFile, name: str) -> None:
    begin = sunday + timedelta(hours=file.hour)
    schema = arrow.schema(REQUESTS)
    if file.fate == "old version":
        schema = pa.schema([field for field in schema if field.name != "weight"], metadata=schema.metadata)
    rows = [{field: row.get(field) for field in schema.names} for row in _records(sunday, file)]
    place = files.directory(root, REQUESTS, begin)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path, write_page_checksum=True)
    if file.fate == "damaged":
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])


def _counted(sunday: datetime, given_files: Sequence[RecordFile]) -> dict[Key, Sums]:
    """Return requests, errors and messages by hour and topic, counted without any of the code under test."""
    sums: dict[Key, list[float]] = {}
    for file in given_files:
        begin = sunday + timedelta(hours=file.hour)
        for row in _records(sunday, file) if file.fate != "damaged" else ():
            hour = row["time"].replace(minute=0)
            if hour != begin:
                continue
            weight = 1.0 if file.fate == "old version" else row["weight"] or 1.0
            entry = sums.setdefault((hour, row["topic"]), [0.0, 0.0, 0.0])
            for place, value in enumerate((weight, 0.0 if row["ok"] else weight, row["messages"] * weight)):
                entry[place] += value
    return {key: (entry[0], entry[1], entry[2]) for key, entry in sums.items()}


def _summed(rows: Sequence[Mapping[Any, Any]], time: str = "time") -> dict[Key, Sums]:
    sums: dict[Key, list[float]] = {}
    for row in rows:
        when = pd.Timestamp(row[time])
        when = when.tz_localize(UTC) if when.tzinfo is None else when.tz_convert(UTC)
        entry = sums.setdefault((when.to_pydatetime(), row["topic"]), [0.0, 0.0, 0.0])
        for place, name in enumerate(("requests", "errors", "messages")):
            entry[place] += float(row[name])
    return {key: (entry[0], entry[1], entry[2]) for key, entry in sums.items()}


def _days(hours: dict[Key, Sums]) -> dict[Key, Sums]:
    """Return the sums of hours by the day of the zone in which they begin."""
    totals: dict[Key, Counter[int]] = {}
    for (hour, topic), sums in hours.items():
        local = hour.astimezone(ZoneInfo(_ZONE))
        midnight = local.replace(hour=0, fold=0).astimezone(UTC)
        totals.setdefault((midnight, topic), Counter()).update(dict(enumerate(sums)))
    return {key: (total[0], total[1], total[2]) for key, total in totals.items()}


class _Killed(BaseException):
    """The process ends here: nothing after it runs."""


@contextmanager
def _dying(after: int) -> Iterator[None]:
    """Let the process die at an operation on a file of the result."""
    left = [after]

    def counted(operation: Any) -> Any:
        def call(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise _Killed
            return operation(*arguments)

        return call

    with (
        mock.patch.object(Directory, "write", counted(Directory.write)),
        mock.patch.object(Directory, "move", counted(Directory.move)),
        mock.patch.object(Directory, "remove", counted(Directory.remove)),
        suppress(_Killed),
    ):
        yield


def _roll(spark: SparkSession, root: Path, out: Path) -> None:
    try:
        roll(spark, str(root), str(out), _ZONE)
    except NoRecords:
        assert not list(root.rglob("*.parquet"))


def _check(spark: SparkSession, sunday: datetime, given_files: Sequence[RecordFile], deaths: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder, "records"), Path(folder, "out")
        root.mkdir()
        named = [(f"gantry-0-{number}", file) for number, file in enumerate(given_files)]
        for name, file in named:
            if file.fate != "late":
                _write(root, sunday, file, name)
        for death in deaths:
            with _dying(death):
                _roll(spark, root, out)
        for name, file in named:
            if file.fate in ("late", "rewritten"):
                _write(root, sunday, file, name)
                path = next(root.rglob(f"{name}.parquet"))
                os.utime(path, (0, path.stat().st_mtime + 2))
        for death in deaths[:1]:
            with _dying(death):
                _roll(spark, root, out)
        _roll(spark, root, out)
        expected = _counted(sunday, given_files)
        if expected:
            stored = {name: _summed(kit.contents(read(spark, str(out), name))) for name in (HOURLY, DAILY)}
            assert stored[HOURLY] == expected
            assert stored[DAILY] == _days(expected)
            statement = "SELECT hour, topic, requests, errors, messages FROM hourly"
            answered = select(lambda: nullcontext(spark), str(root), None, None, statement)
            assert _summed(answered.to_dict("records"), "hour") == expected
    spark.catalog.clearCache()


_WORLDS = st.tuples(
    st.sampled_from(_SUNDAYS), st.lists(_FILES, min_size=1, max_size=6), st.lists(st.integers(0, 9), max_size=2)
)
_QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@settings(_QUIET, max_examples=2, derandomize=True, phases=[Phase.generate])
@given(_WORLDS)
def test_rollups_and_sql_equal_an_independent_count(
    spark: SparkSession, world: tuple[datetime, list[RecordFile], list[int]]
) -> None:
    _check(spark, *world)


def test_every_fate_of_a_file_on_both_changes_of_the_clock(spark: SparkSession) -> None:
    """Both 02:00 hours, the missing one, and every kind of file, with a death before the manifest is written."""
    rows = ((5, "shop%orders", True, 2, 4.0), (50, "plain", False, 0, None), (59, "shop%paid", True, 1, None))
    hours = (-2, -1, 0, 1, 22, 23, 0)
    given_files = [RecordFile(hour, fate, rows) for hour, fate in zip(hours, _FATES, strict=True)]
    for sunday, deaths in zip(_SUNDAYS, ([2], [5, 1]), strict=True):
        _check(spark, sunday, given_files, deaths)


@pytest.mark.complete
@pytest.mark.timeout(3600)
@settings(_QUIET, max_examples=40)
@given(_WORLDS)
def test_rollups_and_sql_equal_an_independent_count_often(
    spark: SparkSession, world: tuple[datetime, list[RecordFile], list[int]]
) -> None:
    _check(spark, *world)


@pytest.mark.parametrize(
    "sunday",
    [pytest.param(_SUNDAYS[0], id="back"), pytest.param(_SUNDAYS[1], id="forward", marks=pytest.mark.complete)],
)
def test_tables_of_the_report_equal_an_independent_count(spark: SparkSession, sunday: datetime, tmp_path: Path) -> None:
    rows = ((5, "shop%orders", True, 2, 4.0), (50, "plain", False, 3, None))
    fates = ("whole", "old version", "damaged", "stray", "whole")
    given_files = [RecordFile(hour, fate, rows) for hour, fate in zip((-2, 0, 1, 2, 0), fates, strict=True)]
    for number, file in enumerate(given_files):
        _write(tmp_path, sunday, file, f"gantry-0-{number}")
    made = report(spark, str(tmp_path), str(tmp_path / "out"), Order(zone=_ZONE))
    assert len(made.skipped) == 2
    expected = _counted(sunday, given_files)
    load = pq.read_table(tmp_path / "out/tables/load.parquet").to_pandas()
    topics = pq.read_table(tmp_path / "out/tables/topics.parquet").to_pandas()
    for name, place in (("requests", 0), ("errors", 1), ("messages", 2)):
        assert load[name].sum() == sum(sums[place] for sums in expected.values()), name
    for topic, messages in topics.groupby("topic")["messages"].sum().items():
        assert messages == sum(sums[2] for key, sums in expected.items() if key[1] == topic), topic
    spark.catalog.clearCache()
