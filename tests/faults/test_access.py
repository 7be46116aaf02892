"""Killed brokers and lost clients with access control on: Gantry and the brokers check clients of both protocols."""

import gc
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import anyio
import anyio.to_thread
import orjson
import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.signature import Credentials
from tests.acl_table.probes import metadata
from tests.cluster.client import Client, described, lists, queue_fields, unique, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.reports import figure
from tests.cluster.servers import Cluster, Gantry, started

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]

# The kit's users of all brokers.
ADMIN, INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
ALICE, BOB = Credentials("alice", "alice-secret-1"), Credentials("bob", "bob-secret-1")
_COMMIT = 8


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers that check permissions; alice may use all topics and groups, bob none."""
    with started(tmp_path_factory, "secured_pair", "--acl", "--second-broker", "--fast-timers", "--quick") as cluster:
        cluster.user(ALICE.access_key, ALICE.secret_key, "Topic:*=Pub,Sub", "Group:*=Sub")
        cluster.user(BOB.access_key, BOB.secret_key)
        yield cluster


@pytest.fixture(scope="module")
def judge(secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A replica that checks clients by the brokers' users."""
    config = f"""
        [cluster]
        access_key = "{INNER.access_key}"
        secret_key = "{INNER.secret_key}"
        [auth]
        brokers = true
    """
    with Gantry(tmp_path_factory.mktemp("judge"), secured.namesrv, config) as judge:
        yield judge


class Member(Consumer):
    """A gRPC push consumer with credentials and a telemetry stream."""

    def __init__(self, address: str, group: str, topic: str, user: Credentials = ALICE) -> None:
        super().__init__(address, group, topic)
        signature = [pair for pair in metadata(user) if pair[0] in ("x-mq-date-time", "authorization")]
        self.metadata += tuple(signature)
        self.client_id = dict(self.metadata)["x-mq-client-id"]
        self._stream: Any = None

    async def join(self) -> None:
        """Open the telemetry stream, send settings, and wait for those of the server; then send a heartbeat."""
        entry = d.SubscriptionEntry(topic=self.topic, expression=d.FilterExpression(expression="*"))
        settings = d.Settings(
            client_type=d.ClientType.PUSH_CONSUMER,
            subscription=d.Subscription(group=self.group, subscriptions=[entry]),
        )
        self._stream = self.stub.Telemetry(metadata=self.metadata)
        await self._stream.write(pb.TelemetryCommand(settings=settings))
        assert (await self._stream.read()).HasField("settings")
        beat = pb.HeartbeatRequest(group=self.group, client_type=d.ClientType.PUSH_CONSUMER)
        assert (await self.call("Heartbeat", beat)).status.code == Code.OK

    async def vanish(self) -> None:
        """Close the connection without a farewell. Its calls would keep it open."""
        self._stream.cancel()
        await self._channel.close()
        self._stream = self.stub = None
        gc.collect()

    async def code(self) -> int:
        """Return the code of a route request."""
        return int((await self.call("QueryRoute", pb.QueryRouteRequest(topic=self.topic))).status.code)


def _broker(secured: Cluster, name: str = "broker") -> Client:
    return Client(secured.addresses[name], credentials=ADMIN)


async def _topic(secured: Cluster, judge: Gantry, name: str, kind: str = "NORMAL") -> str:
    topic = unique(name)
    await anyio.to_thread.run_sync(secured.topic, topic, 1, kind)
    async with Client(judge.address, credentials=ALICE) as client:

        async def permitted() -> bool:
            return (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == 0

        # Until Gantry has loaded the users.
        await wait_until(permitted, "the route")
    return topic


async def test_crashed_clients_leave_their_groups(secured: Cluster, judge: Gantry) -> None:
    """Neither client says farewell: Gantry does, with its own credentials."""
    topic, group = await _topic(secured, judge, "crash"), unique("group")
    async with (
        _broker(secured) as admin,
        Member(judge.address, group, topic) as member,
        Client(judge.address, credentials=ALICE) as client,
    ):
        await member.join()
        await client.heartbeat({group: [topic]})
        await wait_until(lists(admin, group, member.client_id, client.client_id), "the members")
        client.abort()
        await wait_until(lists(admin, group, member.client_id), "the remoting client being gone")
        await member.vanish()
        took = await wait_until(lists(admin, group), "the gRPC client being gone")
        figure(f"with access control, a lost gRPC client has left its group at the broker after {took:.2f} s")


async def test_members_are_registered_again_at_a_restarted_broker(secured: Cluster, judge: Gantry) -> None:
    topic, group = await _topic(secured, judge, "again"), unique("group")
    async with Member(judge.address, group, topic) as member, Client(judge.address, credentials=ALICE) as client:
        await member.join()
        await client.heartbeat({group: [topic]})
        await anyio.to_thread.run_sync(secured.kill, "broker-b")
        await anyio.to_thread.run_sync(secured.restart, "broker-b")
        begin = time.monotonic()
        async with _broker(secured, "broker-b") as admin:
            await wait_until(lists(admin, group, member.client_id, client.client_id), "both being members again")
        figure(f"with access control, members again {time.monotonic() - begin:.2f} s after the broker is ready")


async def test_grpc_messages_are_redelivered_and_sent_to_the_dead_letter_queue(secured: Cluster, judge: Gantry) -> None:
    topic, group = await _topic(secured, judge, "dead"), unique("group")
    async with Member(judge.address, group, topic) as member:
        await member.join()
        await member.receive(wait=0.1)
        await member.send(b"0")
        [message] = await member.receive_all(1, invisible=30)
        assert (await member.change(message, 1)).status.code == Code.OK
        [again] = await member.receive_all(1, invisible=30)
        assert again.body == b"0"
        assert (await member.forward(again)).status.code == Code.OK
        queue = f"%DLQ%{group}"

        async def found() -> bool:
            for name, label in (("broker", "broker-a"), ("broker-b", "broker-b")):
                async with Client(secured.addresses[name], broker=label, credentials=ADMIN) as reader:
                    reply = await reader.ask(RequestCode.GET_MAX_OFFSET, {**queue_fields(queue), "bname": label})
                    if reply.code == ResponseCode.SUCCESS and int(reply.fields["offset"]) == 1:
                        return True
            return False

        await wait_until(found, "the dead letter")


async def test_transactions_are_checked_and_committed(secured: Cluster, judge: Gantry) -> None:
    topic, group = await _topic(secured, judge, "tx", "TRANSACTION"), unique("producers")
    async with Client(judge.address, credentials=ALICE) as producer:
        await producer.route(topic)
        await producer.heartbeat(producers=[group])
        pairs = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: group, "UNIQ_KEY": unique("TX")}
        prepared = int(messages.SysFlag.TRANSACTION_PREPARED)
        await producer.send(topic, b"half", pairs, producerGroup=group, sysFlag=prepared)
        check = await producer.push(RequestCode.CHECK_TRANSACTION_STATE)
        names = ("topic", "tranStateTableOffset", "commitLogOffset", "bname", "msgId", "transactionId")
        fields = {name: check.fields[name] for name in names}
        fields |= {"producerGroup": group, "commitOrRollback": str(_COMMIT), "fromTransactionCheck": "true"}
        producer.send_oneway(RequestCode.END_TRANSACTION, fields)
        assert [found.body for found in await producer.pull_all(1, topic, unique("group"))] == [b"half"]


async def test_the_last_known_users_are_in_force_while_no_broker_responds(secured: Cluster, judge: Gantry) -> None:
    topic = await _topic(secured, judge, "unreachable")
    async with (
        Client(judge.address, credentials=ALICE) as alice,
        Client(judge.address, credentials=BOB) as bob,
        Member(judge.address, unique("group"), topic) as permitted,
        Member(judge.address, unique("group"), topic, BOB) as forbidden,
    ):
        assert _users_check(judge) == ("pass", "")
        for name in ("broker", "broker-b"):
            await anyio.to_thread.run_sync(secured.kill, name)
        try:

            async def said() -> bool:
                status, reason = _users_check(judge)
                return status == "warn" and "s ago are in force" in reason

            await wait_until(said, "the warning of the health check")
            figure(f"no broker responds; health says of the users: {_users_check(judge)[1]}")
            fields = {"topic": topic}
            reply = await alice.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
            assert reply.code != ResponseCode.NO_PERMISSION, described(reply)
            reply = await bob.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
            assert reply.code == ResponseCode.NO_PERMISSION, described(reply)
            assert await permitted.code() not in (Code.FORBIDDEN, Code.UNAUTHORIZED)
            assert await forbidden.code() == Code.FORBIDDEN
        finally:
            for name in ("broker", "broker-b"):
                await anyio.to_thread.run_sync(secured.restart, name)

        async def well() -> bool:
            return _users_check(judge)[0] == "pass"

        await wait_until(well, "the users being loaded again")


def _users_check(judge: Gantry) -> tuple[str, str]:
    """Return status and reason of the health check `users`."""
    connection = HTTPConnection(judge.address, timeout=10)
    connection.request("GET", "/healthz")
    check = orjson.loads(connection.getresponse().read())["checks"]["users"]
    connection.close()
    return check["status"], check["reason"]
