"""Store of the files of records: a local directory, an object store, or any other file system of fsspec."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa
from pyarrow import fs

from proxy.observability.records.errors import TrafficError
from proxy.observability.records.schema import TABLES
from proxy.settings.traffic_records import redacted

# Readers (Spark, Hive, Arrow) skip names that begin with an underscore.
_TEMPORARY = "_{}.tmp"
_tables = "|".join(table.name for table in TABLES)
_match_file = re.compile(
    rf"(?:{_tables})/date=(\d{{4}})-(\d\d)-(\d\d)/hour=(\d\d)/(_?)[A-Za-z0-9-]+-\d+-\d+-\d+\.parquet(?:\.tmp)?"
).fullmatch
# File systems without directories: slashes are part of the names.
_FLAT = frozenset({"s3", "gcs", "abfs"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of records.

    hour: since 1970. complete: whether its writer has published it. changed: time of its last change, in seconds.
    """

    path: str
    hour: int
    size: int
    complete: bool
    changed: float | None


class Store:
    """The files of records in one directory or URL. All methods may raise OSError."""

    def __init__(self, where: str) -> None:
        self._where = where

    @cached_property
    def _resolved(self) -> tuple[fs.FileSystem, str]:
        # Resolved again after a failure: some object stores must be reachable for this.
        filesystem, base = _resolve(self._where)
        return filesystem, base.rstrip("/")

    @property
    def _fs(self) -> fs.FileSystem:
        return self._resolved[0]

    @property
    def _base(self) -> str:
        return self._resolved[1]

    @property
    def _local(self) -> bool:
        return isinstance(self._fs, fs.LocalFileSystem)

    def check(self) -> None:
        """Raise TrafficError if no records can be written to the URL, because of its scheme or options."""
        assert self._resolved is not None

    def create(self, path: str) -> "pa.NativeFile":
        """Create a file under its temporary name."""
        name = self._temporary(path)
        if self._fs.type_name not in _FLAT:
            self._fs.create_dir(os.path.dirname(name), recursive=True)
        return self._fs.open_output_stream(name)

    def publish(self, path: str) -> int:
        """Sync a complete, closed file, give it its final name and return its size in bytes."""
        name, final = self._temporary(path), self._full(path)
        if self._local:
            _sync(name)
        self._fs.move(name, final)
        if self._local:
            _sync(os.path.dirname(final))
        size: int = self._fs.get_file_info(final).size
        return size

    def discard(self, path: str) -> None:
        """Remove a file that was not published."""
        self._fs.delete_file(self._temporary(path))

    def remove(self, file: StoredFile) -> None:
        """Remove a file, and its partition if it is empty then. A file that another replica has removed is ignored."""
        full = self._full(file.path)
        try:
            self._fs.delete_file(full)
        except FileNotFoundError:
            return
        if self._local:
            _remove_empty(os.path.dirname(full), self._base)

    def files(self) -> Iterator[StoredFile]:
        """Yield all files of records, in no order; other files are ignored."""
        for table in TABLES:
            selector = fs.FileSelector(self._full(table.name), allow_not_found=True, recursive=True)
            for info in self._fs.get_file_info(selector):
                path = info.path.removeprefix(self._base).lstrip("/")
                match = _match_file(path)
                if match is not None and info.type == fs.FileType.File:
                    year, month, day, hour = map(int, match.groups()[:4])
                    start = datetime(year, month, day, hour, tzinfo=UTC) - _EPOCH
                    changed = None if info.mtime is None else info.mtime.timestamp()
                    yield StoredFile(path, int(start.total_seconds()) // 3600, info.size or 0, not match[5], changed)

    def _full(self, path: str) -> str:
        return f"{self._base}/{path}"

    def _temporary(self, path: str) -> str:
        folder, _, name = self._full(path).rpartition("/")
        return f"{folder}/{_TEMPORARY.format(name)}"


def _resolve(where: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URL, and the path in it. Raises TrafficError."""
    if "://" not in where:
        return fs.LocalFileSystem(), os.path.abspath(where)
    try:
        resolved: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(where)
        return resolved
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        # For schemes that Arrow supports, its error names the mistake.
        if "Unrecognized filesystem type" not in str(error):
            raise TrafficError(f"traffic.directory {redacted(where)}: {_reason(error, where)}") from None
    return _by_fsspec(where)


def partition(table: str, hour: int) -> str:
    """Return the directory of a table's records of an hour since 1970."""
    return datetime.fromtimestamp(hour * 3600, UTC).strftime(f"{table}/date=%Y-%m-%d/hour=%H")


def _reason(error: Exception, where: str) -> str:
    return str(error).replace(where, redacted(where))


def _by_fsspec(where: str) -> tuple[fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise TrafficError(
            f"traffic.directory {redacted(where)}: URLs of this kind need fsspec; pip install 'rocketmq-gantry[fsspec]'"
        ) from None
    try:
        filesystem, path = url_to_fs(where)
    except (ImportError, ValueError) as error:
        # fsspec's error names the package that the scheme needs.
        raise TrafficError(f"traffic.directory {redacted(where)}: {_reason(error, where)}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: str, base: str) -> None:
    """Remove the directory and its parents below `base` while they are empty."""
    while folder != base:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
