"""Run all detectors over the tables and make incidents of their findings."""

from collections.abc import Callable

from analytics.incidents.detectors.clocks import clocks
from analytics.incidents.detectors.connections import connections
from analytics.incidents.detectors.consumers import consumers
from analytics.incidents.detectors.failures import failures
from analytics.incidents.detectors.keys import keys
from analytics.incidents.detectors.queues import clients, queues
from analytics.incidents.detectors.retries import retries
from analytics.incidents.detectors.silences import silences
from analytics.incidents.detectors.sizes import sizes
from analytics.incidents.detectors.slowness import slowness
from analytics.incidents.detectors.volume import volume
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.merging import incidents
from analytics.incidents.tables import Tables
from analytics.incidents.zones import by_zone

DETECTORS: tuple[Callable[[Tables], list[Finding]], ...] = (
    failures,
    slowness,
    retries,
    volume,
    silences,
    consumers,
    queues,
    clients,
    clocks,
    keys,
    sizes,
    connections,
)


def detect(tables: Tables) -> list[Incident]:
    """Return the incidents of the records, ordered by time."""
    if tables.totals.empty:
        return []
    findings = [finding for detector in DETECTORS for finding in detector(tables)]
    replicas = tables.totals[tables.totals["dimension"] == "replica"]
    return incidents(by_zone(tables, findings), float(replicas["n"].sum()))
