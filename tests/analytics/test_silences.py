"""Address ranges, replicas, brokers and whole services from which requests stay away."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from analytics.incidents.detection import detect
from analytics.incidents.detectors.silences import silences
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write
from tests.analytics.score import tables

_RANGES = ("10.1.1", "10.1.2", "10.1.3")
_HOURS = 20


def _rows(missing: Callable[[kit.Row, int], bool]) -> list[kit.Row]:
    """Return two sends a minute of each of three ranges, at two replicas and two brokers, without the missing ones."""
    rows = []
    for minute in range(_HOURS * 60):
        for number, network in enumerate(_RANGES * 2):
            row = kit.send(
                kit.at(minute, 9 * number),
                address=f"{network}.{minute % 4 + 1}",
                client_id=f"{network}-{minute % 4}",
                topic=f"shop%topic-{(minute + number) % 5}",
                replica=f"edge-{(minute // 2 + number // 3) % 2}",
                broker=f"broker-{(minute // 5 + number // 3) % 2}",
                queue=minute % 4,
            )
            if not missing(row, minute):
                rows.append(row)
    return rows


def _connections(cause: str | None = None) -> list[kit.Row]:
    numbers = count()
    rows = [
        kit.connection(kit.at(0), address=f"{network}.{host}", connection=next(numbers))
        for network in _RANGES
        for host in range(1, 5)
    ]
    if cause is not None:
        rows += [kit.connection(kit.at(599), event="close", cause=cause, replica="edge-1", connection=next(numbers))]
    return rows


def _incidents(root: Path, missing: Callable[[kit.Row, int], bool], cause: str | None = None) -> list[Incident]:
    write(root, _rows(missing))
    write(root, _connections(cause), of="connections")
    return detect(tables(root))


def _during(minute: int) -> bool:
    return 600 <= minute < 660


def _from(range_: str) -> Callable[[kit.Row, int], bool]:
    return lambda row, minute: _during(minute) and row["address"].startswith(range_)


def test_silent_range_is_one_incident_about_the_range(tmp_path: Path) -> None:
    (incident,) = _incidents(tmp_path, _from("10.1.2."))
    assert (incident.kind, dict(incident.about)) == ("network_silence", {"network": "10.1.2.0/24"})
    assert (incident.start, incident.end) == (kit.at(600).timestamp(), kit.at(660).timestamp())
    assert incident.happened.startswith("No request came from addresses 10.1.2.0/24")


def test_silent_service_is_one_incident_and_not_one_for_each_topic(tmp_path: Path) -> None:
    (incident,) = _incidents(tmp_path, lambda row, minute: _during(minute))
    assert (incident.kind, dict(incident.about)) == ("service_silence", {})
    assert incident.severity == "critical"
    assert (incident.start, incident.end) == (kit.at(600).timestamp(), kit.at(660).timestamp())


@pytest.mark.parametrize(
    ("name", "value", "kind"), [("replica", "edge-1", "replica_silence"), ("broker", "broker-1", "broker_silence")]
)
def test_silent_replica_or_broker_is_found(tmp_path: Path, name: str, value: str, kind: str) -> None:
    found = _incidents(tmp_path, lambda row, minute: _during(minute) and row[name] == value)
    assert [(each.kind, dict(each.about)) for each in found if each.kind == kind] == [(kind, {name: value})]


def test_drained_replica_is_not_silent(tmp_path: Path) -> None:
    def missing(row: kit.Row, minute: int) -> bool:
        return _during(minute) and row["replica"] == "edge-1"

    found = _incidents(tmp_path, missing, "drain")
    assert not [each for each in found if each.kind == "replica_silence"]


def test_range_that_moves_to_another_is_not_silent(tmp_path: Path) -> None:
    rows = _rows(lambda row, minute: False)
    for row in rows:
        if row["address"].startswith("10.1.2.") and row["time"] >= kit.at(600):
            row["address"] = row["address"].replace("10.1.2.", "10.9.9.")
    write(tmp_path, rows)
    assert not _of(tmp_path, "network_silence")


def test_range_of_one_address_is_no_range(tmp_path: Path) -> None:
    write(tmp_path, _rows(_from("10.1.2.")))
    write(tmp_path, [kit.connection(kit.at(0), address="10.1.2.1")], of="connections")
    assert not _of(tmp_path, "network_silence")


def _of(root: Path, kind: str) -> list[Finding]:
    return [each for each in silences(tables(root)) if each.kind == kind]
