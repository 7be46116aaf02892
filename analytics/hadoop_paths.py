"""Files and directories on the file system that their URI names, as Hadoop sees them."""

from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a file or directory exists, on the file system that its URI names."""
    place = _place(spark, path)
    return bool(place.getFileSystem(spark._jsc.hadoopConfiguration()).exists(place))


def length(spark: SparkSession, path: str) -> int:
    """Return the bytes of a file."""
    place = _place(spark, path)
    return int(place.getFileSystem(spark._jsc.hadoopConfiguration()).getFileStatus(place).getLen())


def _place(spark: SparkSession, path: str) -> Any:
    """Return Hadoop's Path. Only java.net.URI decodes the escapes of a URI that Spark made."""
    jvm = spark._jvm
    assert jvm is not None
    return jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path) if "://" in path else path)


def normalized(path: str) -> str:
    """Return a file's URI in one form: Spark writes both file:/x and file:///x."""
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def short(path: str) -> str:
    """Return the end of a path, from the table name on, for messages."""
    parts = PurePosixPath(unquote(urlsplit(path).path)).parts
    return "/".join(parts[-4:])
