"""Retention of files by age and size."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from proxy.observability.records.retention import Retention
from proxy.observability.records.store import Store, StoredFile, partition

HOUR = 500_000
NOW = (HOUR + 1) * 3600.0


def stored(
    hour: int, number: int = 0, size: int = 100, complete: bool = True, changed: float | None = NOW
) -> StoredFile:
    name = f"r-0-1-{number}.parquet"
    return StoredFile(
        f"{partition('requests', hour)}/{name if complete else f'_{name}.tmp'}", hour, size, complete, changed
    )


def due(files: list[StoredFile], time: float = 0.0, size: int = 0, now: float = NOW) -> list[tuple[StoredFile, str]]:
    return list(Retention(time, size, 60.0, Counter()).due(files, now))


def test_the_age_of_a_file_counts_from_the_end_of_its_hour() -> None:
    old, new = stored(HOUR - 3), stored(HOUR - 2)  # whose hours ended three and two hours ago
    assert due([new, old], time=7200.0) == [(old, "age")]
    assert due([new, old], time=7199.0) == [(new, "age"), (old, "age")]
    assert due([new, old], time=10_800.0) == []
    assert due([new, old], time=0.0, now=NOW * 2) == []


def test_the_oldest_files_over_the_size_are_removed() -> None:
    files = [stored(HOUR, 1), stored(HOUR - 1, 2), stored(HOUR, 0), stored(HOUR - 1, 1)]
    assert due(files, size=400) == []
    assert due(files, size=399) == [(stored(HOUR - 1, 1), "size")]
    assert due(files, size=150) == [(stored(HOUR - 1, 1), "size"), (stored(HOUR - 1, 2), "size"), (files[2], "size")]


def test_abandoned_incomplete_files_are_removed() -> None:
    left = stored(HOUR, complete=False, changed=NOW - 61)
    files = [left, stored(HOUR, 1, complete=False, changed=NOW - 59), stored(HOUR, 2, complete=False, changed=None)]
    assert due(files, time=1.0, size=1) == [(left, "leftover")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a store with a file in each of two hours, an incomplete file, and files that are no records."""
    for path in (
        f"{partition('requests', HOUR)}/r-0-1-0.parquet",
        f"{partition('requests', HOUR - 100)}/r-0-1-0.parquet",
        f"{partition('members', HOUR - 100)}/r-0-1-0.parquet",
        f"{partition('requests', HOUR)}/_r-0-1-1.parquet.tmp",
        f"{partition('requests', HOUR - 100)}/unrelated.txt",
        f"{partition('others', HOUR - 100)}/r-0-1-0.parquet",
        "precious.parquet",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * 100)
    return tmp_path


def test_only_records_and_empty_partitions_are_removed(place: Path) -> None:
    removed: Counter[str] = Counter()
    leftover = place / partition("requests", HOUR) / "_r-0-1-1.parquet.tmp"
    os.utime(leftover, (0, 0))
    assert Retention(3600.0, 0, 60.0, removed).apply(Store(str(place)), NOW) == 3
    assert removed == {"age": 2, "leftover": 1}
    left = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert left == sorted(
        [
            f"{partition('others', HOUR - 100)}/r-0-1-0.parquet",
            "precious.parquet",
            f"{partition('requests', HOUR)}/r-0-1-0.parquet",
            f"{partition('requests', HOUR - 100)}/unrelated.txt",
        ]
    )
    assert not (place / "members").exists()


def test_a_file_that_another_replica_removed_is_ignored(place: Path) -> None:
    store = Store(str(place))
    stored_files = list(store.files())
    for each in stored_files:
        store.remove(each)
    for each in stored_files:
        store.remove(each)
    assert list(store.files()) == []


def test_an_empty_store_is_left_unchanged(tmp_path: Path) -> None:
    assert Retention(1.0, 1, 1.0, Counter()).apply(Store(str(tmp_path / "not yet")), time.time()) == 0
