import asyncio

import pytest

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode, ToolCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, ServiceUnavailable, TopicNotExist
from tests.ports import free_port
from tests.proxy.backends.cluster.cluster_requests import (
    SEND,
    ask,
    by,
)
from tests.proxy.backends.cluster.servers import Cluster, Server

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_brokers_of_different_name_servers_are_merged(cluster: Cluster, order: tuple[int, int]) -> None:
    await cluster.broker("broker-a")
    await cluster.broker("broker-b")
    views = [{name: cluster.table[name]} for name in ("broker-a", "broker-b")]
    servers = [await cluster.name_server(table=views[number]) for number in order]
    backend = await cluster.backend(*(server.address for server in servers))
    assert set(await backend.brokers()) == {"broker-a", "broker-b"}


async def test_route_of_one_name_server_is_enough(cluster: Cluster) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    ignorant = await cluster.server(lambda _: commands.response(17, remark="no"))
    cluster.names.append(ignorant)
    knowing = await cluster.name_server()
    backend = await cluster.backend(f"127.0.0.1:{free_port()}", ignorant.address, knowing.address)
    assert (await backend.route("orders")).brokers == ("broker-a",)
    assert backend.cached_route("orders") is not None
    with pytest.raises(TopicNotExist):
        await backend.route("nowhere")


@pytest.mark.parametrize(
    "answer",
    [
        commands.success(body=b"garbage"),
        commands.response(1, remark="broken"),
        commands.success(body=b'{"brokerAddrTable":{"x":1},"brokerDatas":5}'),
    ],
    ids=["garbage", "error", "malformed"],
)
async def test_failing_name_server_does_not_hide_the_others(cluster: Cluster, answer: RemotingCommand) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    broken = await cluster.server(lambda _: commands.response(answer.code, body=answer.body, remark=answer.remark))
    healthy = await cluster.name_server()
    backend = await cluster.backend(broken.address, healthy.address)
    assert set(await backend.brokers()) == {"broker-a"}
    assert (await backend.route("orders")).brokers == ("broker-a",)


async def test_name_server_that_hangs_does_not_delay_the_search_for_a_broker_that_has_moved(cluster: Cluster) -> None:
    """A broker has moved, or a slave is the master now: requests must not wait for the timeout of the other server."""
    hung = await cluster.server(lambda _: None)
    knowing = await cluster.name_server()
    async with asyncio.timeout(10):
        backend = await cluster.backend(hung.address, knowing.address, connect_timeout=60.0)
        await cluster.broker()
        assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_start_before_the_name_servers_succeeds(cluster: Cluster) -> None:
    port = free_port()
    await cluster.broker()
    backend = await cluster.backend(f"127.0.0.1:{port}")
    with pytest.raises(ServiceUnavailable):
        await ask(backend, SEND)
    with pytest.raises(ServiceUnavailable):
        await backend.route("orders")
    with pytest.raises(ServiceUnavailable):
        await backend.brokers()
    await cluster.name_server(port)
    assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_connected_broker_stays_while_a_restarted_name_server_lists_none(cluster: Cluster) -> None:
    await cluster.broker("broker-a")
    await cluster.broker("broker-b")
    backend = await cluster.backend()
    await ask(backend, SEND)
    cluster.table = {}
    await backend.refresh_brokers()
    assert set(await backend.brokers()) == {"broker-a"}
    assert await by(ask(backend, SEND)) == "broker-a/0"


async def test_concurrent_requests_to_an_unlisted_broker_share_one_refresh(cluster: Cluster) -> None:
    backend = await cluster.backend()
    await cluster.broker()
    await asyncio.gather(*(ask(backend, SEND) for _ in range(100)))
    assert len(cluster.names[0].received) == 2


# Topics that a tool has deleted.


async def test_deleted_topic_is_removed_from_every_name_server(cluster: Cluster) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    first, second = await cluster.name_server(), await cluster.name_server()
    backend = await cluster.backend(first.address, second.address)
    await backend.route("orders")
    assert backend.cached_route("orders") is not None
    await backend.forget_topic("orders")
    for server in (first, second):
        assert server.codes.count(RequestCode.DELETE_TOPIC_IN_NAMESRV) == 1
    assert backend.cached_route("orders") is None
    with pytest.raises(TopicNotExist):
        await backend.route("orders")


async def test_name_server_that_keeps_a_deleted_topic_is_named(cluster: Cluster) -> None:
    stubborn = await cluster.server(lambda _: commands.response(1, remark="not now"))
    backend = await cluster.backend((await cluster.name_server()).address, stubborn.address)
    with pytest.raises(ServiceUnavailable, match=f"{stubborn.address} answered 1: not now"):
        await backend.forget_topic("orders")


async def test_a_query_is_answered_by_the_first_name_server_that_replies(cluster: Cluster) -> None:
    down = await cluster.server(lambda _: None)
    down.stop()
    await cluster.broker()
    name_server = await cluster.name_server()
    backend = await cluster.backend(down.address, name_server.address)
    reply = await backend.query_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    assert b"broker-a" in reply.body
    name_server.stop()
    with pytest.raises(ServiceUnavailable, match="no name server can be reached"):
        await backend.query_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})


async def test_a_change_reaches_all_name_servers_and_returns_the_first_error(cluster: Cluster) -> None:
    refusal: list[int] = []

    async def server() -> Server:
        return await cluster.server(lambda _: commands.response(refusal[0]) if refusal else commands.success())

    one, other = await server(), await server()
    backend = await cluster.backend(one.address, other.address)
    fields = {"namespace": "n", "key": "k", "value": "v"}
    assert (await backend.change_name_servers(ToolCode.PUT_KV_CONFIG, fields)).code == ResponseCode.SUCCESS
    assert one.received[-1].fields == other.received[-1].fields == fields
    refusal.append(ResponseCode.SYSTEM_ERROR)
    assert (await backend.change_name_servers(ToolCode.PUT_KV_CONFIG, fields)).code == ResponseCode.SYSTEM_ERROR
    other.stop()
    with pytest.raises(RemotingError):
        await backend.change_name_servers(ToolCode.PUT_KV_CONFIG, fields)
