"""Writer: completion of files, and failures of the store."""

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from proxy.observability.records import file as record_file
from proxy.observability.records.counts import RecordCounts
from proxy.observability.records.origin import Origin
from proxy.observability.records.schema import REQUESTS
from proxy.observability.records.store import Store
from proxy.observability.records.writer import Writer
from tests.proxy.fakes import Clock
from tests.proxy.observability.records import samples
from tests.proxy.observability.records.samples import files, observation, read

HOUR = 500_000


def batch(rows: int = 100, **attributes: Any) -> pa.RecordBatch:
    return samples.batch(
        *(observation(started=HOUR * 3600 + each, key=f"key {each}", **attributes) for each in range(rows))
    )


class WriterSetup:
    """A writer with a fake clock."""

    def __init__(self, directory: Path, store: Store | None = None, file_size: int = 2**30) -> None:
        self.directory = directory
        self.clock = Clock()
        self.counts = RecordCounts()
        self.writer = Writer(
            store or Store(str(directory)), Origin("r", 0, 1), self.counts, 60.0, file_size, self.clock
        )

    def write(self, rows: pa.RecordBatch | None = None, hour: int = HOUR) -> None:
        self.writer.write(REQUESTS, hour, batch() if rows is None else rows, self.clock.now)


@pytest.fixture
def setup(tmp_path: Path) -> WriterSetup:
    return WriterSetup(tmp_path)


def test_a_file_is_completed_after_the_interval(setup: WriterSetup) -> None:
    setup.write()
    setup.clock.now += 59.9
    setup.write()
    setup.writer.finish()
    assert files(setup.directory) == []
    assert (setup.writer.rows, setup.writer.since) == (200, 1000.0)
    setup.clock.now += 0.1
    setup.writer.finish()
    (file,) = files(setup.directory)
    assert len(read(setup.directory, "requests")) == setup.counts.written["requests"] == 200
    assert setup.counts.bytes["requests"] == file.stat().st_size
    assert (setup.writer.rows, setup.writer.since) == (0, None)


def test_a_file_is_completed_at_the_file_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "ROW_GROUP", 1_000)
    setup = WriterSetup(tmp_path, file_size=9_000)
    for _ in range(60):
        setup.write()
    written = files(tmp_path)
    assert len(written) > 1
    assert all(9_000 <= file.stat().st_size < 40_000 for file in written)
    setup.writer.finish(everything=True)
    assert len(read(tmp_path, "requests")) == setup.counts.written["requests"] == 6_000


def test_each_hour_has_its_files_and_a_late_row_a_new_one(setup: WriterSetup) -> None:
    setup.write(hour=HOUR)
    setup.write(hour=HOUR + 1)
    setup.writer.finish(everything=True)
    setup.write(hour=HOUR)
    setup.writer.finish(everything=True)
    assert [str(each.relative_to(setup.directory)) for each in files(setup.directory)] == [
        "requests/date=2027-01-15/hour=08/r-0-1-0.parquet",
        "requests/date=2027-01-15/hour=08/r-0-1-2.parquet",
        "requests/date=2027-01-15/hour=09/r-0-1-1.parquet",
    ]


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Limit the size of all files that this process writes."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def test_a_full_disk_drops_records_and_leaves_no_file(setup: WriterSetup, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk(3_000):
        setup.write(batch(1_000))
        setup.writer.finish(everything=True)
        assert setup.counts.dropped == {"store": 1_000}
        # Not tried again before the retry interval.
        setup.write()
        assert setup.counts.dropped == {"store": 1_100}
        setup.clock.now += 6
        setup.write(batch(1_000))
        setup.writer.finish(everything=True)
    assert setup.counts.dropped == {"store": 2_100}
    assert [path for path in setup.directory.rglob("*") if path.is_file()] == []
    (line,) = caplog.messages
    assert line.startswith("cannot write traffic records, 1000 were lost:")
    # The disk has room again.
    setup.clock.now += 6
    setup.write()
    setup.writer.finish(everything=True)
    assert setup.counts.written == {"requests": 100}
    assert len(read(setup.directory, "requests")) == 100


def test_a_failure_of_an_open_file_drops_all_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "ROW_GROUP", 1_000)
    setup = WriterSetup(tmp_path)
    setup.write(batch(1_000))
    with full_disk(1_000):
        setup.write(batch(1_000))
    assert setup.counts.dropped == {"store": 2_000}
    assert setup.writer.rows == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class FailingStore(Store):
    """A store that raises an unexpected exception."""

    def create(self, path: str) -> Any:
        raise RuntimeError("the network is gone")


def test_failures_are_logged_once_per_minute_with_the_number_of_lost_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setup = WriterSetup(tmp_path, FailingStore(str(tmp_path)))
    with caplog.at_level(logging.ERROR):
        for _ in range(130):
            setup.write(batch(1))
            setup.writer.finish(everything=True)
            setup.clock.now += 1
    assert [message.split(", ")[1] for message in caplog.messages] == [
        "1 were lost: the network is gone",
        "60 were lost: the network is gone",
        "60 were lost: the network is gone",
    ]
    assert setup.counts.dropped == {"store": 130}


def test_a_file_that_cannot_be_published_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = WriterSetup(tmp_path)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Store, "publish", fail)
    setup.write()
    setup.writer.finish(everything=True)
    assert setup.counts.dropped == {"store": 100}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
