"""Incidents as a table, for the page, its Parquet files, and notebooks."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from analytics.incidents.finding import ATTRIBUTES
from analytics.incidents.incident import Incident

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("severity", pa.string()),
        ("kind", pa.string()),
        ("start", _TIME),
        ("end", _TIME),
        ("open", pa.bool_()),
        ("happened", pa.string()),
        ("advice", pa.string()),
        ("affected", pa.float64()),
        ("clients", pa.int64()),
        ("score", pa.float64()),
        ("muted", pa.string()),
        *((name, pa.string()) for name in ATTRIBUTES),
        ("evidence", pa.string()),
    ]
)


def table(incidents: Sequence[Incident]) -> pa.Table:
    """Return one row for each incident."""
    return pa.Table.from_pylist([_row(incident) for incident in incidents], SCHEMA)


def _row(incident: Incident) -> dict[str, object]:
    start, end = (datetime.fromtimestamp(time, UTC) for time in (incident.start, incident.end))
    plain = ("severity", "kind", "open", "happened", "advice", "affected", "clients", "score", "muted")
    return {
        **{name: getattr(incident, name) for name in plain},
        **{name: incident.about.get(name) for name in ATTRIBUTES},
        "start": start,
        "end": end,
        "evidence": ", ".join(sorted({finding.kind for finding in incident.findings})),
    }
