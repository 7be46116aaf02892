"""The merge of each kind of snapshot."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from proxy.observability.metrics.series_aggregator import SeriesAggregator
from proxy.operations import snapshots
from proxy.operations.broker_links import State
from proxy.operations.brokers import Broker, BrokerAddress, NameServer
from proxy.operations.clients import Client
from proxy.operations.configuration import Setting
from proxy.operations.groups.consumer_progress import OwnershipSnapshot, QueueOwner
from proxy.operations.groups.group_survey import GroupState, GroupStatus, TopicLag
from proxy.operations.groups.groups import Consumer, ConsumerGroupEntry, GroupEntry, Subscription
from proxy.operations.paging import BadCursor, PageRequest, Place, cursor_of
from proxy.operations.replica_state import LogLevel, ReplicaState, Version
from proxy.operations.request_table import RequestEntry, request_table
from proxy.operations.services import READY
from proxy.operations.snapshots import Entries, Holders, NamedPage, SortedPage
from proxy.operations.values import Answer

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


# Lists of keyed items.


def test_averages_are_those_of_all_requests() -> None:
    def row(name: str, code: int | None, answered: int, seconds: float) -> RequestEntry:
        return RequestEntry(
            protocol="remoting",
            name=name,
            code=code,
            action=None,
            sender=None,
            rip55=None,
            answered=answered,
            failed=1,
            seconds=seconds,
        )

    merged = Entries.merge(
        [
            Entries(0, [row("SEND", 10, 30, 0.03), row("PULL", 11, 0, 0.0)]),
            Entries(1, [row("other", None, 1, 0.003), row("SEND", 10, 10, 0.05), row("PULL", 11, 0, 0.0)]),
        ]
    )
    rows = request_table(merged.items).items
    assert [(item.name, item.answered, item.failed, item.average_milliseconds) for item in rows] == [
        ("SEND", 40, 2, 2.0),
        ("PULL", 0, 2, None),
        ("other", 1, 1, 3.0),
    ]


def test_broker_has_its_worst_state_and_the_weighted_average() -> None:
    def broker(state: State, healthy: bool, answers: int) -> Broker:
        address = BrokerAddress(
            id=0,
            address="b:1",
            state=state,
            connections=1,
            pending=2,
            bytes_in=3,
            bytes_out=4,
            congested=not healthy,
        )
        return Broker(
            name="broker-a",
            cluster="c",
            healthy=healthy,
            addresses=[address],
            answers=answers,
            average_milliseconds=float(answers) if answers else None,
            longest_milliseconds=9.0 if healthy else None,
        )

    first, second = broker("connected", True, 1), broker("unreachable", False, 3)
    merged = Entries.merge([Entries(0, [first]), Entries(1, [second])]).single
    (address,) = merged.addresses
    assert address.model_dump(exclude_unset=True) == {
        "id": 0,
        "address": "b:1",
        "state": "unreachable",
        "connections": 2,
        "pending": 4,
        "bytes_in": 6,
        "bytes_out": 8,
        "congested": True,
    }
    assert not merged.healthy
    assert (merged.answers, merged.average_milliseconds, merged.longest_milliseconds) == (4, 2.5, 9.0)
    idle = Entries.merge([Entries(0, [broker("idle", True, 0)]), Entries(1, [broker("idle", True, 0)])]).single
    assert idle.average_milliseconds is None


def test_name_servers_are_merged_by_address() -> None:
    def server(address: str, state: State, pending: int) -> NameServer:
        return NameServer(address=address, state=state, pending=pending)

    merged = Entries.merge(
        [
            Entries(0, [server("a:1", "idle", 0), server("b:1", "connected", 1)]),
            Entries(1, [server("a:1", "connected", 2)]),
        ]
    )
    assert merged.items == [server("a:1", "connected", 2), server("b:1", "connected", 1)]


def test_differing_settings_are_listed_by_worker() -> None:
    def setting(key: str, value: str) -> Setting:
        return Setting(key=key, value=value, default="", origin="file", run_time=False)

    merged = Entries.merge(
        [
            Entries(0, [setting("listen", "a"), setting("admin.listen", "b:1")]),
            Entries(1, [setting("listen", "a"), setting("admin.listen", "b:2")]),
        ]
    )
    alike, different = merged.items
    assert alike.model_dump(exclude_unset=True) == setting("listen", "a").model_dump(exclude_unset=True)
    assert different.value == "b:1"
    assert different.workers is not None
    assert [detail.model_dump() for detail in different.workers] == [
        {"worker": worker, **setting("admin.listen", f"b:{worker + 1}").model_dump(exclude_unset=True)}
        for worker in range(2)
    ]


def test_remaining_times_of_log_levels_are_not_a_difference() -> None:
    def level(name: str, remaining: float | None) -> LogLevel:
        return LogLevel(name=name, level="debug", changed=remaining is not None, remaining=remaining)

    merged = Entries.merge(
        [Entries(0, [level("a", 5.0), level("b", None)]), Entries(1, [level("a", 5.5), level("b", 1)])]
    )
    assert [(item.name, item.changed, item.remaining, item.workers is None) for item in merged.items] == [
        ("a", True, 5.5, True),
        ("b", True, 1.0, False),
    ]


def test_replica_is_ready_if_all_workers_are_and_drains_if_one_does() -> None:
    first = ReplicaState(ready=True, draining=False, forced_failure=None)
    second = ReplicaState(ready=False, draining=True, forced_failure="a test")
    merged = Entries.merge([Entries(0, [first]), Entries(1, [second])]).single
    assert (merged.ready, merged.draining, merged.forced_failure) == (False, True, "a test")
    assert merged.workers is not None
    assert [detail.worker for detail in merged.workers] == [0, 1]


def test_version_has_the_start_of_every_worker() -> None:
    def version(age: int) -> Version:
        return Version(
            version="1",
            python="3",
            platform="linux",
            event_loop="uvloop",
            openssl="",
            replica="",
            started=NOON - timedelta(seconds=age),
            uptime=age,
            backend="cluster",
            listeners=[f"a:{age}"],
        )

    merged = Entries.merge([Entries(0, [version(5)]), Entries(1, [version(7)])]).single
    assert (merged.started, merged.uptime, merged.listeners) == (NOON - timedelta(seconds=7), 7, ["a:5", "a:7"])
    assert merged.workers is not None
    assert [detail.model_dump() for detail in merged.workers] == [
        {"worker": worker, "started": NOON - timedelta(seconds=age), "uptime": age} for worker, age in ((0, 5), (1, 7))
    ]


def client(client_id: str, numbers: list[int | str], telemetry: bool | None, heartbeat: float | None) -> Client:
    return Client(
        client_id=client_id,
        protocols=["grpc"],
        addresses=[str(numbers)],
        language=None,
        version=None,
        connections=numbers,
        tls=["TLSv1.3"] if telemetry else ["none"],
        replicas=["gantry-0"],
        producer_groups=[],
        consumer_groups=["g"],
        telemetry=telemetry,
        heartbeat=heartbeat,
    )


def test_client_at_two_workers_is_one_client() -> None:
    first, second = client("c", ["0:1", "0:2"], None, 5.0), client("c", ["1:1"], True, 3.0)
    merged = Entries.merge([Entries(0, [first]), Entries(1, [second])]).single
    assert merged.connections == ["0:1", "0:2", "1:1"]
    assert (merged.telemetry, merged.heartbeat, merged.protocols) == (True, 3.0, ["grpc"])
    assert (merged.tls, merged.replicas) == (["TLSv1.3", "none"], ["gantry-0"])
    silent = client("c", [], None, None)
    assert Entries.merge([Entries(0, [silent]), Entries(1, [silent])]).single.telemetry is None


# Groups.


def consumer(client_id: str, protocol: str | None, subscriptions: list[Subscription] | None) -> Consumer:
    return Consumer(
        client_id=client_id,
        protocol=protocol,
        address="",
        language="",
        version="",
        heartbeat=None,
        consume_type=None,
        message_model=None,
        consume_from=None,
        subscriptions=subscriptions,
    )


_STATUS = GroupStatus("g", GroupState.ONLINE, 3, {"t": TopicLag(4, 1.5)}, 2, 1, 0, 0.5, [])


def test_member_that_is_elsewhere_for_one_worker_may_be_connected_to_another() -> None:
    here = [consumer("a", "grpc", []), consumer("z", None, None)]
    there = [consumer("b", "remoting", []), consumer("a", None, None), consumer("z", None, [])]
    first = ConsumerGroupEntry(name="g", members=here, subscriptions={"a": {"t": ("*", "TAG")}})
    second = ConsumerGroupEntry(name="g", members=there, subscriptions={"b": {"t": ("x", "TAG")}})
    group = Entries.merge([Entries(0, [first]), Entries(1, [second])]).single.group(_STATUS)
    # The entry with subscriptions, of members elsewhere.
    assert group.members == [here[0], there[0], there[2]]
    (skew,) = group.skew
    assert (group.state, group.lag, group.lag_seconds) == (GroupState.ONLINE, 4, 1.5)
    assert (group.retry_backlog, group.dead_letters, group.last_consumed) == (2, 1, None)
    assert [(variant.expression, variant.client_ids) for variant in skew.variants] == [("*", ["a"]), ("x", ["b"])]


def test_owner_that_does_not_answer_one_worker_may_answer_another() -> None:
    def owner(queue: int, *client_ids: str) -> QueueOwner:
        return QueueOwner(topic="t", broker="b", queue=queue, client_ids=list(client_ids))

    merged = OwnershipSnapshot.merge(
        [
            OwnershipSnapshot(0, [owner(1, "a"), owner(2, "c")], ["a", "c"], ["b", "z"]),
            OwnershipSnapshot(1, [owner(0, "b"), owner(1, "b")], ["b"], []),
        ]
    )
    assert merged.queues == [owner(0, "b"), owner(1, "a", "b"), owner(2, "c")]
    assert merged.unanswered == ["z"]


def entry(name: str, client_ids: list[str], expression: str = "*") -> GroupEntry:
    return GroupEntry(
        name=name,
        client_ids=client_ids,
        local_client_ids=client_ids[:1],
        subscriptions={client_id: {"t": (expression, "TAG")} for client_id in client_ids},
    )


def test_members_of_groups_are_counted_once() -> None:
    merged = NamedPage.merge(
        [NamedPage(0, ["g"], [entry("g", ["a", "b"])]), NamedPage(1, ["g"], [entry("g", ["b", "c"], "x")])]
    )
    (summary,) = merged.page(PageRequest.parse("name", 10), lambda group: group.consumer_summary(None)).items
    assert (summary.members, summary.local, summary.topics, summary.skewed) == (3, 2, ["t"], True)


def test_holders_are_those_of_all_workers() -> None:
    assert Holders.merge([Holders([]), Holders([1]), Holders([2])]) == Holders([1, 2])


# Pages.


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_pages_of_names_have_every_name_once(limit: int) -> None:
    known = {0: ["a", "b", "e"], 1: ["b", "c", "d"]}
    names: list[str] = []
    cursor = None
    while True:
        request = PageRequest.parse("name", limit, cursor)
        after = "" if request.after is None else request.after.id
        parts = [
            NamedPage(worker, own, [entry(name, [f"{name}@{worker}"]) for name in own if name > after][:limit])
            for worker, own in known.items()
        ]
        page = NamedPage.merge(parts).page(request, lambda group: group.producer_summary)
        assert page.total == 5
        names += [summary.name for summary in page.items]
        assert all(summary.members == 2 for summary in page.items if summary.name == "b")
        if page.next is None:
            break
        cursor = page.next
    assert names == ["a", "b", "c", "d", "e"]


def test_filtered_names_are_counted_after_the_filter() -> None:
    merged = NamedPage.merge(
        [
            NamedPage(0, ["g", "h"], [entry("g", ["a"]), entry("h", ["a", "b"])]),
            NamedPage(1, ["g"], [entry("g", ["b"])]),
        ]
    )
    request = PageRequest.parse("name", 1)
    page = merged.filter(lambda group: len(group.client_ids) == 2).page(request, lambda group: group.producer_summary)
    assert ([summary.name for summary in page.items], page.total, page.next is None) == (["g"], 2, False)


@pytest.mark.parametrize("sort", ["age", "-age"])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_of_sorted_items_have_every_item_once(sort: str, limit: int) -> None:
    descending = sort.startswith("-")
    everything = sorted(
        (Place(value, worker, f"{number:03}") for value in (1.5, 2.0) for worker in range(3) for number in range(2)),
        reverse=descending,
    )
    found: list[str] = []
    cursor = None
    while True:
        request = PageRequest.parse(sort, limit, cursor)
        parts: list[SortedPage[str]] = []
        for worker in range(3):
            own = [place for place in everything if place.worker == worker]
            if request.after is not None:
                own = [place for place in own if (place < request.after if descending else place > request.after)]
            parts.append(SortedPage(descending, [(place, str(place)) for place in own[:limit]], len(own), 4))
        page = SortedPage.merge(parts).page(request)
        assert page.total == 12
        found += page.items
        if page.next is None:
            break
        cursor = page.next
    assert found == [str(place) for place in everything]


def test_newest_events_of_all_workers_come_first() -> None:
    first = snapshots.newest(0, [(10.5, 2, "b"), (9.0, 1, "a")], lambda event: Wrapped(value=event), 3)
    second = snapshots.newest(1, [(11.0, 2, "d"), (10.0, 1, "c")], lambda event: Wrapped(value=event), 3)
    assert [item.value for item in SortedPage.merge([first, second]).first(3).items] == ["d", "b", "c"]


class Wrapped(Answer):
    value: str


@pytest.mark.parametrize("place", [[1], [1, "0", "a"], [1, True, "a"], [1, 0, 7], [1, 0, "a", "b"]])
def test_cursor_of_another_form_is_rejected(place: list[Any]) -> None:
    order = PageRequest.parse("age", 1).order
    with pytest.raises(BadCursor):
        PageRequest.parse("age", 1, cursor_of(place, order))  # type: ignore[arg-type]


@pytest.mark.parametrize("cursor", ["", "abc", "!!!!"])
def test_cursor_that_is_not_encoded_is_rejected(cursor: str) -> None:
    with pytest.raises(BadCursor):
        PageRequest.parse("age", 1, cursor)


# Serialisation.


def test_snapshots_survive_json() -> None:
    page = SortedPage(True, [(Place(1.5, 1, "007"), client("c", [1, "1:2"], None, None))], 1, 1)
    codec = TypeAdapter(SortedPage[Client])
    assert codec.validate_json(codec.dump_json(page, exclude_unset=True)) == page
    (_, decoded), *_ = codec.validate_json(codec.dump_json(page, exclude_unset=True)).entries
    assert "missing_workers" not in decoded.model_fields_set


def test_replica_is_ready_if_every_worker_is() -> None:
    aggregator = SeriesAggregator(10, 60.0)
    for worker, ready in enumerate((1, 0, 1)):
        aggregator.add_snapshot(str(worker), [(READY, {(): ready})])
    assert dict(aggregator.series()) == {READY: {(): 0}}
