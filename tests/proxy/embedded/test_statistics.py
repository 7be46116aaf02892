"""VIEW_BROKER_STATS_DATA: the bytes of a real broker, and figures after a time."""

import json
from typing import Any

import pytest

from proxy.embedded.broker import statistics
from proxy.embedded.broker.statistics import Statistics
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from tests.proxy.embedded.broker_harness import START, BrokerHarness

pytestmark = pytest.mark.anyio

_CODE = RequestCode.VIEW_BROKER_STATS_DATA
_ZERO = '{"avgpt":0.0,"sum":0,"tps":0.0}'
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000


def _recorded(minute: str) -> bytes:
    return f'{{"statsDay":{_ZERO},"statsHour":{_ZERO},"statsMinute":{minute}}}'.encode()


# Bodies of a new RocketMQ 5.4.0 broker, 10 s after five messages of 225 bytes in topic T, which group g pulled in two
# responses, of three messages and of two.
_RECORDED = {
    ("TOPIC_PUT_NUMS", "T"): _recorded('{"avgpt":1.0,"sum":5,"tps":0.5}'),
    ("TOPIC_PUT_SIZE", "T"): _recorded('{"avgpt":225.0,"sum":1125,"tps":112.5}'),
    ("GROUP_GET_NUMS", "T@g"): _recorded('{"avgpt":2.5,"sum":5,"tps":0.5}'),
    ("GROUP_GET_SIZE", "T@g"): _recorded('{"avgpt":562.5,"sum":1125,"tps":112.5}'),
    ("BROKER_PUT_NUMS", "DefaultCluster"): _recorded('{"avgpt":0.0,"sum":5,"tps":0.5}'),
    ("BROKER_GET_NUMS", "DefaultCluster"): _recorded('{"avgpt":0.0,"sum":5,"tps":0.5}'),
}


def _stats(harness: BrokerHarness, name: str, key: str) -> Any:
    return json.loads(harness.get(_CODE, {"statsName": name, "statsKey": key}).body)


def _send(harness: BrokerHarness, count: int, size: int = 225) -> None:
    """Send messages of T whose records have this size."""
    message = harness.stored("T")[0]
    overhead = messages.encoded_size(message) - len(message.body)
    for _ in range(count):
        harness.send("T", bytes(size - overhead))


@pytest.fixture
async def measured() -> BrokerHarness:
    """A broker that started after its topic had a first message."""
    harness = BrokerHarness()
    harness.topic("T", queues=1)
    harness.send("T", b"x")
    harness.pass_time(_SECOND)
    harness.restart()
    return harness


async def test_bodies_are_those_that_were_recorded_of_a_real_broker(measured: BrokerHarness) -> None:
    measured.pass_time(100)
    _send(measured, 5)
    early = measured.get(_CODE, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})
    assert early.body == _recorded(_ZERO)
    for offset, count in ((1, 3), (4, 32)):
        assert measured.pull("T", offset=offset, maxMsgNums=count).body
    measured.pass_time(10 * _SECOND)
    for (name, key), body in _RECORDED.items():
        assert measured.get(_CODE, {"statsName": name, "statsKey": key}).body == body, (name, key)


@pytest.mark.parametrize(
    ("name", "key"),
    [("TOPIC_PUT_NUMS", "nope"), ("NOPE", "T"), ("GROUP_GET_NUMS", "T"), ("SNDBCK_PUT_NUMS", "T@g")],
)
async def test_statistics_without_a_count_are_an_error(measured: BrokerHarness, name: str, key: str) -> None:
    _send(measured, 1)
    reply = measured.ask(_CODE, {"statsName": name, "statsKey": key})
    assert (reply.code, reply.body) == (ResponseCode.SYSTEM_ERROR, b"")
    assert key in (reply.remark or "")


async def test_a_minute_ends_and_the_day_goes_on(measured: BrokerHarness) -> None:
    measured.pass_time(100)
    _send(measured, 6)
    measured.pass_time(30 * _SECOND, 10 * _SECOND)
    assert _stats(measured, "TOPIC_PUT_NUMS", "T")["statsMinute"] == {"sum": 6, "tps": 0.2, "avgpt": 1.0}
    measured.pass_time(2 * _MINUTE, _MINUTE)
    assert _stats(measured, "TOPIC_PUT_NUMS", "T")["statsMinute"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}
    measured.pass_time(10 * _MINUTE, _MINUTE)
    hour = _stats(measured, "TOPIC_PUT_NUMS", "T")["statsHour"]
    assert (hour["sum"], hour["tps"]) == (6, pytest.approx(6 / 600))
    measured.pass_time(2 * _HOUR, _HOUR)
    figures = _stats(measured, "TOPIC_PUT_NUMS", "T")
    assert (figures["statsHour"]["sum"], figures["statsDay"]["sum"]) == (0, 6)
    measured.pass_time(30 * _HOUR, _HOUR)
    assert _stats(measured, "TOPIC_PUT_NUMS", "T")["statsDay"]["sum"] == 0


async def test_sends_back_pops_and_the_end_of_a_topic_are_counted(measured: BrokerHarness) -> None:
    _send(measured, 2)
    popped = measured.pop("T")
    back = {"group": "g", "offset": popped[0].message.commit_log_offset, "delayLevel": 1, "originTopic": "T"}
    measured.get(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    measured.pass_time(10 * _SECOND, _SECOND)
    assert _stats(measured, "GROUP_GET_NUMS", "T@g")["statsMinute"]["sum"] == len(popped) == 3
    assert _stats(measured, "SNDBCK_PUT_NUMS", "T@g")["statsMinute"]["sum"] == 1
    measured.get(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    for name, key in (("TOPIC_PUT_NUMS", "T"), ("GROUP_GET_NUMS", "T@g"), ("SNDBCK_PUT_NUMS", "T@g")):
        assert measured.ask(_CODE, {"statsName": name, "statsKey": key}).code == ResponseCode.SYSTEM_ERROR


def test_the_number_of_counters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_MAX_COUNTERS", 2)
    counted = Statistics("c", START)
    for topic in "abc":
        counted.add_stored(topic, 1, START)
    known = [counted.figures("TOPIC_PUT_NUMS", topic, START) is not None for topic in "abc"]
    assert known == [False, True, True]
    assert counted.counts == {"put": 3, "got": 0}
