"""Quota of topics and groups that clients' requests create at the brokers of a cluster."""

import logging

import orjson
import pytest

from proxy.core import creation_quota
from proxy.core.creation_quota import CreationQuota
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import GroupNotExist, TopicNotExist
from remoting.requests import REQUESTS
from tests.proxy.fakes import Clock, FakeBackend, FakeChannel, Stage, peer, settle, stage
from tests.proxy.messages import complete, request, route

pytestmark = pytest.mark.anyio

SEND, PULL = REQUESTS[RequestCode.SEND_MESSAGE_V2], REQUESTS[RequestCode.PULL_MESSAGE]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(creation_quota, "monotonic", clock)
    return clock


def answer(_: str, command: RemotingCommand) -> RemotingCommand:
    """Answer as a broker with a single group."""
    if command.code == RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG and command.fields["group"] != "existing":
        return commands.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    return commands.success()


def bounded(per_client: int = 3, per_address: int = 5, per_day: int = 100, **backend: object) -> Stage:
    on = stage(FakeBackend(answer=answer, names=["broker-a"], **backend))  # type: ignore[arg-type]
    on.core.creations = CreationQuota(on.backend, per_client, per_address, per_day)
    return on


async def send(on: Stage, topic: str, channel: FakeChannel) -> None:
    await on.ask(complete(SEND, n="broker-a", b=topic), channel)


def heartbeat(*groups: str) -> RemotingCommand:
    consumers = [{"groupName": group, "subscriptionDataSet": []} for group in groups]
    body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers}
    return request(RequestCode.HEART_BEAT, orjson.dumps(body))


async def test_topics_that_one_client_creates_have_a_rate(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    on, client = bounded(), FakeChannel()
    for number in range(3):
        await send(on, f"t{number}", client)
    with caplog.at_level(logging.WARNING):
        for number in (3, 4):
            with pytest.raises(TopicNotExist, match=f"topic t{number} is not created"):
                await send(on, f"t{number}", client)
    assert [sent.fields["b"] for sent in on.backend.sent] == ["t0", "t1", "t2"]
    assert len(caplog.records) == 1
    assert "192.0.2.7" in caplog.text
    await send(on, "t0", client)
    clock.now += 20
    await send(on, "t3", client)
    assert on.core.creations is not None
    assert on.core.creations.counts == {"admitted": 4, "rate": 2}


async def test_existing_topics_are_served_without_a_creation(clock: Clock) -> None:
    on = bounded(
        warm={"cached": route("cached", "broker-a")}, cold={f"old{n}": route(f"old{n}", "broker-a") for n in range(9)}
    )
    client = FakeChannel()
    await send(on, "cached", client)
    for number in range(9):
        await send(on, f"old{number}", client)
    assert on.core.creations is not None
    assert on.core.creations.counts == {"admitted": 3, "rate": 0}


async def test_clients_of_one_address_share_a_rate_and_all_clients_another(clock: Clock) -> None:
    on = bounded(per_address=5, per_day=6)
    for client in (FakeChannel(), FakeChannel()):
        for number in range(2):
            await send(on, f"{client.session.number}-{number}", client)
    third = FakeChannel()
    await send(on, "fifth", third)
    with pytest.raises(TopicNotExist):
        await send(on, "sixth", third)
    other = FakeChannel(peer("192.0.2.8:50000"))
    await send(on, "sixth", other)
    with pytest.raises(TopicNotExist):
        await send(on, "seventh", other)


async def test_a_heartbeat_creates_few_groups(clock: Clock) -> None:
    on, client = bounded(), FakeChannel()
    with pytest.raises(GroupNotExist, match="group g3 is not created"):
        await on.ask(heartbeat(*(f"g{number}" for number in range(10))), client)
    assert not on.backend.registered
    assert on.registry.member(client) is None
    await on.ask(heartbeat("g0", "existing"), client)
    assert on.registry.member(client) is not None


async def test_pulls_create_few_groups(clock: Clock) -> None:
    on, client = bounded(), FakeChannel()
    for number in range(3):
        await on.ask(complete(PULL, bname="broker-a", consumerGroup=f"g{number}"), client)
    with pytest.raises(GroupNotExist):
        await on.ask(complete(PULL, bname="broker-a", consumerGroup="g3"), client)
    await on.ask(complete(PULL, bname="broker-a", consumerGroup="existing"), client)
    await settle()
    assert on.observed[-2:] == [
        ("PULL_MESSAGE", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("PULL_MESSAGE", ResponseCode.SUCCESS),
    ]
