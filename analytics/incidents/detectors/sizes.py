"""Messages whose bodies are suddenly far larger than those of their topic before."""

from analytics.incidents.candidates import Cluster
from analytics.incidents.clusters import clusters, exposure, finding, rows_of, size_onset
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.spans import Limits
from analytics.incidents.tables import Tables

_LIMITS = Limits(factor=4.0, events=12, share=0.1, ratio=4.0, likelihood=40.0, floor=0.01, sharpness=1.5)
_SCOPES = ("client", "topic", "tenant", "sdk")
# Units of sizes, and how many of each are the next.
_UNITS, _STEP = ("B", "KiB", "MiB"), 1024


def sizes(tables: Tables) -> list[Finding]:
    """Return findings large_messages."""
    events = tables.events[tables.events["event"] == "large"]
    over = exposure(tables, "sends", _SCOPES)
    return [_finding(tables, cluster) for cluster in clusters(tables, events, over, _LIMITS)]


def _finding(tables: Tables, cluster: Cluster) -> Finding:
    rows = rows_of(tables, cluster.scope)
    number, bytes_ = float(cluster.events["n"].sum()), float(cluster.events["bytes"].sum())
    usual = max(float(rows["bytes"].sum()) - bytes_, 0.0) / max(float(rows["sends"].sum()) - number, 1.0)
    facts = {"size": words(bytes_ / max(number, 1.0)), "usual": words(usual)}
    return finding(tables, cluster, Kind.LARGE_MESSAGES, size_onset(tables, cluster), facts)


def words(size: float) -> str:
    """Return a number of bytes with its unit."""
    place = 0
    while size >= _STEP and place < len(_UNITS) - 1:
        size, place = size / _STEP, place + 1
    return f"{size:,.0f} {_UNITS[place]}" if size >= 10 or place == 0 else f"{size:,.1f} {_UNITS[place]}"
