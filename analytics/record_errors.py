"""Errors of reading traffic records, in sentences for operators."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Skipped:
    """A skipped file, with the reason."""

    path: str
    reason: str


class NoRecords(Exception):
    """Raised if there is nothing to read; the text names the missing place. skipped: files that were not read."""

    def __init__(self, sentence: str, skipped: Sequence[Skipped] = ()) -> None:
        super().__init__(sentence)
        self.skipped = tuple(skipped)


def no_directory(root: str) -> NoRecords:
    """Return the error for a place of records that does not exist."""
    return NoRecords(f"there is no directory {root}: it should hold requests/, connections/ and members/")


def no_requests(
    root: str, since: datetime | None, until: datetime | None, skipped: Sequence[Skipped] = ()
) -> NoRecords:
    """Return the error for records without a request in a span."""
    begin = "" if since is None else f" since {since.isoformat()}"
    end = "" if until is None else f" until {until.isoformat()}"
    return NoRecords(f"there are no records of requests in {root}{begin}{end}", skipped)


_KNOWN = {
    "is not a Parquet file": "it is no Parquet file, or only the beginning of one",
    "is too small": "it is no Parquet file, or only the beginning of one",
    "FileNotFoundException": "it has gone meanwhile",
    "PATH_NOT_FOUND": "it has gone meanwhile",
    "CRC": "a page's checksum is wrong",
    "corrupt": "its contents are damaged",
    "SchemaColumnConvert": "a column has another type than the schema",
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH": "a column has another type than the schema",
    "Permission denied": "it may not be read: permission denied",
}
# Spark's names of a fault that carries its own text further inside.
_WRAPPERS = ("An error occurred while calling", "FAILED_READ_FILE", "Job aborted", "Traceback", "JVM stacktrace")


def sentence(error: Exception) -> str:
    """Return why a file cannot be read."""
    text = str(error)
    for sign, meaning in _KNOWN.items():
        if sign in text:
            return meaning
    return f"it cannot be decoded: {cause(error)}"


def cause(error: BaseException) -> str:
    """Return the innermost cause of an error of Spark or its JVM as one line, without a stack trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    meant = [line for line in lines if line and not line.startswith(("at ", *_WRAPPERS)) and "SQLSTATE" not in line]
    text = (causes or meant or [type(error).__name__])[-1 if causes else 0]
    # "org.example.SomeException: text" is the text.
    named = re.fullmatch(r"(?:[\w$]+\.)+[\w$]+(?:Exception|Error): (.+)", text)
    return named[1] if named else text
