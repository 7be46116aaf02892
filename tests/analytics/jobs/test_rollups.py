"""Stored roll-ups, by hour and day, equal those made at once."""

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from analytics import records
from analytics.jobs import partitions, rollups
from analytics.jobs.partitions import Manifest
from analytics.jobs.place import Directory
from analytics.jobs.rollups import DAILY, HOURLY, Rolled, read, roll
from analytics.record_errors import NoRecords
from analytics.transforms.rollup import CELL, STORED, rollup
from tests.analytics.frames import at, failed, only, receive, send
from tests.analytics.jobs.record_files import plain, rows, write


def fill(root: Path) -> None:
    times = [at(minutes) for minutes in range(0, 3 * 1440, 700)]
    write(root, [send(time, latency_us=1000 + number) for number, time in enumerate(times)])
    write(root, [receive(time + timedelta(seconds=1), group="g") for time in times], "replica-1-0-0")


@pytest.fixture(scope="module")
def rolled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield records, rolled up once; tests take copies."""
    folder = tmp_path_factory.mktemp("rolled")
    fill(folder / "records")
    assert roll(spark, str(folder / "records"), str(folder / "rolled")) == Rolled(hours=7, days=3, kept=0)
    return folder


@pytest.fixture
def places(rolled: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Yield copies of records and of their roll-ups."""
    shutil.copytree(rolled, tmp_path, dirs_exist_ok=True)
    return tmp_path / "records", tmp_path / "rolled"


def expected(spark: SparkSession, root: Path, every: str, zone: str = "UTC") -> list[str]:
    return plain(rollup(records.read(spark, str(root)).frame, STORED, every, zone, clients=True))


def kept(spark: SparkSession, out: Path, name: str) -> list[str]:
    return plain(read(spark, str(out), name))


def test_rollups_equal_those_of_the_records(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    assert kept(spark, out, HOURLY) == expected(spark, root, "1 hour")
    assert kept(spark, out, DAILY) == expected(spark, root, "1 day")
    # A second run does nothing.
    before = {path: path.stat().st_ino for path in out.rglob("*.parquet")}
    assert roll(spark, str(root), str(out)) == Rolled(hours=0, days=0, kept=7)
    assert {path: path.stat().st_ino for path in out.rglob("*.parquet")} == before


def test_late_records_change_their_hour_and_day_only(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    write(root, [failed(at(1445))], "replica-0-9-0")
    assert roll(spark, str(root), str(out)) == Rolled(hours=1, days=1, kept=7)
    assert kept(spark, out, HOURLY) == expected(spark, root, "1 hour")
    assert kept(spark, out, DAILY) == expected(spark, root, "1 day")


def test_a_row_of_another_hour_does_not_replace_that_hour(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    before = kept(spark, out, HOURLY)
    write(root, [send(at(1443))], "replica-0-9-0")
    late = next(root.rglob("replica-0-9-0.parquet"))
    # At 0:00 and 11:40 there are hours already.
    late.rename(root / "requests/date=2026-10-19/hour=11" / late.name)
    done = roll(spark, str(root), str(out))
    assert [each.reason for each in done.skipped] == ["1 of its 1 rows lie in another hour than its directory's"]
    assert kept(spark, out, HOURLY) == before == expected(spark, root, "1 hour")
    # It is named by later runs too.
    assert [each.path.rsplit("/", 1)[1] for each in roll(spark, str(root), str(out)).skipped] == [late.name]


def test_damaged_file_is_read_again_when_it_is_repaired(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    write(root, [failed(at(1445))], "replica-0-9-0")
    path = next(root.rglob("replica-0-9-0.parquet"))
    contents = path.read_bytes()
    path.write_bytes(bytes(len(contents)))
    first = roll(spark, str(root), str(out))
    assert ([each.path.rsplit("/", 1)[1] for each in first.skipped], first.hours) == ([path.name], 1)
    again = roll(spark, str(root), str(out))
    assert (again.skipped, again.hours) == (first.skipped, 0)
    # A file of the same size.
    path.write_bytes(contents)
    os.utime(path, (0, path.stat().st_mtime + 1))
    assert roll(spark, str(root), str(out)) == Rolled(hours=1, days=1, kept=7)
    assert kept(spark, out, HOURLY) == expected(spark, root, "1 hour")


def test_rollup_without_files_raises_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="nothing was rolled up"):
        roll(spark, str(tmp_path), str(tmp_path / "out"))


def test_daily_rollups_follow_the_zone(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "rolled"
    fill(root)
    assert roll(spark, str(root), str(out), "Europe/Berlin").days == 4
    assert kept(spark, out, DAILY) == expected(spark, root, "1 day", "Europe/Berlin")
    with pytest.raises(ValueError, match="those of Europe/Berlin"):
        roll(spark, str(root), str(out))


def test_rollup_after_a_crash_between_hours_and_days_completes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = tmp_path / "records", tmp_path / "rolled"
    fill(root)

    class Dead(Exception):
        pass

    def dying(*_: object) -> int:
        raise Dead

    with monkeypatch.context() as patch:
        patch.setattr(rollups, "_roll_days", dying)
        with pytest.raises(Dead):
            roll(spark, str(root), str(out))
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "remember", dying)
        with pytest.raises(Dead):
            roll(spark, str(root), str(out))
    assert roll(spark, str(root), str(out)).days == 3
    assert kept(spark, out, HOURLY) == expected(spark, root, "1 hour")
    assert kept(spark, out, DAILY) == expected(spark, root, "1 day")


def test_rollups_keep_removed_records(spark: SparkSession, places: tuple[Path, Path]) -> None:
    root, out = places
    before = rows(out / DAILY)
    for path in root.rglob("date=2026-10-19/*/*.parquet"):
        path.unlink()
    assert roll(spark, str(root), str(out)).days == 0
    assert rows(out / DAILY) == before


def test_read_without_rollups_raises_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="gantry analytics rollup makes them"):
        read(spark, str(tmp_path))
    with pytest.raises(ValueError, match="is no time zone"):
        roll(spark, str(tmp_path), str(tmp_path / "out"), "Mars")


def test_rollups_count_clients_without_naming_them(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "records", tmp_path / "rolled"
    clients = [None, *(f"10.0.0.{number}@1" for number in range(300))]
    for name, minutes in (("replica-0-1-0", 0), ("replica-1-1-0", 90)):
        write(root, [send(at(minutes), client_id=client, latency_us=1000) for client in clients], name)
    roll(spark, str(root), str(out))
    for name in (HOURLY, DAILY):
        rolled = read(spark, str(out), name)
        assert "client_id" not in rolled.columns
        assert rolled.count() == (2 if name == HOURLY else 1)
        assert only(rolled.agg(f.hll_sketch_estimate(f.hll_union_agg("clients")).alias("n")))["n"] == pytest.approx(
            300, rel=0.02
        )
        assert all(b"10.0.0." not in path.read_bytes() for path in (out / name).rglob("*.parquet"))


def former(spark: SparkSession, root: Path, out: Path) -> None:
    """Replace roll-ups by those of version 1, which had a row for each client."""
    (out / "_version").unlink()
    target = Directory(out)
    hourly = rollup(records.read(spark, str(root)).frame, CELL, "1 hour")
    dated = hourly.withColumns({"date": f.to_date("time"), "hour": f.hour("time")})
    partitions.promote(target, HOURLY, partitions.stage(dated, target, HOURLY, ["date", "hour"], list(CELL)))
    dated = rollup(hourly, CELL, "1 day").withColumn("date", f.to_date("time"))
    partitions.promote(target, DAILY, partitions.stage(dated, target, DAILY, ["date"], list(CELL)))


def test_rollups_of_the_former_version_are_converted_without_their_records(
    spark: SparkSession, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = places
    hours, days = kept(spark, out, HOURLY), kept(spark, out, DAILY)
    former(spark, root, out)
    with pytest.raises(ValueError, match="converts them"):
        read(spark, str(out))
    # A file remains: retention has removed the others.
    for path in sorted(root.rglob("*.parquet"))[1:]:
        path.unlink()
    moves: list[str] = []
    move = Directory.move

    def dying(self: Directory, old: str, new: str) -> None:
        moves.append(new)
        if len(moves) == 4:
            raise KeyboardInterrupt
        move(self, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "move", dying)
        with pytest.raises(KeyboardInterrupt):
            roll(spark, str(root), str(out))
    # Some hours are converted, the others are not.
    assert roll(spark, str(root), str(out)) == Rolled(hours=0, days=0, kept=1)
    assert kept(spark, out, HOURLY) == hours
    assert kept(spark, out, DAILY) == days
