"""Address ranges, replicas, brokers and whole services from which requests stay away."""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analytics.incidents.detection import detect
from analytics.incidents.detectors.silences import silences
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP, Tables
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


def test_range_whose_clients_move_one_after_the_other_is_not_silent(tmp_path: Path) -> None:
    rows = _rows(lambda row, minute: False)
    for row in rows:
        host = row["address"].rpartition(".")[2]
        if row["address"].startswith("10.1.2.") and row["time"] >= kit.at(600 + 20 * int(host)):
            row["address"] = f"10.9.9.{host}"
    write(tmp_path, rows)
    assert not _of(tmp_path, "network_silence")


@pytest.mark.parametrize(("clients", "silent"), [(1, 0), (6, 1)])
def test_range_of_one_address_with_many_clients_is_one(clients: int, silent: int, tmp_path: Path) -> None:
    write(tmp_path, _rows(_from("10.1.2.")))
    end = {"address": "10.1.2.1", "event": "close", "cause": "unresponsive"}
    ends = [kit.connection(kit.at(601), client_id=f"meter-{number}", connection=number, **end) for number in range(6)]
    write(tmp_path, ends[:clients], of="connections")
    assert len(_of(tmp_path, "network_silence")) == silent


def test_range_of_one_address_is_no_range(tmp_path: Path) -> None:
    write(tmp_path, _rows(_from("10.1.2.")))
    write(tmp_path, [kit.connection(kit.at(0), address="10.1.2.1")], of="connections")
    assert not _of(tmp_path, "network_silence")


def _of(root: Path, kind: str) -> list[Finding]:
    return [each for each in silences(tables(root)) if each.kind == kind]


_PERIODS = 4 * 86400 // STEP


def _of_rates(dimension: str, rates: Mapping[str, Array], weight: float = 1.0) -> list[Finding]:
    """Return the silences of subjects whose rows come at these rates by period. weight: requests of a row."""
    random = np.random.default_rng(4)
    parts = []
    for value, rate in rates.items():
        rows = random.poisson(rate).astype(float)
        part = pd.DataFrame({"t": np.arange(rate.size) + 5_800_100, "rows_": rows, "n": weight * rows})
        parts += [part.assign(dimension=dimension, value=value)]
        parts += [part.assign(dimension="replica", value="edge-0")] if dimension != "replica" else []
    empty = pd.DataFrame()
    totals = pd.concat(parts)
    return silences(Tables(totals[totals["n"] > 0], empty, empty, empty, empty, empty, empty, empty))


def _steady(rate: float) -> Array:
    return np.full(_PERIODS, rate)


def test_replica_that_gets_a_few_connections_back_was_silent_until_then() -> None:
    """After a crash its clients stay where they went: only new ones come to it."""
    rate = _steady(60.0)
    rate[600:603] = 0.0
    rate[603:650] *= 0.12
    (found,) = _of_rates("replica", {"edge-0": _steady(60.0), "edge-1": rate})
    assert (found.kind, dict(found.about)) == ("replica_silence", {"replica": "edge-1"})
    assert found.start == (5_800_100 + 600) * STEP
    # There are few rows then: some periods have none.
    assert 3 * STEP <= found.end - found.start < 3 * STEP + 3600


def test_silences_of_one_replica_that_are_minutes_apart_are_one() -> None:
    rate = _steady(60.0)
    rate[600:604] = rate[609:613] = 0.0
    (found,) = _of_rates("replica", {"edge-0": _steady(60.0), "edge-1": rate})
    assert (found.start, found.end) == ((5_800_100 + 600) * STEP, (5_800_100 + 613) * STEP)


def test_sampled_rows_that_are_far_apart_are_no_silence() -> None:
    """Five rows of a period stand for two thousand requests: none in some period is chance."""
    rates = {name: _steady(8.0) for name in ("10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24")}
    rates["10.1.2.0/24"][600] = 0.0
    assert _of_rates("network", rates, 400.0) == []


def test_a_silence_of_sampled_requests_counts_requests() -> None:
    rates = {name: _steady(8.0) for name in ("10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24")}
    rates["10.1.2.0/24"][600:624] = 0.0
    (found,) = _of_rates("network", rates, 10.0)
    # At the lowest rate that is usual.
    assert 900 < found.affected < 1920
    assert found.likelihood < 192


@pytest.mark.parametrize("begins", [250, 400])
def test_hosts_that_do_more_on_later_days_were_not_silent(begins: int) -> None:
    """They send heartbeats until their work begins, on the first or second day of five."""
    rates = {name: np.full(5 * 86400 // STEP, 8.0) for name in ("10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24")}
    rates["10.1.2.0/24"][:begins] = 0.5
    rates["10.1.2.0/24"][begins:] = 40.0
    assert _of_rates("network", rates) == []
