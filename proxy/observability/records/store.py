"""Where files of records are: a local directory, an object store, or whatever else fsspec reaches."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from proxy.observability.records.errors import TrafficError
from proxy.observability.records.schema import TABLES

# Readers (Spark, Hive, Arrow) pass over what begins with an underscore.
_TEMPORARY = "_{}.tmp"
_tables = "|".join(table.name for table in TABLES)
_is_ours = re.compile(
    rf"(?:{_tables})/date=(\d{{4}})-(\d\d)-(\d\d)/hour=(\d\d)/(_?)[A-Za-z0-9-]+-\d+-\d+-\d+\.parquet(?:\.tmp)?"
).fullmatch
# These know no directories: a name with slashes is a name.
_FLAT = frozenset({"s3", "gcs", "abfs"})
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of records. hour: since 1970. complete: it is none that is, or was, being written. changed: seconds."""

    path: str
    hour: int
    size: int
    complete: bool
    changed: float | None


class Store:
    """The files below one directory or URL. Everything may raise OSError."""

    def __init__(self, where: str) -> None:
        self._where = where

    @cached_property
    def _place(self) -> tuple[fs.FileSystem, str]:
        # Asked again after it failed: an object store may want to be reached for this.
        filesystem, base = _resolve(self._where)
        return filesystem, base.rstrip("/")

    @property
    def _fs(self) -> fs.FileSystem:
        return self._place[0]

    @property
    def _base(self) -> str:
        return self._place[1]

    @property
    def _local(self) -> bool:
        return isinstance(self._fs, fs.LocalFileSystem)

    def check(self) -> None:
        """Raises TrafficError where nothing can ever be written to such a URL."""
        assert self._place is not None

    def create(self, path: str) -> "pa.NativeFile":
        """Begin a file, at its temporary name."""
        name = self._temporary(path)
        if self._fs.type_name not in _FLAT:
            self._fs.create_dir(os.path.dirname(name), recursive=True)
        return self._fs.open_output_stream(name)

    def publish(self, path: str) -> int:
        """A file is complete and closed: sync it, give it its name; returns its size in bytes."""
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

    def remove(self, stored: Stored) -> None:
        """Remove a file, and its partition when nothing else is there; somebody else may have been faster."""
        full = self._full(stored.path)
        try:
            self._fs.delete_file(full)
        except FileNotFoundError:
            return
        if self._local:
            _remove_empty(os.path.dirname(full), self._base)

    def files(self) -> Iterator[Stored]:
        """All files of records, in no order; what else is there is left alone."""
        for table in TABLES:
            selector = fs.FileSelector(self._full(table.name), allow_not_found=True, recursive=True)
            for info in self._fs.get_file_info(selector):
                path = info.path.removeprefix(self._base).lstrip("/")
                found = _is_ours(path)
                if found is not None and info.type == fs.FileType.File:
                    year, month, day, hour = map(int, found.groups()[:4])
                    since = datetime(year, month, day, hour, tzinfo=UTC) - _FIRST
                    changed = None if info.mtime is None else info.mtime.timestamp()
                    yield Stored(path, int(since.total_seconds()) // 3600, info.size or 0, not found[5], changed)

    def _full(self, path: str) -> str:
        return f"{self._base}/{path}"

    def _temporary(self, path: str) -> str:
        folder, _, name = self._full(path).rpartition("/")
        return f"{folder}/{_TEMPORARY.format(name)}"


def _resolve(where: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path there. Raises TrafficError."""
    if "://" not in where:
        return fs.LocalFileSystem(), os.path.abspath(where)
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(where)
        return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        # Of schemes that Arrow knows, it says itself what is wrong.
        if "Unrecognized filesystem type" not in str(error):
            raise TrafficError(f"traffic.directory {shown(where)}: {_reason(error, where)}") from None
    return _by_fsspec(where)


def partition(table: str, hour: int) -> str:
    """The directory of a table's records of an hour since 1970."""
    return datetime.fromtimestamp(hour * 3600, UTC).strftime(f"{table}/date=%Y-%m-%d/hour=%H")


def shown(where: str) -> str:
    """A path or URL without what may be secret in it: user, password, options."""
    if "://" not in where:
        return where
    parts = urlsplit(where)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception, where: str) -> str:
    return str(error).replace(where, shown(where))


def _by_fsspec(where: str) -> tuple[fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise TrafficError(
            f"traffic.directory {shown(where)}: URLs of this kind need fsspec; pip install 'rocketmq-gantry[fsspec]'"
        ) from None
    try:
        found, path = url_to_fs(where)
    except (ImportError, ValueError) as error:
        # fsspec names the package that a protocol needs.
        raise TrafficError(f"traffic.directory {shown(where)}: {_reason(error, where)}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: str, base: str) -> None:
    """Remove the directory, and those above it up to `base`, as long as they are empty."""
    while folder != base:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)
