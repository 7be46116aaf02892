"""The compact tables of files of this machine by DuckDB, which needs no JVM."""

import importlib.util
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from analytics.incidents.engines import by_duckdb
from analytics.incidents.local_files import LocalFiles, local_files
from analytics.incidents.tables import Tables
from analytics.record_errors import Skipped, no_requests

# Bytes of Parquet that DuckDB sums in the memory of one machine.
_MOST_BYTES = 4_000_000_000


def local_tables(root: str, since: datetime | None, until: datetime | None) -> tuple[Tables, Sequence[Skipped]] | None:
    """Return the tables, or None where Spark has to read."""
    found = plain_files(root, since, until)
    if found is None:
        return None
    import duckdb

    requests, connections = found
    try:
        made = by_duckdb(requests.paths, connections.paths, condition(since, until))
    except duckdb.Error:
        # Damage inside of a file, or columns of another version: Spark says which.
        return None
    skipped = (*requests.skipped, *connections.skipped)
    if made.totals.empty:
        raise no_requests(root, since, until, skipped)
    return made, skipped


def plain_files(root: str, since: datetime | None, until: datetime | None) -> tuple[LocalFiles, LocalFiles] | None:
    """Return the files of requests and connections, or None where DuckDB should not read them."""
    if importlib.util.find_spec("duckdb") is None or "://" in root or not Path(root).is_dir():
        return None
    requests, connections = (local_files(Path(root), name, since, until) for name in ("requests", "connections"))
    return (requests, connections) if _is_plain(requests, connections) else None


def _is_plain(requests: LocalFiles, connections: LocalFiles) -> bool:
    whole = requests.size + connections.size
    return bool(requests.paths) and whole <= _MOST_BYTES and not (requests.strays or connections.strays)


def condition(since: datetime | None, until: datetime | None) -> str:
    """Return a condition on `time` in DuckDB's SQL."""
    parts = ["TRUE"]
    for time, sign in ((since, ">="), (until, "<")):
        if time is not None:
            parts.append(f"time {sign} TIMESTAMPTZ '{time.astimezone(UTC).isoformat()}'")
    return " AND ".join(parts)
