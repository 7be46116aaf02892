"""What several workers answer, made one."""

from typing import Any

import pytest

from proxy.admin.http import merging
from proxy.admin.http.merging import Told
from proxy.operations import paging
from proxy.operations.paging import BadCursor, Order


def told(*answers: dict[str, Any], **aside: list[Any]) -> list[Told]:
    return [
        Told(worker, data, {name: values[worker] for name, values in aside.items()})
        for worker, data in enumerate(answers)
    ]


def test_the_latest_of_all_come_first_whatever_their_times_look_like() -> None:
    answers = told(
        {"items": [{"time": "2026-11-21T10:00:00.500000Z"}, {"time": "2026-11-21T09:00:00Z"}]},
        {"items": [{"time": "2026-11-21T10:00:01Z"}, {"time": "2026-11-21T10:00:00Z"}]},
    )
    found = merging.latest("time")(answers, {"limit": "3"})
    # The routes read a number so, and let it pass.
    assert merging.latest("time")(answers, {"limit": "3.0"}) == found
    assert [(item["worker"], item["time"][11:21]) for item in found["items"]] == [
        (1, "10:00:01Z"),
        (0, "10:00:00.5"),
        (1, "10:00:00Z"),
    ]


def test_averages_weigh_what_they_are_of() -> None:
    def row(name: str, code: int | None, answered: int, average: float | None) -> dict[str, Any]:
        values = {"protocol": "remoting", "name": name, "code": code, "answered": answered, "failed": 1}
        return {**values, "average_milliseconds": average}

    answers = told(
        {"items": [row("SEND", 10, 30, 1.0), row("PULL", 11, 0, None)]},
        {"items": [row("SEND", 10, 10, 5.0), row("PULL", 11, 0, None), row("other", None, 1, 3.0)]},
    )
    found = merging.requests(answers, {})["items"]
    assert [(item["name"], item["answered"], item["failed"], item["average_milliseconds"]) for item in found] == [
        ("SEND", 40, 2, 2.0),
        ("PULL", 0, 2, None),
        ("other", 1, 1, 3.0),
    ]


def test_of_a_broker_the_trouble_of_one_worker_shows() -> None:
    def broker(state: str, healthy: bool, address: str = "b:1") -> dict[str, Any]:
        counts = {"connections": 1, "pending": 2, "bytes_in": 3, "bytes_out": 4, "congested": not healthy}
        addresses = [{"id": 0, "address": address, "state": state, **counts}]
        times = {"answers": 1, "average_milliseconds": 2.0, "longest_milliseconds": 9.0 if healthy else None}
        return {"name": "broker-a", "cluster": "c", "healthy": healthy, "addresses": addresses, **times}

    answers = told({"items": [broker("connected", True)]}, {"items": [broker("unreachable", False)]})
    (found,) = merging.brokers(answers, {})["items"]
    (address,) = found.pop("addresses")
    assert address == {
        "id": 0,
        "address": "b:1",
        "state": "unreachable",
        "connections": 2,
        "pending": 4,
        "bytes_in": 6,
        "bytes_out": 8,
        "congested": True,
    }
    assert not found["healthy"]
    assert (found["answers"], found["average_milliseconds"], found["longest_milliseconds"]) == (2, 2.0, 9.0)


def member(client_id: str, protocol: str | None, subscriptions: list[Any] | None) -> dict[str, Any]:
    return {"client_id": client_id, "protocol": protocol, "subscriptions": subscriptions}


def test_members_that_are_elsewhere_for_one_worker_are_here_for_another() -> None:
    here = [member("a", "grpc", []), member("z", None, None)]
    there = [member("b", "remoting", []), member("a", None, None), member("z", None, [])]
    aside = [[{"wanted": {"a": {"t": ["*", "TAG"]}}}], [{"wanted": {"b": {"t": ["x", "TAG"]}}}]]
    answers = told(
        {"name": "g", "members": here, "skew": []}, {"name": "g", "members": there, "skew": []}, members=aside
    )
    found = merging.group(answers, {})
    # Of whom both know from elsewhere, what says more.
    assert found["members"] == [here[0], there[0], there[2]]
    (skew,) = found["skew"]
    assert [(each["expression"], each["client_ids"]) for each in skew["variants"]] == [("*", ["a"]), ("x", ["b"])]


def test_a_member_that_one_worker_cannot_ask_its_own_can() -> None:
    def owner(queue: int, *client_ids: str) -> dict[str, Any]:
        return {"topic": "t", "broker": "b", "queue": queue, "client_ids": list(client_ids)}

    answers = told(
        {"group": "g", "queues": [owner(1, "a"), owner(2, "c")], "unanswered": ["b", "z"]},
        {"group": "g", "queues": [owner(0, "b"), owner(1, "b")], "unanswered": []},
        answered=[["a", "c"], ["b"]],
    )
    queues = [owner(0, "b"), owner(1, "a", "b"), owner(2, "c")]
    assert merging.owners(answers, {}) == {"group": "g", "queues": queues, "unanswered": ["z"]}


def test_a_client_at_two_workers_is_one() -> None:
    def client(numbers: list[int], telemetry: bool | None, heartbeat: float | None) -> dict[str, Any]:
        lists = {"protocols": ["grpc"], "addresses": [str(numbers)], "producer_groups": [], "consumer_groups": ["g"]}
        return {"client_id": "c", "connections": numbers, "telemetry": telemetry, "heartbeat": heartbeat, **lists}

    found = merging.client(told(client([1, 2], None, 5.0), client([1], True, 3.0)), {})
    assert found["connections"] == ["0:1", "0:2", "1:1"]
    assert (found["telemetry"], found["heartbeat"], found["protocols"]) == (True, 3.0, ["grpc"])
    assert merging.client(told(client([], None, None)), {})["telemetry"] is None


@pytest.mark.parametrize("descending", [False, True])
def test_each_worker_goes_on_where_the_list_of_all_has_ended(descending: bool) -> None:
    """Items with equal values, at three workers, read page by page of one as a worker would from its cursor."""
    order = Order("age", descending)
    everything = sorted(
        ((value, worker, f"{number:03}") for value in (1.5, 2.0) for worker in range(3) for number in range(2)),
        reverse=descending,
    )
    for place, last in enumerate(everything):
        value, worker, number = last
        cursor = paging.write((value, paging.joined(worker, number)), order)
        left = []
        for asked in range(3):
            after = paging.read(paging.of_worker(cursor, order, asked), order)
            own = [(value, number) for value, worker, number in everything if worker == asked]
            left += [(key[0], asked, key[1]) for key in own if not (key >= after if descending else key <= after)]
        assert sorted(left, reverse=descending) == everything[place + 1 :]


@pytest.mark.parametrize("number", ["7", "x:7", ":7", "-1:7", "1" * 5000 + ":7"])
def test_a_cursor_of_no_page_of_all(number: str) -> None:
    order = Order("age", False)
    with pytest.raises(BadCursor):
        paging.of_worker(paging.write((1, number), order), order, 0)
