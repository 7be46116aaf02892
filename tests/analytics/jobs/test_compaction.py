"""Compaction: the same rows in fewer files, also after crashes."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.jobs import partitions
from analytics.jobs.compaction import compact
from analytics.jobs.place import Directory
from analytics.record_errors import NoRecords
from tests.analytics.frames import at, connection, send
from tests.analytics.jobs.record_files import rows, write


class Dead(Exception):
    """A simulated crash."""


def fill(root: Path) -> None:
    for number in range(4):
        write(root, [send(at(minute), latency_us=number) for minute in (5, 65)], f"replica-0-{number}-0")
    write(root, [connection(at(7))], of="connections")


@pytest.fixture(scope="module")
def compacted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield records, compacted once; tests take copies."""
    folder = tmp_path_factory.mktemp("compacted")
    fill(folder / "records")
    compact(spark, str(folder / "records"), str(folder / "compact"))
    return folder


@pytest.fixture
def places(compacted: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Yield copies of records and of their compaction."""
    shutil.copytree(compacted, tmp_path, dirs_exist_ok=True)
    return tmp_path / "records", tmp_path / "compact"


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.parquet"))


def test_compact_keeps_rows_in_one_file_per_hour(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "compact"
    fill(root)
    done = compact(spark, str(root), str(out))
    assert (done.files, done.partitions, done.rows, done.kept) == (9, 3, 9, 0)
    for table in ("requests", "connections"):
        assert rows(out / table) == rows(root / table)
    assert files(out) == [
        "connections/date=2026-10-19/hour=00/records.parquet",
        "requests/date=2026-10-19/hour=00/records.parquet",
        "requests/date=2026-10-19/hour=01/records.parquet",
    ]


def test_only_hours_with_new_files_are_written_again(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    before = {path: path.stat().st_ino for path in out.rglob("*.parquet")}
    assert compact(spark, str(root), str(out)).partitions == 0
    # Late, in a file of its own.
    write(root, [send(at(66), latency_us=99)], "replica-1-0-0")
    done = compact(spark, str(root), str(out))
    assert (done.partitions, done.kept) == (1, 2)
    assert rows(out / "requests") == rows(root / "requests")
    changed = {path.parent.name for path in out.rglob("*.parquet") if before.get(path) != path.stat().st_ino}
    assert changed == {"hour=01"}


def test_compact_keeps_hours_removed_by_retention(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    before = rows(root / "requests")
    next(root.rglob("requests/*/hour=00/*.parquet")).unlink()
    assert compact(spark, str(root), str(out)).partitions == 0
    assert rows(out / "requests") == before


@pytest.mark.parametrize("dies_at", range(3))
def test_compact_after_a_crash_completes(
    spark: SparkSession, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """Crash before anything is in place, between two partitions, and before the manifest is written."""
    root, out = places
    old = rows(out / "requests")
    write(root, [send(at(minute), latency_us=99) for minute in (6, 66)], "replica-1-0-0")
    moved: list[str] = []
    move = Directory.move

    def moving(place: Directory, old: str, new: str) -> None:
        if len(moved) == dies_at:
            raise Dead
        moved.append(new)
        move(place, old, new)

    def dying(*_: object) -> None:
        raise Dead

    with monkeypatch.context() as patch:
        if dies_at < 2:
            patch.setattr(Directory, "move", moving)
        else:
            patch.setattr(partitions.Manifest, "remember", dying)
        with pytest.raises(Dead):
            compact(spark, str(root), str(out))
    whole = rows(root / "requests")
    between = rows(out / "requests")
    # Each hour is the old one or the new one.
    assert between == (old, old + type(old)({row: 1 for row in whole - old if row[1] < at(60)}), whole)[dies_at]
    compact(spark, str(root), str(out))
    assert rows(out / "requests") == whole
    assert not list((out / "_staging").iterdir())


def test_compact_skips_and_names_damaged_files(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "compact"
    fill(root)
    bad = root / "requests/date=2026-10-19/hour=00/bad.parquet"
    bad.write_bytes(b"half a file")
    before = sum(rows(root / "connections").values())
    done = compact(spark, str(root), str(out))
    assert [each.path.rpartition("/")[2] for each in done.skipped] == ["bad.parquet"]
    assert sum(rows(out / "requests").values()) == 8
    assert sum(rows(out / "connections").values()) == before


def test_compact_with_a_bad_place_raises_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="there is no directory"):
        compact(spark, str(tmp_path / "none"), str(tmp_path / "out"))
    with pytest.raises(ValueError, match="name another directory"):
        compact(spark, str(tmp_path), str(tmp_path))
