"""Files open, grow, are complete; and what happens where they cannot."""

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from proxy.observability.records import file as record_file
from proxy.observability.records.counts import Counts
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import REQUESTS
from proxy.observability.records.store import Store
from proxy.observability.records.writer import Writer
from tests.proxy.fakes import Clock
from tests.proxy.observability.records import kit
from tests.proxy.observability.records.kit import files, read, seen

HOUR = 500_000


def batch(rows: int = 100, **more: Any) -> pa.RecordBatch:
    return kit.batch(*(seen(started=HOUR * 3600 + each, key=f"key {each}", **more) for each in range(rows)))


class Bench:
    """A writer with a clock to set."""

    def __init__(self, directory: Path, store: Store | None = None, file_size: int = 2**30) -> None:
        self.directory = directory
        self.clock = Clock()
        self.counts = Counts()
        self.writer = Writer(
            store or Store(str(directory)), Origin("r", 0, 1), self.counts, 60.0, file_size, self.clock
        )

    def write(self, made: pa.RecordBatch | None = None, hour: int = HOUR) -> None:
        self.writer.write(REQUESTS, hour, batch() if made is None else made, self.clock.now)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_file_is_complete_after_the_interval(bench: Bench) -> None:
    bench.write()
    bench.clock.now += 59.9
    bench.write()
    bench.writer.finish()
    assert files(bench.directory) == []
    assert (bench.writer.rows, bench.writer.since) == (200, 1000.0)
    bench.clock.now += 0.1
    bench.writer.finish()
    (file,) = files(bench.directory)
    assert len(read(bench.directory, "requests")) == bench.counts.written["requests"] == 200
    assert bench.counts.bytes["requests"] == file.stat().st_size
    assert (bench.writer.rows, bench.writer.since) == (0, None)


def test_a_file_is_complete_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "ROW_GROUP", 1_000)
    bench = Bench(tmp_path, file_size=9_000)
    for _ in range(60):
        bench.write()
    found = files(tmp_path)
    assert len(found) > 1
    assert all(9_000 <= file.stat().st_size < 40_000 for file in found)
    bench.writer.finish(everything=True)
    assert len(read(tmp_path, "requests")) == bench.counts.written["requests"] == 6_000


def test_hours_have_files_of_their_own_and_a_late_row_gets_a_new_one(bench: Bench) -> None:
    bench.write(hour=HOUR)
    bench.write(hour=HOUR + 1)
    bench.writer.finish(everything=True)
    bench.write(hour=HOUR)
    bench.writer.finish(everything=True)
    assert [str(each.relative_to(bench.directory)) for each in files(bench.directory)] == [
        "requests/date=2027-01-15/hour=08/r-0-1-0.parquet",
        "requests/date=2027-01-15/hour=08/r-0-1-2.parquet",
        "requests/date=2027-01-15/hour=09/r-0-1-1.parquet",
    ]


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file of this process can grow beyond this."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def test_a_full_disk_drops_counts_logs_and_leaves_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk(3_000):
        bench.write(batch(1_000))
        bench.writer.finish(everything=True)
        assert bench.counts.dropped == {"store": 1_000}
        # For a while nothing is tried.
        bench.write()
        assert bench.counts.dropped == {"store": 1_100}
        bench.clock.now += 6
        bench.write(batch(1_000))
        bench.writer.finish(everything=True)
    assert bench.counts.dropped == {"store": 2_100}
    assert [path for path in bench.directory.rglob("*") if path.is_file()] == []
    (line,) = caplog.messages
    assert line.startswith("traffic records cannot be written, 1000 have been lost:")
    # There is room again.
    bench.clock.now += 6
    bench.write()
    bench.writer.finish(everything=True)
    assert bench.counts.written == {"requests": 100}
    assert len(read(bench.directory, "requests")) == 100


def test_it_fails_while_it_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "ROW_GROUP", 1_000)
    bench = Bench(tmp_path)
    bench.write(batch(1_000))
    with full_disk(1_000):
        bench.write(batch(1_000))
    assert bench.counts.dropped == {"store": 2_000}
    assert bench.writer.rows == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Broken(Store):
    """Whatever is tried fails, in ways that no store should."""

    def create(self, path: str) -> Any:
        raise RuntimeError("the network is gone")


def test_the_log_speaks_once_a_minute_and_says_how_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, Broken(str(tmp_path)))
    with caplog.at_level(logging.ERROR):
        for _ in range(130):
            bench.write(batch(1))
            bench.writer.finish(everything=True)
            bench.clock.now += 1
    assert [message.split(", ")[1] for message in caplog.messages] == [
        "1 have been lost: the network is gone",
        "60 have been lost: the network is gone",
        "60 have been lost: the network is gone",
    ]
    assert bench.counts.dropped == {"store": 130}


def test_a_file_that_cannot_be_named_is_lost_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Store, "publish", fail)
    bench.write()
    bench.writer.finish(everything=True)
    assert bench.counts.dropped == {"store": 100}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
