"""Output places: a local directory, or any Hadoop URI. Files appear and are replaced whole."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession


class Place(Protocol):
    """A directory. Names are relative to it, with slashes."""

    uri: str

    def read(self, name: str) -> bytes | None:
        """Return a file's contents; None if it does not exist."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file; readers see the old or the new one."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names directly in a folder; none if it does not exist."""
        ...

    def move(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing one."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file or a folder with its contents, if it exists."""
        ...


def place(spark: SparkSession, uri: str) -> Place:
    """Return the directory of a path or URI; the first write creates it."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return Directory(Path(unquote(parts.path) if parts.scheme else uri))
    return HadoopDirectory(spark, uri)


class Directory:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.uri = str(self._root)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Readers of Parquet directories skip names that begin with an underscore.
        hidden = target.with_name(f"_{target.name}.{os.getpid()}.tmp")
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(target)

    def names(self, folder: str = "") -> list[str]:
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def move(self, old: str, new: str) -> None:
        target = self._root / new
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._root / old).replace(target)

    def remove(self, name: str) -> None:
        target = self._root / name
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


# Hadoop's name for streams whose file appears when they are closed, and never when they are aborted.
_WHOLE_ON_CLOSE = "fs.capability.outputstream.abortable"
# Bytes that are copied at once.
_BUFFER = 1 << 20


class HadoopDirectory:
    """A directory of one of Hadoop's file systems: hdfs, s3a, gs, abfs.

    HDFS replaces a file by one operation of its name node. S3 has no such operation: a rename deletes the old file,
    copies, and deletes again, so that a reader finds no file meanwhile, and none is left where the process dies. There
    the contents are written under the final name, whose object is replaced when the upload ends.
    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        # py4j resolves the class on first use.
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs
        self._bytes = jvm.org.apache.commons.io.IOUtils
        configuration = spark._jsc.hadoopConfiguration()
        self.uri = uri.rstrip("/")
        # The root of a bucket is a directory only with its slash.
        root = self._paths.Path(f"{self.uri}/")
        self._files = root.getFileSystem(configuration)
        self._context = self._paths.FileContext.getFileContext(root.toUri(), configuration)
        rename = getattr(self._paths, "Options$Rename")
        self._over = spark.sparkContext._gateway.new_array(rename, 1)  # type: ignore[union-attr]
        self._over[0] = rename.OVERWRITE
        self._whole_on_close = bool(self._files.hasPathCapability(root, _WHOLE_ON_CLOSE))

    def _at(self, name: str) -> Any:
        return self._paths.Path(f"{self.uri}/{name}")

    def read(self, name: str) -> bytes | None:
        path = self._at(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._bytes.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        folder, _, last = name.rpartition("/")
        hidden = f"{folder}/_{last}.tmp" if folder else f"_{last}.tmp"
        with self._created(name if self._whole_on_close else hidden) as stream:
            stream.write(bytearray(content))
        if not self._whole_on_close:
            self.move(hidden, name)

    def names(self, folder: str = "") -> list[str]:
        path = self._at(folder)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path))

    def move(self, old: str, new: str) -> None:
        if self._whole_on_close:
            self._copy(old, new)
            self.remove(old)
            return
        target = self._at(new)
        self._files.mkdirs(target.getParent())
        self._context.rename(self._at(old), target, self._over)

    def _copy(self, old: str, new: str) -> None:
        source = self._files.open(self._at(old))
        try:
            with self._created(new) as stream:
                self._bytes.copy(source, stream, _BUFFER)
        finally:
            source.close()

    @contextmanager
    def _created(self, name: str) -> Iterator[Any]:
        """Yield a stream into a file. After a failure it is aborted where it can be: closing would publish a part."""
        stream = self._files.create(self._at(name), True)
        try:
            yield stream
        except BaseException:
            if self._whole_on_close:
                stream.abort()
            stream.close()
            raise
        stream.close()

    def remove(self, name: str) -> None:
        self._files.delete(self._at(name), True)
