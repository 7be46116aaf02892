"""Regression tests for weaknesses of other proxies that are not specific to a request code."""

import asyncio
from collections.abc import Iterator

import anyio
import pytest

from remoting.codes import RequestCode, ResponseCode, SerializeType
from tests.cluster.backends import Backend
from tests.cluster.client import (
    Client,
    create_topic,
    json,
    lists,
    pull_fields,
    queue_fields,
    send_fields,
    unique,
    v2,
    wait_until,
    wait_until_end_is,
)
from tests.cluster.servers import HOST, TIMEOUT, Cluster, Gantry, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]

_PUT_KV_CONFIG = 100
_CONNECTIONS = pytest.mark.backends(Backend.CLUSTER, reason="it tests Gantry's connections, not the broker")


async def test_a_slow_reader_receives_all_responses(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against responses that are dropped while many bytes wait to be written, so that a successful send is
    repeated (8.2)."""
    topic = await create_topic(cluster.broker, "slow")
    body = bytes(1 << 20)
    async with Client(gantry.address) as client:
        for _ in range(4):
            await client.send(topic, body)
        client.pause()
        group = unique("group")
        pulls = [client.begin(11, client.named(pull_fields(topic, group)), timeout=90) for _ in range(8)]
        sends = [
            client.begin(310, v2(client.named(send_fields(topic))), b"%d" % number, timeout=90) for number in range(20)
        ]
        await anyio.sleep(1)
        client.resume()
        replies = await asyncio.gather(*pulls)
        # Messages over the limit of unread ones are pulled again; no response is missing.
        codes = [reply.code for reply in replies]
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
        assert all(len(reply.body) > len(body) // 8 for reply in replies if reply.code == ResponseCode.SUCCESS)
        assert ResponseCode.SUCCESS in codes
        offsets = {int(reply.fields["queueOffset"]) for reply in await asyncio.gather(*sends)}
        assert offsets == set(range(4, 24))


@pytest.mark.parametrize("encoding", list(SerializeType), ids=lambda encoding: encoding.name)
async def test_each_of_many_requests_gets_exactly_one_response(
    cluster: Cluster, gantry: Gantry, encoding: SerializeType
) -> None:
    """Guards against the loss of the oldest waiting requests under load (8.3)."""
    topic = await create_topic(cluster.broker, "many")
    async with Client(gantry.address, encoding=encoding) as client:
        sends = [client.begin(310, v2(client.named(send_fields(topic))), b"x", timeout=120) for _ in range(1000)]
        asks = [client.begin(30, queue_fields(topic), timeout=120) for _ in range(1000)]
        codes = {reply.code for reply in await asyncio.gather(*sends, *asks)}
        assert codes == {ResponseCode.SUCCESS}
        await wait_until_end_is(client, topic, 1000)


async def test_a_route_keeps_all_its_fields(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against routes without the order of topics, logical queues and zones (8.13)."""
    topic = await create_topic(cluster.broker, "order")
    async with Client(cluster.addresses["namesrv"]) as name_server, Client(gantry.address) as client:
        fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic, "value": "broker-a:1"}
        await name_server.get(_PUT_KV_CONFIG, fields)
        real = json(
            await name_server.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": True})
        )
        route = await client.route(topic)
        assert route["orderTopicConf"] == "broker-a:1"
        for part in real["brokerDatas"]:
            part["brokerAddrs"] = dict.fromkeys(part["brokerAddrs"], gantry.address)
        assert route == real


@pytest.fixture(scope="module")
def strict(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A replica with short time-outs."""
    config = "[limits]\nnegotiation_timeout = 1.0\nidle_timeout = 2.0\n"
    with Gantry(tmp_path_factory.mktemp("strict"), cluster.namesrv, config) as gantry:
        yield gantry


@_CONNECTIONS
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", b"PRI * HT", b"PROXY TCP4 10", b"\x16\x03\x01", b"GE"])
async def test_a_silent_connection_is_closed(strict: Gantry, data: bytes) -> None:
    """Guards against connections that send too few bytes to detect a protocol and remain open (8.25)."""
    async with await anyio.connect_tcp(HOST, strict.port) as stream:
        if data:
            await stream.send(data)
        with anyio.fail_after(TIMEOUT):
            try:
                while True:
                    await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass


@_CONNECTIONS
async def test_an_idle_client_is_closed_and_leaves_its_groups(cluster: Cluster, strict: Gantry) -> None:
    """Guards against fixed idle time-outs, and against connections without one (8.25)."""
    topic, group = await create_topic(cluster.broker, "idle"), unique("group")
    async with Client(strict.address) as idle, Client(strict.address) as waiting, Client(cluster.broker) as direct:
        await idle.heartbeat({group: [topic]})
        assert await direct.consumers(group) == [idle.client_id]
        # A client that waits for a message may be idle.
        fields = waiting.named(pull_fields(topic, unique("group"), wait=5000))
        poll = waiting.begin(RequestCode.PULL_MESSAGE, fields, timeout=20)
        await eventually(lambda: idle.closed, "the end of the idle connection")
        await wait_until(lists(direct, group), "the removal of the idle client")
        assert (await poll).code == ResponseCode.PULL_NOT_FOUND
        assert not waiting.closed
