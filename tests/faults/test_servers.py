"""Killed and restarted brokers and name servers."""

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import Client, described, json, lists, message_queue, queue_fields, unique, wait_until
from tests.cluster.reports import figure
from tests.cluster.servers import Cluster, Gantry, serving
from tests.cpu_use import CpuUse, counting_waits

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]

_BROKERS = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def gantry(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), pair.namesrv) as gantry:
        yield gantry


async def _topic(pair: Cluster, name: str) -> str:
    topic = unique(name)
    await anyio.to_thread.run_sync(pair.topic, topic, 2)
    return topic


async def test_locks_are_taken_at_the_brokers_of_the_queues(pair: Cluster, gantry: Gantry) -> None:
    """Weakness guarded against: a set of queues was locked at one arbitrary broker of them (8.11)."""
    topic, group = await _topic(pair, "locks"), unique("group")
    queues = [message_queue(topic, number, broker) for broker in _BROKERS for number in range(2)]
    async with Client(gantry.address) as client, Client(pair.addresses["broker-b"]) as direct:
        body = {"consumerGroup": group, "clientId": client.client_id, "mqSet": queues}
        granted = json(await client.get(RequestCode.LOCK_BATCH_MQ, {}, orjson.dumps(body)))["lockOKMQSet"]
        assert sorted((q["brokerName"], q["queueId"]) for q in granted) == [(b, n) for b in _BROKERS for n in range(2)]
        theirs = orjson.dumps({**body, "clientId": "another", "mqSet": queues[2:]})
        assert json(await direct.get(RequestCode.LOCK_BATCH_MQ, {}, theirs))["lockOKMQSet"] == []
        await client.get(RequestCode.UNLOCK_BATCH_MQ, {}, orjson.dumps(body))
        assert len(json(await direct.get(RequestCode.LOCK_BATCH_MQ, {}, theirs))["lockOKMQSet"]) == 2


async def test_members_are_registered_again_at_a_restarted_broker(pair: Cluster, gantry: Gantry) -> None:
    topic, group = await _topic(pair, "again"), unique("group")
    async with Client(gantry.address) as one, Client(gantry.address) as two:
        for client in (one, two):
            await client.heartbeat({group: [topic]})
        await anyio.to_thread.run_sync(pair.kill, "broker-b")
        try:
            # A route without the broker, while requests still name it.
            fields = {**queue_fields(topic), "bname": "broker-b"}
            async with counting_waits(gantry.pid) as waits:
                begin = time.monotonic()
                reply = await one.ask(RequestCode.GET_MAX_OFFSET, fields)
                seconds = time.monotonic() - begin - waits.elapsed()
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE, described(reply)
            assert "broker-b" in (reply.remark or "")
            assert seconds < 2.5
            await one.send(topic, b"the other broker lives")

            async def gone() -> bool:
                route = await one.route(topic)
                return [queue["brokerName"] for queue in route["queueDatas"]] == ["broker-a"]

            figure(f"the route is without the broker after {await wait_until(gone, 'the new route'):.1f} s")
            reply = await one.ask(RequestCode.GET_MAX_OFFSET, fields)
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE, described(reply)
        finally:
            await anyio.to_thread.run_sync(pair.restart, "broker-b")
        begin = time.monotonic()
        async with Client(pair.addresses["broker-b"]) as direct:
            await wait_until(lists(direct, group, one.client_id, two.client_id), "both being members again")
        figure(f"members again {time.monotonic() - begin:.2f} s after the broker is ready")

        async def served() -> bool:
            return (await one.ask(RequestCode.GET_MAX_OFFSET, fields)).code == ResponseCode.SUCCESS

        figure(f"served again after {await wait_until(served, 'requests to it'):.2f} s")


async def test_traffic_continues_without_name_servers(pair: Cluster, gantry: Gantry, tmp_path: Path) -> None:
    topic, later = await _topic(pair, "names"), await _topic(pair, "later")
    async with Client(gantry.address) as client:
        await client.route(topic)
        await client.send(topic, b"before")
        await anyio.to_thread.run_sync(pair.kill, "namesrv")
        try:
            # One of two: routes are found even if they were never loaded before.
            await client.route(later)
            await anyio.to_thread.run_sync(pair.kill, "namesrv2")
            # None: cached routes stay in use, other routes fail with a clear error.
            used = CpuUse(gantry.pid, *pair.pids)
            for _ in range(5):
                await client.route(topic)
                await client.send(topic, b"during")
            assert used.seconds < used.lengthen(12)
            unknown = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": unique("unknown")})
            assert unknown.code in {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST}
            assert unknown.remark
        finally:
            await anyio.to_thread.run_sync(pair.restart, "namesrv2")
        # A restarted name server lists nothing until the brokers have registered again.
        for _ in range(3):
            await client.route(topic)
            await client.send(topic, b"fresh")
            await anyio.sleep(0.5)
        async with Client(pair.addresses["namesrv2"]) as direct:

            async def registered() -> bool:
                reply = await direct.ask(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": later, "acceptStandardJsonOnly": 1}
                )
                return reply.code == 0 and len(json(reply)["queueDatas"]) == 2

            await wait_until(registered, "the brokers at the second name server", 60)
        await anyio.to_thread.run_sync(pair.restart, "namesrv")
        # The first lists nothing, the second everything: a new replica works.
        async with serving(Gantry(tmp_path, pair.namesrv)) as fresh, Client(fresh.address) as another:
            async with Client(pair.addresses["namesrv"]) as direct:
                reply = await direct.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": later})
                figure(f"the fresh name server answers {reply.code}")

            async def whole() -> bool:
                # While brokers register one by one, it may list part of the topic's route.
                return len((await another.route(later))["queueDatas"]) == 2

            figure(f"a new replica has the whole route after {await wait_until(whole, 'the whole route'):.1f} s")
            await another.send(later, b"through the one that knows")
            await client.send(topic, b"after")
