"""Transactions: half messages, commit, rollback, checks."""

import pytest

from proxy.embedded.broker.settings import BrokerSettings
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.ids import OffsetMessageId
from remoting.messages import SysFlag
from tests.cluster.client import strings
from tests.proxy.embedded.broker_harness import BrokerHarness
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio

_COMMIT, _ROLLBACK, _UNKNOWN = 8, 12, 0


def _half(harness: BrokerHarness, body: bytes = b"half", **pairs: str) -> dict[str, object]:
    """Send a half message; return the header of its END_TRANSACTION."""
    given = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U", **pairs}
    reply = harness.send("t", body, given, sysFlag=4, producerGroup="pg")
    return {
        "topic": "t",
        "producerGroup": "pg",
        "tranStateTableOffset": reply.fields["queueOffset"],
        "commitLogOffset": OffsetMessageId.parse(reply.fields["msgId"]).offset,
        "commitOrRollback": _COMMIT,
        "msgId": "U",
    }


async def test_a_half_message_is_visible_after_its_commit(harness: BrokerHarness) -> None:
    harness.topic("t")
    end = _half(harness)
    assert harness.bodies("t") == []
    harness.get(RequestCode.END_TRANSACTION, end)
    [message] = harness.stored("t")
    # As in brokers, the properties of the half message remain.
    assert (message.body, message.get("TRAN_MSG")) == (b"half", "true")
    assert (message.get("REAL_TOPIC"), message.get("REAL_QID")) == ("t", "0")
    assert message.sys_flag & messages.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == end["commitLogOffset"]
    # A repeated request does not deliver the message twice.
    harness.get(RequestCode.END_TRANSACTION, end)
    harness.get(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": _ROLLBACK})
    assert harness.bodies("t") == [b"half"]
    assert len(harness.broker.transactions) == 0


async def test_a_rolled_back_message_is_not_delivered(harness: BrokerHarness) -> None:
    harness.topic("t")
    end = _half(harness)
    harness.get(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": _ROLLBACK})
    harness.get(RequestCode.END_TRANSACTION, end)
    assert harness.bodies("t") == []


@pytest.mark.parametrize("wrong", [{"producerGroup": "other"}, {"tranStateTableOffset": 7}, {"commitLogOffset": 10**9}])
async def test_an_end_with_wrong_offset_or_group_is_rejected(harness: BrokerHarness, wrong: dict[str, object]) -> None:
    harness.topic("t")
    reply = harness.ask(RequestCode.END_TRANSACTION, {**_half(harness), **wrong})
    assert (reply.code, bool(reply.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert harness.bodies("t") == []


async def test_an_unresolved_message_is_checked_until_it_is_resolved(harness: BrokerHarness) -> None:
    harness.topic("t")
    producer, other = FakeChannel(), FakeChannel()
    harness.join(producers=["pg"], channel=producer)
    harness.join(producers=["else"], channel=other)
    end = _half(harness)
    harness.pass_time(5900)
    assert not harness.pushed
    # At the end of its immunity, whenever others were checked.
    harness.pass_time(200)
    [(channel, check)] = harness.pushed
    assert channel is producer
    assert check.is_oneway
    assert check.fields["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert {name: check.fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "bname")} == {
        "tranStateTableOffset": end["tranStateTableOffset"],
        "commitLogOffset": str(end["commitLogOffset"]),
        "bname": "broker-a",
    }
    half = messages.decode_message(check.body)
    assert (half.topic, half.body, half.get(properties.TRANSACTION_CHECK_TIMES)) == ("t", b"half", "1")
    harness.restart()
    harness.join(producers=["pg"], channel=producer)
    harness.pass_time(30_000)
    assert messages.decode_message(harness.pushed[-1][1].body).get(properties.TRANSACTION_CHECK_TIMES) == "2"
    harness.get(RequestCode.END_TRANSACTION, {**end, "fromTransactionCheck": True})
    count = len(harness.pushed)
    harness.pass_time(60_000)
    assert (harness.bodies("t"), len(harness.pushed)) == ([b"half"], count)


async def test_members_that_may_not_receive_checks_keep_them_from_none() -> None:
    harness = BrokerHarness(BrokerSettings(transaction_timeout=1000, transaction_interval=1000, transaction_checks=3))
    harness.topic("t")
    producer = FakeChannel()
    strangers = [FakeChannel() for _ in range(20)]
    harness.refused.extend(strangers)
    for channel in (*strangers[:10], producer, *strangers[10:]):
        harness.join(producers=["pg"], channel=channel)
    _half(harness)
    harness.pass_time(10_000)
    assert [channel for channel, _ in harness.pushed] == [producer] * 3


async def test_a_message_over_the_maximum_of_checks_is_discarded() -> None:
    harness = BrokerHarness(BrokerSettings(transaction_timeout=1000, transaction_interval=1000, transaction_checks=3))
    harness.topic("t")
    harness.join(producers=["pg"])
    _half(harness)
    harness.pass_time(10_000)
    assert len(harness.pushed) == 3
    assert [message.body for message in harness.stored("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"half"]
    assert len(harness.broker.transactions) == 0


async def test_an_explicit_immunity_delays_checks_and_limits_the_commit(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join(producers=["pg"])
    end = _half(harness, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    harness.pass_time(59_000, step=1000)
    assert not harness.pushed
    harness.pass_time(30_000, step=1000)
    assert len(harness.pushed) == 1
    late = harness.ask(RequestCode.END_TRANSACTION, end)
    assert late.code == ResponseCode.ILLEGAL_OPERATION
    harness.get(RequestCode.END_TRANSACTION, {**end, "fromTransactionCheck": True})
    assert harness.bodies("t") == [b"half"]


async def test_an_unknown_transaction_state_gets_no_response(harness: BrokerHarness) -> None:
    harness.topic("t")
    end = {**_half(harness), "commitOrRollback": _UNKNOWN}
    command: RemotingCommand = commands.request(RequestCode.END_TRANSACTION, strings(end))
    assert harness.broker.handle(harness.client, command, harness.now) is None


async def test_a_delay_begins_with_the_commit(harness: BrokerHarness) -> None:
    harness.topic("t")
    end = _half(harness, DELAY="2")
    harness.pass_time(4000)
    harness.get(RequestCode.END_TRANSACTION, end)
    harness.pass_time(4900)
    assert harness.bodies("t") == []
    harness.pass_time(100)
    assert harness.bodies("t") == [b"half"]


async def test_many_unresolved_messages_are_checked_in_several_ticks(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join(producers=["pg"], channel=FakeChannel())
    for _ in range(600):
        _half(harness)
    harness.pass_time(40_000, step=40_000)
    assert 0 < len(harness.pushed) < 600
    harness.pass_time(1000)
    assert len(harness.pushed) == 600


async def test_each_message_is_checked_when_its_own_immunity_ends(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.join(producers=["pg"])
    for number in range(4):
        _half(harness, b"%d" % number)
        harness.pass_time(2000)
    harness.pass_time(4200)
    bodies = [messages.decode_message(check.body).body for _, check in harness.pushed]
    assert bodies == [b"0", b"1", b"2", b"3"]
    harness.pass_time(18_000)
    assert len(harness.pushed) == 4
    harness.pass_time(12_000)
    assert len(harness.pushed) == 8


async def test_times_of_resolved_messages_are_forgotten(harness: BrokerHarness) -> None:
    harness.topic("t")
    kept = _half(harness, CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(1500):
        end = _half(harness, CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
        harness.get(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": _ROLLBACK})
    assert len(harness.broker.transactions._due) < 1100
    harness.pass_time(3_599_000, step=1000)
    harness.join(producers=["pg"])
    harness.pass_time(2000)
    assert [check.fields["commitLogOffset"] for _, check in harness.pushed] == [str(kept["commitLogOffset"])]


async def test_an_immunity_is_limited(harness: BrokerHarness) -> None:
    """A producer chooses it, and the time at which the message was born."""
    harness.topic("t")
    _half(harness, CHECK_IMMUNITY_TIME_IN_SECONDS="9999999999")
    harness.pass_time(73 * 3_600_000, step=3_600_000)
    assert [message.body for message in harness.stored("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"half"]
    assert len(harness.broker.transactions) == 0
