"""Places: the same behaviour for a local directory and for Hadoop."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from analytics.jobs.place import Directory, HadoopDirectory, Place, place

Make = Callable[[SparkSession, Path], Place]


def as_object_store(spark: SparkSession, path: Path) -> HadoopDirectory:
    """Return a directory whose files are written under their final names; `make s3` proves it with a real server."""
    target = HadoopDirectory(spark, path.as_uri())
    target._whole_on_close = True
    return target


PLACES: tuple[Make, ...] = (
    lambda spark, path: Directory(path),
    # Hadoop's local file system stands for HDFS: the calls are the same.
    lambda spark, path: HadoopDirectory(spark, path.as_uri()),
    as_object_store,
)


@pytest.mark.parametrize("make", PLACES)
def test_place_writes_moves_and_removes_files(spark: SparkSession, tmp_path: Path, make: Make) -> None:
    target = make(spark, tmp_path / "out")
    assert target.read("a/b") is None
    assert target.names("a") == []
    target.write("a/b", b"one")
    target.write("a/b", b"\x00two\xff")
    assert target.read("a/b") == b"\x00two\xff"
    target.write("a/c", b"three")
    target.move("a/c", "d/e")
    target.write("a/b", b"four")
    target.move("a/b", "d/e")
    assert target.read("d/e") == b"four"
    assert [name for name in target.names("a") if not name.startswith(".")] == []
    assert "e" in target.names("d")
    target.remove("d")
    target.remove("d")
    assert target.names("d") == []
    target.write("top", b"")
    assert target.read("top") == b""


def test_place_hides_partial_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Directory(tmp_path)
    target.write("records.parquet", b"old")

    def fails(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("analytics.jobs.place.os.fsync", fails)
    with pytest.raises(OSError, match="no space"):
        target.write("records.parquet", b"new")
    assert target.read("records.parquet") == b"old"
    assert all(name.startswith("_") for name in target.names() if name != "records.parquet")


def test_object_store_aborts_a_file_that_is_not_written_completely(spark: SparkSession, tmp_path: Path) -> None:
    target = as_object_store(spark, tmp_path)
    calls: list[str] = []

    class Stream:
        def abort(self) -> None:
            calls.append("abort")

        def close(self) -> None:
            calls.append("close")

        def write(self, _: bytearray) -> None:
            raise OSError("the network is down")

    target._files = SimpleNamespace(create=lambda *_: Stream())
    with pytest.raises(OSError, match="network"):
        target.write("records.parquet", b"new")
    assert calls == ["abort", "close"]


def test_place_is_chosen_by_the_scheme(spark: SparkSession, tmp_path: Path) -> None:
    assert isinstance(place(spark, str(tmp_path)), Directory)
    named = place(spark, (tmp_path / "with space").as_uri())
    assert isinstance(named, Directory)
    assert named.uri == str(tmp_path / "with space")
