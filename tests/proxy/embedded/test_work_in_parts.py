"""Much work that is due at one time is done in parts, by ticks that end after some megabytes or milliseconds."""

import itertools
from typing import Any

import pytest

from proxy.embedded.broker.pop_checkpoints import Checkpoint, Key
from remoting.messages import decode_message
from remoting.properties import TRANSACTION_CHECK_TIMES
from tests.proxy.embedded.broker_harness import START, BrokerHarness
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio


def _ticks(harness: BrokerHarness, count: int) -> list[bool]:
    """Tick without a change of the time; return whether each of the ticks left work."""
    return [harness.broker.tick(harness.now) for _ in range(count)]


def _make_work_slow(harness: BrokerHarness) -> None:
    """Let 5 ms pass between two looks at the clock."""
    harness.elapse = (number * 0.005 for number in itertools.count()).__next__


async def test_large_messages_that_become_visible_together_are_redelivered_in_parts(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(10):
        harness.send("t", bytes([number]) * 2**21)
        assert len(harness.pop("t", invisibleTime=10_000)) == 1
    harness.now += 10_001
    for count in (2, 4, 6, 8, 10):
        assert _ticks(harness, 1) == [True]
        assert harness.store.bounds("%RETRY%g_t", 0)[1] == count
    assert _ticks(harness, 1) == [False]
    assert sorted(body[0] for body in harness.bodies("%RETRY%g_t")) == list(range(10))
    assert len(harness.broker.checkpoints) == 0


async def test_redelivery_ends_when_its_time_is_over(harness: BrokerHarness) -> None:
    harness.topic("t")
    for number in range(60):
        harness.send("t", b"%d" % number)
        harness.pop("t", invisibleTime=10_000)
    harness.now += 10_001
    _make_work_slow(harness)
    _ticks(harness, 1)
    assert 0 < harness.store.bounds("%RETRY%g_t", 0)[1] < 10
    _ticks(harness, 60)
    assert harness.store.bounds("%RETRY%g_t", 0)[1] == 60


def _half(harness: BrokerHarness, size: int, **pairs: str) -> None:
    given = {"TRAN_MSG": "true", "PGROUP": "pg", **pairs}
    assert harness.send("t", bytes(size), given, sysFlag=4, producerGroup="pg").code == 0


async def test_large_half_messages_are_checked_in_parts(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join(producers=["pg"])
    for _ in range(6):
        _half(harness, 2**21)
    harness.now += 6_001
    for count in (2, 4, 6):
        assert _ticks(harness, 1) == [True]
        assert len(harness.pushed) == count
    assert _ticks(harness, 1) == [False]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_half_message_without_a_producer_is_not_read_for_its_check(
    harness: BrokerHarness, restarts: bool
) -> None:
    """A check without a member to ask is counted; the message is read when it has a member, or is discarded."""
    harness.topic("t")
    _half(harness, 100)
    if restarts:
        harness.restart()
    reads: list[int] = []
    read = harness.store.record

    def record(commit_log_offset: int) -> bytes | None:
        reads.append(commit_log_offset)
        return read(commit_log_offset)

    harness.store.record = record  # type: ignore[method-assign]
    harness.pass_time(6_100)
    harness.pass_time(30_000, step=1000)
    assert not reads
    harness.join(producers=["pg"])
    harness.pass_time(30_000, step=1000)
    [(_, check)] = harness.pushed
    assert decode_message(check.body).get(TRANSACTION_CHECK_TIMES) == "3"
    assert len(reads) == 1


@pytest.mark.parametrize("row", [b"%d 6000 0 2 %d", b"%d 6000 0 2 %d pg"])
async def test_rows_of_half_messages_without_a_group_are_understood(harness: BrokerHarness, row: bytes) -> None:
    """Those that an earlier version has stored."""
    harness.topic("t")
    _half(harness, 100)
    table = harness.store.table("halves")
    [(key, _)] = table.items()
    table.put(key, row % (START, START + 40_000))
    harness.restart()
    harness.join(producers=["pg"])
    harness.pass_time(70_100, step=1000)
    [(_, check)] = harness.pushed
    assert decode_message(check.body).get(TRANSACTION_CHECK_TIMES) == "3"


async def test_a_producer_group_with_an_unusual_name_is_asked(harness: BrokerHarness) -> None:
    harness.topic("t")
    group = "group with blanks " * 10
    harness.join(producers=[group])
    _half(harness, 100, PGROUP=group)
    harness.pass_time(6_100)
    assert len(harness.pushed) == 1


async def test_silent_members_are_searched_and_removed_in_parts(harness: BrokerHarness) -> None:
    """Each client may be in a thousand groups."""
    groups = [f"p{number}" for number in range(60)]
    for number, group in enumerate(groups):
        harness.join({f"g{number}": ["t"]}, [group], FakeChannel(), f"c{number}")
    lively = FakeChannel()
    harness.now += harness.settings.member_expiry + 1
    harness.join(producers=["lively"], channel=lively, name="lively")
    _make_work_slow(harness)
    _ticks(harness, 1)
    members = harness.broker.members
    assert 0 < len(groups) - len(members.producers.keys() & set(groups)) < 10
    _ticks(harness, 60)
    assert (set(members.producers), set(members.consumers)) == ({"lively"}, set())
    assert members.channels() == [lively]


async def test_checkpoints_of_other_groups_are_not_searched(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each of its topics, a group's progress needs its checkpoints; each other group may have many."""
    for name in ("t", "u"):
        harness.topic(name)
        harness.send(name)
    for number in range(50):
        harness.pop("t", f"g{number}")
    harness.pop("u", "g7")
    looked_at: list[Checkpoint] = []

    class Watched(dict[Key, Checkpoint]):
        def values(self) -> Any:
            looked_at.extend(super().values())
            return super().values()

    checkpoints = harness.broker.checkpoints
    monkeypatch.setattr(checkpoints, "_checkpoints", Watched(checkpoints._checkpoints))
    [found] = checkpoints.of_group("t", "g7")
    checkpoints.drop_topic("u")
    assert (found.topic, found.group, len(looked_at)) == ("t", "g7", 0)
    assert (checkpoints.count("t", "g7"), checkpoints.count("u", "g7"), len(checkpoints)) == (1, 0, 50)
