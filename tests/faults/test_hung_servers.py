"""Brokers and name servers that are stopped by SIGSTOP: their connections stay open, and nothing is answered."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import grpc.aio
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.cluster.client import Client, unique, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.reports import figure
from tests.cluster.servers import TIMEOUT, Cluster, Gantry, serving
from tests.faults.load import PROTOCOLS, Load

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(400, func_only=True)]

_BROKERS = ("broker-a", "broker-b")
# Sends and messages while a broker hangs. Clients that wait for it at every second call would need minutes for them.
_CALLS, _LIMIT = 200, 60.0
# Short stops of a broker.
_TURNS = 10
_MESSAGE_GROUPS = 16
_DEADLINE_EXCEEDED = -1
# Seconds: of a poll; of a standstill that is longer than the poll with the timeout of requests to brokers.
_POLL, _STANDSTILL = 5.0, 22.0


@asynccontextmanager
async def _suspended(pair: Cluster, name: str) -> AsyncIterator[None]:
    await anyio.to_thread.run_sync(pair.suspend, name)
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(pair.resume, name)


async def _topic(pair: Cluster, name: str, queues: int = 1, kind: str = "NORMAL") -> str:
    topic = unique(name)
    await anyio.to_thread.run_sync(pair.topic, topic, queues, kind)
    return topic


@pytest.mark.fleet
async def test_grpc_sends_and_receives_continue_while_a_broker_hangs(pair: Cluster, tmp_path: Path) -> None:
    topic = await _topic(pair, "hung")
    addresses = {"broker-a": pair.broker, "broker-b": pair.addresses["broker-b"]}
    async with serving(Gantry(tmp_path, pair.namesrv)) as gantry:
        load = Load(gantry.address, topic, addresses)
        async with load.running(("grpc", "grpc"), ("grpc",)):
            await _more(load, _CALLS)
            async with _suspended(pair, "broker-b"):
                seconds, received = await _more(load, _CALLS)
            await anyio.sleep(3)
        lost = await load.lost()
    figure(f"broker-b hung: {_CALLS} sends in {seconds:.1f} s, {received} messages received meanwhile; {load}")
    assert lost == set()
    assert seconds < _LIMIT
    assert received >= _CALLS / 2


async def _more(load: Load, count: int) -> tuple[float, int]:
    """Wait for `count` further sends, and return the seconds and the messages received meanwhile."""
    begin, sent, received = time.monotonic(), len(load.acknowledged), len(load.deliveries["grpc"])
    while len(load.acknowledged) - sent < count or len(load.deliveries["grpc"]) - received < count / 2:
        assert time.monotonic() - begin < 3 * _LIMIT, load
        await anyio.sleep(0.1)
    return time.monotonic() - begin, len(load.deliveries["grpc"]) - received


async def test_a_consumer_of_all_brokers_receives_the_messages_of_the_living_one(pair: Cluster, tmp_path: Path) -> None:
    """A consumer with one receive at a time names the brokers in turn, as the simple consumers of official clients."""
    topic, group = await _topic(pair, "starving"), unique("group")
    async with (
        serving(Gantry(tmp_path, pair.namesrv)) as gantry,
        Consumer(gantry.address, group, topic) as consumer,
        Consumer(gantry.address, "producers", topic) as producer,
    ):
        # A new group begins at the end of the queues.
        for broker in _BROKERS:
            await consumer.receive(broker=broker, wait=1)
        async with _suspended(pair, "broker-b"):
            # The first receive waits until it is noticed that the broker hangs, and not for its polling time.
            begin = time.monotonic()
            assert await consumer.receive(broker="broker-b", wait=30) == []
            noticed = time.monotonic() - begin
            await producer.send(*(b"%d" % number for number in range(20)))
            begin, received = time.monotonic(), set[bytes]()
            while len(received) < 20 and time.monotonic() - begin < TIMEOUT:
                for broker in _BROKERS:
                    for message in await consumer.receive(broker=broker, wait=1):
                        received.add(message.body)
                        await consumer.ack(message)
            seconds = time.monotonic() - begin
        assert len(received) == 20
        figure(f"a hung broker is noticed after {noticed:.1f} s; 20 messages of the other one in {seconds:.1f} s")
        assert noticed < 25

        async def answers() -> bool:
            await producer.send(b"after")
            found = [message for broker in _BROKERS for message in await consumer.receive(broker=broker, wait=1)]
            if found:
                await consumer.ack(*found)
            return any("broker-b" in message.system_properties.receipt_handle for message in found)

        await wait_until(answers, "messages of the broker that continues", 2 * TIMEOUT)


@pytest.mark.fleet
async def test_fifo_sends_fail_with_a_retryable_code_while_their_broker_hangs(pair: Cluster, tmp_path: Path) -> None:
    """The message group determines the queue: another broker would break the order."""
    topic = await _topic(pair, "hung-fifo", kind="FIFO")
    async with (
        serving(Gantry(tmp_path, pair.namesrv)) as gantry,
        Consumer(gantry.address, "producers", topic) as producer,
    ):
        groups = [f"group-{number}" for number in range(_MESSAGE_GROUPS)]
        for group in groups:
            await producer.send(b"before", message_group=group)
        async with _suspended(pair, "broker-b"):
            # Until it is noticed, the sends end at their deadlines.
            first = await asyncio.gather(*(_try_send(producer, group) for group in groups))
            begin = time.monotonic()
            outcomes = await asyncio.gather(*(_try_send(producer, group) for group in groups))
            seconds = time.monotonic() - begin
        figure(f"FIFO sends while a broker hangs: {_names(first)}, then {_names(outcomes)} in {seconds:.1f} s")
        assert set(outcomes) == {Code.OK, Code.HA_NOT_AVAILABLE}
        assert set(first) <= {Code.OK, Code.HA_NOT_AVAILABLE, _DEADLINE_EXCEEDED}
        for group in groups:
            await wait_until(partial(_sends, producer, group), f"a send of {group}")


async def _try_send(producer: Consumer, group: str) -> int:
    """Send with a deadline of ten seconds, and return the response's code, or _DEADLINE_EXCEEDED."""
    request = producer.send_request(b"during", message_group=group)
    try:
        response = await producer.stub.SendMessage(request, metadata=producer.metadata, timeout=10)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return _DEADLINE_EXCEEDED
        raise
    return int(response.status.code)


async def _sends(producer: Consumer, group: str) -> bool:
    return await _try_send(producer, group) == Code.OK


def _names(outcomes: list[int]) -> str:
    """Return the numbers of outcomes as text."""
    counts = Counter("DEADLINE_EXCEEDED" if code == _DEADLINE_EXCEEDED else Code.Name(code) for code in outcomes)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


@pytest.mark.fleet
async def test_grpc_sends_continue_while_name_servers_hang(pair: Cluster, tmp_path: Path) -> None:
    topic = await _topic(pair, "nameless")
    async with serving(Gantry(tmp_path, pair.namesrv)) as gantry, Consumer(gantry.address, "g", topic) as producer:
        await producer.send(b"before")
        async with _suspended(pair, "namesrv"), _suspended(pair, "namesrv2"):
            with anyio.fail_after(_LIMIT):
                for number in range(_CALLS):
                    await producer.send(b"%d" % number)


@pytest.mark.fleet
async def test_calls_succeed_after_gantry_stood_still(pair: Cluster, tmp_path: Path) -> None:
    """Brokers answer polls meanwhile: the answers lie in sockets, and the timeouts of the polls have passed."""
    topic = await _topic(pair, "still")
    async with (
        serving(Gantry(tmp_path, pair.namesrv)) as gantry,
        Client(gantry.address) as client,
        Consumer(gantry.address, unique("group"), topic) as consumer,
    ):
        await client.send(topic, b"before")
        await consumer.ack(*await consumer.receive_all(1))
        polls = [asyncio.ensure_future(client.pull(topic, "puller", 0, 1, wait=int(_POLL * 1000))) for _ in range(4)]
        polls += [asyncio.ensure_future(consumer.receive(wait=_POLL)) for _ in range(4)]
        await anyio.sleep(1)
        gantry.signal(signal.SIGSTOP)
        await anyio.sleep(_STANDSTILL)
        gantry.signal(signal.SIGCONT)
        assert await asyncio.gather(*polls) == [[]] * 8
        await client.send(topic, b"after")
        assert len(await consumer.receive_all(1)) == 1
    log = gantry.log.read_text()
    assert "the process stood still" in log
    assert "no bytes received" not in log


@pytest.mark.fleet
async def test_no_call_fails_while_a_broker_stops_and_continues_in_turns(pair: Cluster, tmp_path: Path) -> None:
    """As one that collects garbage, or whose disk is slow."""
    topic = await _topic(pair, "turns")
    addresses = {"broker-a": pair.broker, "broker-b": pair.addresses["broker-b"]}
    async with serving(Gantry(tmp_path, pair.namesrv)) as gantry:
        load = Load(gantry.address, topic, addresses)
        async with load.running(PROTOCOLS * 2):
            for _ in range(_TURNS):
                async with _suspended(pair, "broker-b"):
                    await anyio.sleep(1)
                await anyio.sleep(0.5)
        lost = await load.lost()
    figure(f"broker-b stopped and continued {_TURNS} times: {load}")
    assert lost == set()
    assert not load.failures
