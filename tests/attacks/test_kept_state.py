"""Requests that could each leave state, buffers or lines of the log behind, with a good client beside them."""

import asyncio
import socket
import time

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.messages import SysFlag
from tests.attacks.deployments import Deployment
from tests.attacks.flood import frame
from tests.attacks.good_client import observed, send_fields
from tests.attacks.raw_client import Client as RawClient
from tests.attacks.raw_client import data, message
from tests.cluster.client import Client, pull_fields, unique
from tests.cluster.servers import HOST, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.complete]

_PARALLEL = 100
_KIB = 1024
_TELEMETRY = "/apache.rocketmq.v2.MessagingService/Telemetry"
_METADATA = (("x-mq-client-version", "5.0.0"), ("x-mq-language", "JAVA"))


async def _ask_all(client: Client, code: int, all_fields: list[dict[str, str]], body: bytes = b"") -> list[int]:
    """Send requests, some at a time; return the response codes."""
    codes: list[int] = []
    for start in range(0, len(all_fields), _PARALLEL):
        replies = [client.begin(code, dict(fields), body, 30) for fields in all_fields[start : start + _PARALLEL]]
        codes += [(await reply).code for reply in replies]
    return codes


async def test_half_closed_connections_are_answered_and_end(replica: Gantry) -> None:
    """1,000 connections send a request and the end of their stream, and stay open otherwise."""
    request = frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": unique("unknown")})

    def attack() -> int:
        open_connections = []
        for _ in range(1000):
            open_connections.append(socket.create_connection((HOST, replica.port), timeout=10))
            open_connections[-1].sendall(request)
            open_connections[-1].shutdown(socket.SHUT_WR)
        ended = 0
        for connection in open_connections:
            while connection.recv(4096):
                pass
            ended += 1
            connection.close()
        return ended

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        assert await asyncio.to_thread(attack) == 1000
    observation.check(growth=48)


@pytest.mark.deployments(Deployment.EMBEDDED, Deployment.WORKERS)
async def test_abandoned_telemetry_streams_release_their_settings(replica: Gantry) -> None:
    """200 streams of 20 connections, each of a client with 50 filters of 1.9 KB; then the connections end."""
    expression = " AND ".join(f"a{number} = 'value'" for number in range(100))
    entries = [
        d.SubscriptionEntry(
            topic=d.Resource(name=f"topic-{number}"), expression=d.FilterExpression(type=d.SQL, expression=expression)
        )
        for number in range(50)
    ]
    settings = d.Settings(
        client_type=d.PUSH_CONSUMER,
        access_point=d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host=HOST, port=80)]),
        subscription=d.Subscription(group=d.Resource(name="abandoned"), subscriptions=entries),
    )
    command = message(pb.TelemetryCommand(settings=settings).SerializeToString())

    def attack() -> None:
        clients = [RawClient(replica.port) for _ in range(20)]
        for number, client in enumerate(clients):
            for stream in range(1, 20, 2):
                name = ("x-mq-client-id", f"abandoned-{number}-{stream}")
                client.send(client.headers(stream, client.request(_TELEMETRY, name, *_METADATA)))
                for start in range(0, len(command), 16_000):
                    client.send(data(stream, command[start : start + 16_000]))
        time.sleep(1)
        for client in clients:
            client.__exit__()

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
    observation.check(growth=160)


async def test_transactions_that_never_end_take_little_memory(replica: Gantry) -> None:
    """10,000 half messages."""
    topic = unique("half")
    pairs = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: "attacker"}
    fields = send_fields(topic) | {"i": properties.encode(pairs), "f": str(int(SysFlag.TRANSACTION_PREPARED))}
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        await _ask_all(attacker, RequestCode.SEND_MESSAGE_V2, [fields] * 10_000, bytes(100))
    observation.check(growth=48)


async def test_a_new_filter_in_each_pull_takes_little_memory(replica: Gantry) -> None:
    """3,000 pulls, each with an SQL filter of 40 conditions that no other one has."""
    topic = unique("filtered")
    pulls = [
        {name: str(value) for name, value in pull_fields(topic, "attacker").items()}
        | {
            "sysFlag": "4",
            "expressionType": "SQL92",
            "subscription": " AND ".join(f"a{term} = '{number}'" for term in range(40)),
        }
        for number in range(3000)
    ]
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        await attacker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"x")
        await _ask_all(attacker, RequestCode.PULL_MESSAGE, pulls)
    observation.check(growth=48)


@pytest.mark.deployments(Deployment.EMBEDDED)
async def test_a_clients_errors_do_not_fill_the_log(replica: Gantry) -> None:
    """10,000 requests that fail, and 300 connections with bytes that are no frame."""
    before = replica.log.stat().st_size
    illegal = send_fields("illegal topic! " + "x" * 80)
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        codes = await _ask_all(attacker, RequestCode.SEND_MESSAGE_V2, [illegal] * 5000)
        codes += await _ask_all(attacker, RequestCode.HEART_BEAT, [{}] * 5000, b"{nonsense" * 50)
        assert ResponseCode.SUCCESS not in codes
        for _ in range(300):
            with socket.create_connection((HOST, replica.port)) as connection:
                connection.sendall(b"\0\0\xff\xff\xff" + b"z" * 40)
            await asyncio.sleep(0)
    observation.check(growth=32)
    assert replica.log.stat().st_size - before < 512 * _KIB
