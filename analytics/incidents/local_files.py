"""Record files of this machine, checked by their footers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.record_errors import Skipped
from analytics.records import overlaps_span, partition_begin


@dataclass(slots=True)
class LocalFiles:
    """Readable files of a table with their size in bytes; strays: files with rows of another hour."""

    paths: list[str] = field(default_factory=list)
    size: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def local_files(root: Path, table: str, since: datetime | None, until: datetime | None) -> LocalFiles:
    """Return the files of a table whose hours may contain a time in [since, until)."""
    found = LocalFiles()
    for path in _visible(root / table):
        if not overlaps_span(path.as_posix(), since, until):
            continue
        try:
            with pq.ParquetFile(path) as file:
                metadata = file.metadata
        except (pa.ArrowException, OSError):
            empty = path.stat().st_size == 0
            reason = "it is empty" if empty else "it is no Parquet file, or only the beginning of one"
            found.skipped.append(Skipped(str(path), reason))
            continue
        found.paths.append(str(path))
        found.size += path.stat().st_size
        if _strays(metadata, partition_begin(path.as_posix())):
            found.strays.append(str(path))
    return found


def _visible(folder: Path) -> Iterator[Path]:
    """Yield Parquet files, without those that a writer has not finished."""
    for path in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            yield path


def _strays(metadata: pq.FileMetaData, begin: datetime | None) -> bool:
    """Return whether the statistics of the column `time` leave the hour, or are missing."""
    if begin is None:
        return False
    place = metadata.schema.names.index("time") if "time" in metadata.schema.names else -1
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(place).statistics if place >= 0 else None
        if statistics is None or not statistics.has_min_max:
            return True
        low, high = (_utc(value) for value in (statistics.min, statistics.max))
        if low < begin or high >= begin + timedelta(hours=1):
            return True
    return False


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
