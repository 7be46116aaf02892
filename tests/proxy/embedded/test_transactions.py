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
from tests.proxy.embedded.bench import Bench
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio

_COMMIT, _ROLLBACK, _UNKNOWN = 8, 12, 0


def _half(bench: Bench, body: bytes = b"half", **pairs: str) -> dict[str, object]:
    """Send a half message; END_TRANSACTION's header for it."""
    given = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U", **pairs}
    reply = bench.send("t", body, given, sysFlag=4, producerGroup="pg")
    return {
        "topic": "t",
        "producerGroup": "pg",
        "tranStateTableOffset": reply.fields["queueOffset"],
        "commitLogOffset": OffsetMessageId.parse(reply.fields["msgId"]).offset,
        "commitOrRollback": _COMMIT,
        "msgId": "U",
    }


async def test_a_half_message_is_visible_after_its_commit(bench: Bench) -> None:
    bench.topic("t")
    end = _half(bench)
    assert bench.bodies("t") == []
    bench.get(RequestCode.END_TRANSACTION, end)
    [message] = bench.stored("t")
    # The property stays, by which consumers see what kind of message it was.
    assert (message.body, message.get("TRAN_MSG"), message.get("REAL_TOPIC")) == (b"half", "true", None)
    assert message.sys_flag & messages.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == end["commitLogOffset"]
    # Once more, as a request that is repeated: nothing comes twice.
    bench.get(RequestCode.END_TRANSACTION, end)
    bench.get(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": _ROLLBACK})
    assert bench.bodies("t") == [b"half"]
    assert len(bench.broker.transactions) == 0


async def test_a_rolled_back_message_is_not_delivered(bench: Bench) -> None:
    bench.topic("t")
    end = _half(bench)
    bench.get(RequestCode.END_TRANSACTION, {**end, "commitOrRollback": _ROLLBACK})
    bench.get(RequestCode.END_TRANSACTION, end)
    assert bench.bodies("t") == []


@pytest.mark.parametrize("wrong", [{"producerGroup": "other"}, {"tranStateTableOffset": 7}, {"commitLogOffset": 10**9}])
async def test_an_end_with_wrong_offset_or_group_is_rejected(bench: Bench, wrong: dict[str, object]) -> None:
    bench.topic("t")
    reply = bench.ask(RequestCode.END_TRANSACTION, {**_half(bench), **wrong})
    assert (reply.code, bool(reply.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert bench.bodies("t") == []


async def test_an_unresolved_message_is_checked_until_it_is_resolved(bench: Bench) -> None:
    bench.topic("t")
    producer, other = FakeChannel(), FakeChannel()
    bench.join(producers=["pg"], channel=producer)
    bench.join(producers=["else"], channel=other)
    end = _half(bench)
    bench.pass_time(5900)
    assert not bench.pushed
    bench.pass_time(31_000)
    [(channel, check)] = bench.pushed
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
    bench.restart()
    bench.join(producers=["pg"], channel=producer)
    bench.pass_time(30_000)
    assert messages.decode_message(bench.pushed[-1][1].body).get(properties.TRANSACTION_CHECK_TIMES) == "2"
    bench.get(RequestCode.END_TRANSACTION, {**end, "fromTransactionCheck": True})
    count = len(bench.pushed)
    bench.pass_time(60_000)
    assert (bench.bodies("t"), len(bench.pushed)) == ([b"half"], count)


async def test_a_message_over_the_maximum_of_checks_is_discarded() -> None:
    bench = Bench(BrokerSettings(transaction_timeout=1000, transaction_interval=1000, transaction_checks=3))
    bench.topic("t")
    bench.join(producers=["pg"])
    _half(bench)
    bench.pass_time(10_000)
    assert len(bench.pushed) == 3
    assert [message.body for message in bench.stored("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"half"]
    assert len(bench.broker.transactions) == 0


async def test_an_explicit_immunity_delays_checks_and_limits_the_commit(bench: Bench) -> None:
    bench.topic("t")
    bench.join(producers=["pg"])
    end = _half(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    bench.pass_time(59_000, step=1000)
    assert not bench.pushed
    bench.pass_time(30_000, step=1000)
    assert len(bench.pushed) == 1
    late = bench.ask(RequestCode.END_TRANSACTION, end)
    assert late.code == ResponseCode.ILLEGAL_OPERATION
    bench.get(RequestCode.END_TRANSACTION, {**end, "fromTransactionCheck": True})
    assert bench.bodies("t") == [b"half"]


async def test_an_unknown_transaction_state_gets_no_response(bench: Bench) -> None:
    bench.topic("t")
    end = {**_half(bench), "commitOrRollback": _UNKNOWN}
    command: RemotingCommand = commands.request(RequestCode.END_TRANSACTION, strings(end))
    assert bench.broker.handle(bench.client, command, bench.now) is None


async def test_a_delay_begins_with_the_commit(bench: Bench) -> None:
    bench.topic("t")
    end = _half(bench, DELAY="2")
    bench.pass_time(4000)
    bench.get(RequestCode.END_TRANSACTION, end)
    bench.pass_time(4900)
    assert bench.bodies("t") == []
    bench.pass_time(100)
    assert bench.bodies("t") == [b"half"]
