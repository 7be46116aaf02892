"""Failed and slow requests: the kind and the subject of their incidents."""

from collections.abc import Callable
from pathlib import Path

import pytest

from analytics.incidents.detection import detect
from analytics.incidents.detectors.connections import connections
from analytics.incidents.incident import Incident
from remoting.codes import ResponseCode
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write
from tests.analytics.score import tables

_HOURS = 20


def _rows(change: Callable[[kit.Row, int, int], None]) -> list[kit.Row]:
    """Return twelve sends a minute of both protocols, by two replicas to two brokers. change: of a row, its minute and
    its number.
    """
    rows = []
    for minute in range(_HOURS * 60):
        for number in range(12):
            grpc = number % 2 == 0
            row = kit.send(
                kit.at(minute, 4 * number),
                address=f"10.1.{number % 3}.{minute % 4 + 1}",
                client_id=f"client-{number % 3}-{minute % 4}",
                topic=f"shop%topic-{(minute + number) % 5}",
                replica=f"edge-{minute // 2 % 2}",
                broker=f"broker-{(minute // 5 + number // 3) % 2}",
                queue=minute % 4,
                protocol="grpc" if grpc else "remoting",
                code="SendMessage" if grpc else "SEND_MESSAGE_V2",
                version="5.0.7" if grpc else "V5_3_2",
                response=20000 if grpc else int(ResponseCode.SUCCESS),
            )
            change(row, minute, number)
            rows.append(row)
    return rows


def _incidents(root: Path, change: Callable[[kit.Row, int, int], None]) -> list[Incident]:
    write(root, _rows(change))
    return detect(tables(root))


def _fail(row: kit.Row, remoting: int, grpc: int) -> None:
    row.update(ok=False, messages=0, response=grpc if row["protocol"] == "grpc" else remoting)


@pytest.mark.parametrize(
    ("name", "value", "kind"), [("broker", "broker-1", "broker_fault"), ("topic", "shop%topic-2", "throttling")]
)
@pytest.mark.parametrize("answer", [ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL])
def test_an_overload_is_one_incident_of_both_protocols(
    tmp_path: Path, name: str, value: str, kind: str, answer: int
) -> None:
    def change(row: kit.Row, minute: int, number: int) -> None:
        if 600 <= minute < 660 and row[name] == value and number % 4 < 2:
            _fail(row, answer, 42900)

    (incident,) = _incidents(tmp_path, change)
    assert (incident.kind, incident.about[name], len(incident.findings)) == (kind, value, 1)


def _upgrade(row: kit.Row, minute: int, number: int, others: bool) -> bool:
    """Give clients the next version from 400 minutes on, all or two thirds of them. Return whether the row has it."""
    upgraded = minute >= 400 and not (others and number % 3 == 0)
    if upgraded:
        row["version"] = "5.1.0" if row["protocol"] == "grpc" else "V5_4_0"
    return upgraded and row["protocol"] == "grpc"


def test_trouble_after_the_upgrade_of_all_clients_is_no_roll_out(tmp_path: Path) -> None:
    def change(row: kit.Row, minute: int, number: int) -> None:
        new = _upgrade(row, minute, number, others=False)
        if 700 <= minute < 760 and new and row["topic"] == "shop%topic-2":
            _fail(row, ResponseCode.SYSTEM_ERROR, 50001)

    (incident,) = _incidents(tmp_path, change)
    assert (incident.kind, incident.about["topic"]) == ("error_burst", "shop%topic-2")


@pytest.mark.parametrize(("begin", "others"), [(400, False), (700, True)])
def test_a_version_that_fails_from_the_start_or_where_others_do_not_is_a_roll_out(
    tmp_path: Path, begin: int, others: bool
) -> None:
    def change(row: kit.Row, minute: int, number: int) -> None:
        new = _upgrade(row, minute, number, others)
        if begin <= minute < begin + 100 and new and minute % 2:
            _fail(row, ResponseCode.SYSTEM_ERROR, 50001)

    (incident,) = _incidents(tmp_path, change)
    assert (incident.kind, incident.about["version"]) == ("bad_rollout", "5.1.0")


def test_a_replica_that_slows_down_for_hours_is_a_growth(tmp_path: Path) -> None:
    def change(row: kit.Row, minute: int, number: int) -> None:
        if row["replica"] == "edge-1" and 400 <= minute < 1000:
            row["latency_us"] = int(row["latency_us"] * (1 + 5 * (minute - 400) / 600))

    (incident,) = _incidents(tmp_path, change)
    assert (incident.kind, incident.about["replica"]) == ("latency_growth", "edge-1")
    assert abs(incident.start - kit.at(400).timestamp()) <= 3600


@pytest.mark.parametrize(("name", "value"), [("broker", "broker-1"), ("topic", "shop%topic-2")])
def test_a_server_that_is_busy_more_and_more_is_a_growth(tmp_path: Path, name: str, value: str) -> None:
    def change(row: kit.Row, minute: int, number: int) -> None:
        often = 400 <= minute < 1000 and 37 * (12 * minute + number) % 600 < minute - 400
        if row[name] == value and row["protocol"] == "remoting" and often:
            _fail(row, ResponseCode.SYSTEM_BUSY, 42900)

    (incident,) = _incidents(tmp_path, change)
    assert (incident.kind, incident.about[name]) == ("error_growth", value)


def test_queries_of_a_new_version_that_fail_are_found(tmp_path: Path) -> None:
    """Only sends, receives and acknowledgements are counted by client, so that nothing is known about its others."""

    def change(row: kit.Row, minute: int, number: int) -> None:
        if number == 0 and minute >= 300:
            row.update(version="5.1.0")
        if number == 0 and 600 <= minute < 660:
            row.update(code="QueryRoute", broker=None, queue=None)
            _fail(row, ResponseCode.SYSTEM_ERROR, 50001)

    (incident,) = [each for each in _incidents(tmp_path, change) if each.kind == "bad_rollout"]
    assert incident.about["version"] == "5.1.0"


@pytest.mark.parametrize(("clients", "churns"), [(3, 1), (40, 0)])
def test_many_clients_behind_one_address_connect_again_without_a_churn(
    tmp_path: Path, clients: int, churns: int
) -> None:
    """Sixty connections end within a quarter of an hour: few of each client, as when a replica restarts, or many."""

    def change(row: kit.Row, minute: int, number: int) -> None:
        if number == 0:
            row.update(address="100.64.1.1", client_id=f"meter-{minute % clients}")

    write(tmp_path, _rows(change))
    end = {"address": "100.64.1.1", "event": "close", "cause": "peer"}
    times = [kit.at(600, 15 * place) for place in range(60)]
    write(
        tmp_path,
        [
            kit.connection(time, client_id=f"meter-{place % clients}", connection=place, **end)
            for place, time in enumerate(times)
        ],
        of="connections",
    )
    assert len(connections(tables(tmp_path))) == churns
