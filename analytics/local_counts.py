"""Row counts of record files of this machine, by pyarrow: a job of Spark over many small files costs more."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_INSTANTS = frozenset(pa.timestamp(unit, tz="UTC") for unit in ("ms", "us", "ns"))
_INTEGERS = frozenset({pa.int16(), pa.int32(), pa.int64()})


@dataclass(slots=True)
class FileCounts:
    """Rows of one file by schema version, without its strays; rows of another hour than the file's directory."""

    versions: Counter[int] = field(default_factory=Counter)
    strays: int = 0

    @property
    def rows(self) -> int:
        return self.versions.total() + self.strays


def local_counts(hours: Iterable[tuple[str, datetime | None]]) -> dict[str, FileCounts]:
    """Return the counts of files by URI, without those on other machines, damaged ones, and ones of unusual types.

    hours: each file's URI and the hour of its directory, if it has one. The columns that are counted are decoded, and
    their checksums verified.
    """
    found = {}
    for uri, begin in hours:
        counts = _counts(unquote(urlsplit(uri).path), begin) if urlsplit(uri).scheme == "file" else None
        if counts is not None:
            found[uri] = counts
    return found


def _counts(path: str, begin: datetime | None) -> FileCounts | None:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            names = file.schema_arrow
            if not (_is_instant(names, "time") and _is_integer(names, "schema")):
                return None
            rows = file.read(["schema", "time"], use_threads=False)
    except (pa.ArrowException, OSError):
        return None
    times = rows["time"]
    if begin is None:
        inside = rows
    else:
        first, last = (pa.scalar(time, times.type) for time in (begin, begin + timedelta(hours=1)))
        inside = rows.filter(pc.and_(pc.greater_equal(times, first), pc.less(times, last)))
    counted = pc.value_counts(inside["schema"]).to_pylist()
    versions: Counter[int] = Counter()
    for each in counted:
        versions[each["values"] or 0] += each["counts"]
    return FileCounts(versions, rows.num_rows - inside.num_rows)


def _is_instant(schema: pa.Schema, name: str) -> bool:
    place = schema.get_field_index(name)
    return place >= 0 and schema.types[place] in _INSTANTS


def _is_integer(schema: pa.Schema, name: str) -> bool:
    place = schema.get_field_index(name)
    return place >= 0 and schema.types[place] in _INTEGERS
