"""Lite consumers: membership of lite groups, and removal of their subscriptions when they leave."""

import asyncio
from typing import Any

import orjson
import pytest

from grpc_gateway.clients import client_lifecycle
from grpc_gateway.clients.client_settings import LITE_CONSUMERS
from protos.apache.rocketmq.v2.definition_pb2 import ClientType, Code, FilterExpression
from protos.apache.rocketmq.v2.service_pb2 import HeartbeatRequest, NotifyClientTerminationRequest
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout
from remoting.topic_group_config import GroupConfig
from tests.grpc_gateway.client_harness import LITE_GROUP, ClientHarness
from tests.grpc_gateway.fakes import FakeConnection, FakeCore
from tests.grpc_gateway.messages import consumer_settings, resource, route
from tests.proxy.fakes import settle

pytestmark = pytest.mark.anyio

UNREGISTER = RequestCode.UNREGISTER_CLIENT
MEMBERS, LITE_CONTROL = RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.LITE_SUBSCRIPTION_CTL


@pytest.fixture(autouse=True)
def lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_lifecycle, "_LOST_TIMEOUT", 0)
    monkeypatch.setattr(client_lifecycle, "_RETURN_TIMEOUT", 0)


def heartbeat(kind: ClientType) -> HeartbeatRequest:
    return HeartbeatRequest(group=resource("g"), client_type=kind)


@pytest.mark.parametrize(
    ("group", "kind", "topic", "code"),
    [
        (LITE_GROUP, ClientType.LITE_PUSH_CONSUMER, "orders", Code.OK),
        (LITE_GROUP, ClientType.LITE_SIMPLE_CONSUMER, "others", Code.ILLEGAL_TOPIC),
        (LITE_GROUP, ClientType.PUSH_CONSUMER, "orders", Code.ILLEGAL_CONSUMER_GROUP),
        (LITE_GROUP, ClientType.SIMPLE_CONSUMER, "orders", Code.ILLEGAL_CONSUMER_GROUP),
        (GroupConfig("g"), ClientType.PUSH_CONSUMER, "others", Code.OK),
        (GroupConfig("g"), ClientType.LITE_PUSH_CONSUMER, "orders", Code.ILLEGAL_CONSUMER_GROUP),
        (GroupConfig("g", assumed=True), ClientType.LITE_PUSH_CONSUMER, "orders", Code.OK),
    ],
)
async def test_heartbeat_is_rejected_unless_group_and_client_are_both_lite(
    group: GroupConfig, kind: ClientType, topic: str, code: int
) -> None:
    harness = ClientHarness(FakeCore(groups={"g": group}))
    harness.client().record_subscription(topic, FilterExpression(expression="*"))
    if code == Code.OK:
        assert (await harness.heartbeat(heartbeat(kind))).status.code == Code.OK
    else:
        assert await harness.rejection_code(heartbeat(kind)) == code
    assert harness.command_codes == ([RequestCode.HEART_BEAT] if code == Code.OK else [])


async def test_heartbeats_are_rejected_after_a_group_has_become_lite() -> None:
    harness = ClientHarness()
    await harness.open_session(consumer_settings())
    assert (await harness.heartbeat()).status.code == Code.OK
    harness.core.groups["g"] = LITE_GROUP
    # The settings determine the client's type.
    for request in (HeartbeatRequest(), heartbeat(ClientType.LITE_PUSH_CONSUMER)):
        assert await harness.rejection_code(request) == Code.ILLEGAL_CONSUMER_GROUP


# Departure.


class LiteHarness(ClientHarness):
    """A lite consumer with a connection, of a topic at two brokers. members: the answer of brokers, None: no member."""

    def __init__(self) -> None:
        routes = {"orders": route("orders", "broker-a", "broker-b")}
        super().__init__(FakeCore(routes=routes, groups={"g": LITE_GROUP}, answer=self._answer))
        self.members: list[str] | None = None

    def _answer(self, command: RemotingCommand) -> RemotingCommand | Exception:
        if command.code != MEMBERS:
            return commands.success()
        if self.members is None:
            return commands.response(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group, g")
        return commands.success(body=orjson.dumps({"consumerIdList": self.members}))

    async def connect(self, kind: ClientType = ClientType.LITE_PUSH_CONSUMER) -> FakeConnection:
        """Register the client, and return its only connection."""
        if kind not in LITE_CONSUMERS:
            self.core.groups.clear()
        connection = FakeConnection()
        rpc = self.clients.rpc(self.context(connection=connection), "Heartbeat")
        rpc.client.record_subscription("orders", FilterExpression(expression="*"))
        await self.client_lifecycle.heartbeat(rpc, heartbeat(kind))
        return connection

    async def lose(self, connection: FakeConnection) -> None:
        """Lose the connection, and wait until the client is removed."""
        self.client_lifecycle.connection_lost(self.clients.disconnected(connection), "peer")
        await settle()

    async def terminate(self) -> None:
        """Terminate the client, and wait until its requests are sent."""
        rpc = self.clients.rpc(self.context(), "NotifyClientTermination")
        await self.client_lifecycle.terminate(rpc, NotifyClientTerminationRequest())
        await settle()

    def expire(self, seconds: float) -> None:
        """Remove the clients that have no connection, or made no call, for this time."""
        self.client_lifecycle.sweep(asyncio.get_running_loop().time() + seconds)

    @property
    def departure(self) -> list[int]:
        """The codes of the commands after the registration."""
        return self.command_codes[1:]


REMOVED = [UNREGISTER, MEMBERS, LITE_CONTROL, LITE_CONTROL]


@pytest.mark.parametrize("kind", sorted(LITE_CONSUMERS))
@pytest.mark.parametrize("members", [None, [], ["c2"]])
async def test_terminated_lite_consumer_has_no_subscriptions_left(kind: ClientType, members: list[str] | None) -> None:
    harness = LiteHarness()
    harness.members = members
    await harness.connect(kind)
    await harness.terminate()
    assert harness.departure == REMOVED
    assert [fields for fields in harness.core.fields if "bname" in fields] == [
        {"bname": "broker-a"},
        {"bname": "broker-b"},
    ]
    [subscription] = orjson.loads(harness.core.handled[-1][3])["subscriptionSet"]
    assert (subscription["action"], subscription["clientId"]) == ("COMPLETE_REMOVE", "c1")
    assert (subscription["group"], subscription["topic"], subscription["liteTopicSet"]) == ("g", "orders", [])


async def test_lost_and_expired_lite_consumers_have_no_subscriptions_left() -> None:
    harness = LiteHarness()
    await harness.lose(await harness.connect())
    assert harness.departure == REMOVED
    harness = LiteHarness()
    await harness.connect()
    harness.expire(91)
    await settle()
    assert harness.departure == REMOVED


async def test_lost_lite_consumer_has_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_lifecycle, "_RETURN_TIMEOUT", 60)
    harness = LiteHarness()
    await harness.lose(await harness.connect())
    assert harness.departure == [UNREGISTER]


@pytest.mark.parametrize(
    "answer", [["c1", "c2"], RequestTimeout("late"), commands.response(ResponseCode.NO_PERMISSION)]
)
async def test_lite_consumer_that_may_be_at_another_replica_keeps_its_subscriptions(answer: Any) -> None:
    harness = LiteHarness()
    connection = await harness.connect()
    if isinstance(answer, list):
        harness.members = answer
    else:
        harness.core.answer = lambda command: answer if command.code == MEMBERS else commands.success()
    await harness.lose(connection)
    assert harness.departure == [UNREGISTER, MEMBERS]


async def test_lite_consumer_that_gantry_disconnects_keeps_its_subscriptions() -> None:
    harness = LiteHarness()
    # Asked to reconnect by a drain, and not back here in time.
    harness.clients.disconnected(await harness.connect())
    harness.expire(11)
    await settle()
    assert harness.departure == [UNREGISTER]
    harness = LiteHarness()
    await harness.connect()
    await harness.client_lifecycle.close()
    await settle()
    assert harness.departure == [UNREGISTER]


async def test_other_consumers_have_no_lite_subscriptions_to_remove() -> None:
    harness = LiteHarness()
    await harness.connect(ClientType.PUSH_CONSUMER)
    await harness.terminate()
    assert harness.departure == [UNREGISTER]
