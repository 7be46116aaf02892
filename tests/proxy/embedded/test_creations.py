"""Quotas of topics and groups that requests create, and isolation of one client's failures from others."""

import asyncio
import logging
from typing import Any

import pytest

from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.broker.group_notices import INTERVAL
from proxy.embedded.broker.settings import BrokerSettings
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.names import retry_topic
from tests.cluster.client import heartbeat, pull_fields, send_fields, strings, v2
from tests.proxy.embedded.broker_harness import START
from tests.proxy.embedded.memory_store import MemoryStore
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio


class Bench:
    """A broker with these settings, and its clock in ms."""

    def __init__(self, **settings: Any) -> None:
        self.now = START
        self.fail = False
        self.notified: list[FakeChannel] = []
        self.backend = EmbeddedBackend(
            BrokerSettings(**settings), MemoryStore(lambda: self.now), self._push, lambda: self.now
        )
        self.broker = self.backend.broker

    def _push(self, channel: object, _: RemotingCommand) -> None:
        assert isinstance(channel, FakeChannel)
        self.notified.append(channel)
        if self.fail:
            raise RuntimeError("injected")

    async def ask(
        self, channel: FakeChannel, code: int, fields: dict[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        reply = self.backend.handle(channel, commands.request(code, strings(fields or {}), body))
        assert reply is not None
        return await reply

    async def send(self, channel: FakeChannel, topic: str) -> int:
        return (await self.ask(channel, RequestCode.SEND_MESSAGE_V2, v2(send_fields(topic)), b"x")).code


async def test_topics_that_one_client_creates_have_a_rate(caplog: pytest.LogCaptureFixture) -> None:
    bench, client = Bench(creations_per_client=5), FakeChannel()
    with caplog.at_level(logging.WARNING):
        codes = [await bench.send(client, f"t{number}") for number in range(8)]
    assert codes == [ResponseCode.SUCCESS] * 5 + [ResponseCode.TOPIC_NOT_EXIST] * 3
    assert len(caplog.records) == 1
    assert await bench.send(client, "t0") == ResponseCode.SUCCESS
    bench.now += 12_000
    assert await bench.send(client, "t8") == ResponseCode.SUCCESS
    assert await bench.send(client, "t9") == ResponseCode.TOPIC_NOT_EXIST
    assert bench.broker.creations.counts == {"admitted": 6, "rate": 4, "quota": 0}


async def test_clients_of_one_address_share_a_rate() -> None:
    bench = Bench(creations_per_client=5, creations_per_address=7)
    codes = [
        await bench.send(client, f"{client.session.number}-{n}")
        for client in (FakeChannel(), FakeChannel())
        for n in range(5)
    ]
    assert codes.count(ResponseCode.SUCCESS) == 7


async def test_topics_have_a_quota() -> None:
    bench = Bench()
    bench = Bench(max_topics=len(bench.broker.topics) + 2)
    assert [await bench.send(FakeChannel(), f"t{number}") for number in range(3)] == [
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.TOPIC_NOT_EXIST,
    ]
    assert bench.broker.creations.counts["quota"] == 1


async def test_a_heartbeat_creates_a_bounded_number_of_groups_and_joins_those() -> None:
    bench, client = Bench(creations_per_client=5), FakeChannel()
    body = heartbeat("client", {f"g{number}": ["t"] for number in range(20)}, ())
    assert (await bench.ask(client, RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
    assert len(bench.broker.members.consumers) == 5
    refused = next(name for name in (f"g{n}" for n in range(20)) if bench.broker.groups.get(name) is None)
    assert retry_topic(refused) not in bench.broker.topics
    reply = await bench.ask(client, RequestCode.PULL_MESSAGE, pull_fields("t", refused))
    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_failing_notification_concerns_neither_the_heartbeat_nor_other_members() -> None:
    bench = Bench()
    clients = [FakeChannel(), FakeChannel(), FakeChannel()]
    bench.fail = True
    for client in clients:
        body = heartbeat(f"client-{client.session.number}", {"g": ["t"]}, ())
        assert (await bench.ask(client, RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
    # Notices of one group are sent once in an interval.
    bench.broker.tick(bench.now + INTERVAL)
    assert bench.notified[-3:] == clients


async def test_a_failing_filter_concerns_neither_the_sender_nor_other_consumers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, sender = Bench(), FakeChannel()
    await bench.send(sender, "t")
    polls = [
        bench.backend.handle(
            FakeChannel(), commands.request(RequestCode.PULL_MESSAGE, strings(pull_fields("t", "g", 0, 1, 10_000)))
        )
        for _ in range(2)
    ]

    class Failing:
        def matches(self, _: object) -> bool:
            raise RecursionError("injected")

    [waiting] = bench.broker.waiting_pulls._polls.values()
    next(iter(waiting.values())).filter = Failing()
    assert await bench.send(sender, "t") == ResponseCode.SUCCESS
    async with asyncio.timeout(10):
        codes = [(await poll).code for poll in polls if poll is not None]
    assert codes == [ResponseCode.SUCCESS] * 2


async def test_a_failing_wakeup_does_not_fail_the_send(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, sender = Bench(), FakeChannel()
    await bench.send(sender, "t")
    poll = bench.backend.handle(
        FakeChannel(), commands.request(RequestCode.PULL_MESSAGE, strings(pull_fields("t", "g", 0, 1, 10_000)))
    )
    assert poll is not None

    def fail(*_: object) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(bench.broker.waking, "_serve_one", fail)
    assert await bench.send(sender, "t") == ResponseCode.SUCCESS
    assert (await poll).code == ResponseCode.SUCCESS
