"""Members of one group, each of which needs a connection to each broker, with a good client beside them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from tests.attacks.good_client import observed
from tests.attacks.raw_client import Client as RawClient
from tests.attacks.raw_client import data, message
from tests.attacks.replicas import sockets
from tests.cluster.client import Client, heartbeat, unique
from tests.cluster.servers import HOST, Gantry
from tests.proxy.backends.cluster.servers import running

pytestmark = pytest.mark.anyio

_TELEMETRY = "/apache.rocketmq.v2.MessagingService/Telemetry"
_METADATA = (("x-mq-client-version", "5.0.0"), ("x-mq-language", "JAVA"))
_REPLICAS = 4
# Sockets of the replica and its good client: listeners, connections for requests, and the attackers' own.
_OTHER_SOCKETS = 40


@asynccontextmanager
async def _replica(directory: Path, topic: str, settings: str = "") -> AsyncIterator[Gantry]:
    """Yield a replica in front of a cluster in this process, whose only broker has the topic and three slaves."""
    stored = {"msgId": "id", "queueId": "0", "queueOffset": "0"}
    async with running() as cluster:
        for number in range(_REPLICAS):
            await cluster.broker("broker-a", number, lambda _: commands.success(dict(stored)))
        cluster.topics[topic] = ["broker-a"]
        namesrv = (await cluster.name_server()).address
        gantry = Gantry(directory, namesrv, f'drain_timeout = 0.5\n{settings}\n[admin]\nlisten = "off"\n')
        # The name server answers meanwhile.
        await asyncio.to_thread(gantry.__enter__)
        try:
            yield gantry
        finally:
            await asyncio.to_thread(gantry.__exit__, None, None, None)


def _join_by_telemetry(port: int, topic: str) -> list[RawClient]:
    """Join a group as 256 clients on each of two connections."""
    subscription = d.Subscription(
        group=d.Resource(name="attackers"),
        subscriptions=[
            d.SubscriptionEntry(topic=d.Resource(name=topic), expression=d.FilterExpression(expression="*"))
        ],
    )
    settings = d.Settings(
        client_type=d.PUSH_CONSUMER,
        access_point=d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host=HOST, port=80)]),
        subscription=subscription,
    )
    command = message(pb.TelemetryCommand(settings=settings).SerializeToString())
    connections = [RawClient(port) for _ in range(2)]
    for number, connection in enumerate(connections):
        for stream in range(1, 512, 2):
            headers = connection.request(_TELEMETRY, ("x-mq-client-id", f"c{number}-{stream}"), *_METADATA)
            connection.send(connection.headers(stream, headers) + data(stream, command))
    return connections


async def test_client_ids_of_a_grpc_connection_take_few_connections_to_brokers(tmp_path: Path) -> None:
    """512 client ids, 32 of each connection in one group: 2,048 connections to brokers without a bound."""
    topic = unique("good")
    async with _replica(tmp_path, topic) as gantry:
        before = sockets(gantry.pid)

        def attack() -> int:
            connections = _join_by_telemetry(gantry.port, topic)
            most, end = 0, time.monotonic() + 6
            while time.monotonic() < end:
                most = max(most, sockets(gantry.pid))
                time.sleep(0.2)
            for connection in connections:
                connection.__exit__()
            return most

        async with observed(gantry.address, gantry.pid, topic) as observation:
            most = await asyncio.to_thread(attack)
        observation.check(growth=24)
        assert most - before <= 2 * 32 * _REPLICAS + _OTHER_SOCKETS


async def test_members_over_the_bound_are_refused_and_earlier_ones_stay(tmp_path: Path) -> None:
    """60 remoting connections in one group from one address, which may have 100 connections to brokers."""
    topic, group = unique("good"), unique("group")
    # The last members are silent while the first ones join.
    settings = "[cluster]\nmembership_connections = 200\n[limits]\nnegotiation_timeout = 120"
    async with _replica(tmp_path, topic, settings) as gantry:
        before = sockets(gantry.pid)
        async with observed(gantry.address, gantry.pid, topic) as observation:
            members = [await Client(gantry.address).__aenter__() for _ in range(60)]
            beats = [heartbeat(member.client_id, {group: [topic]}, []) for member in members]
            pairs = list(zip(members, beats, strict=True))
            replies = [await member.ask(RequestCode.HEART_BEAT, {}, beat) for member, beat in pairs]
            most = sockets(gantry.pid)
            for member in members:
                await member.__aexit__(None, None, None)
        observation.check(growth=24)
        codes = [reply.code for reply in replies]
        assert codes == [ResponseCode.SUCCESS] * 25 + [ResponseCode.SYSTEM_BUSY] * 35
        assert "(cluster.membership_connections)" in str(replies[-1].header.get("remark"))
        assert most - before <= 100 + 60 + _OTHER_SOCKETS
