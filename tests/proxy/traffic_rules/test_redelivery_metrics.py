"""Metrics of redeliveries and dead letters, through a replica with a namespace and an alias, in both protocols."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.requests import REQUESTS
from tests.cluster.client import Client, ok
from tests.proxy.observability.metrics.samples import samples_of
from tests.proxy.traffic_rules.replica import Replica, grpc_send, run_replica, send, until

pytestmark = pytest.mark.anyio

RULES = """
[[rule]]
name = "tenant"
kind = "namespace"
namespace = "acme"

[[rule]]
name = "renamed"
kind = "alias"
topic = "bookings"
real = "orders"
"""


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with run_replica(tmp_path, RULES) as replica:
        await replica.create("acme%orders")
        yield replica


def _delivered(replica: Replica) -> dict[tuple[str, str], float]:
    """Return the number of delivered messages by topic and is_retry."""
    return {
        (sample.labels["topic"], sample.labels["is_retry"]): sample.value
        for family in replica.app.metrics.collect()
        for sample in family.samples
        if sample.name == "rocketmq_messages_out_total"
    }


def _by_protocol(replica: Replica) -> dict[str, float]:
    """Return the number of dead letters by protocol."""
    return {
        protocol: count
        for (action, protocol), count in samples_of(replica.app.metrics, "gantry_messages_total").items()
        if action == "dead_letter"
    }


def _of_group(replica: Replica) -> float:
    """Return the dead letters of group g and its topic."""
    labels = {"consumer_group": "acme%g", "topic": "acme%orders", "is_system": "false"}
    return replica.metric("rocketmq_send_to_dlq_messages_total", **labels)


async def _create_group(replica: Replica, retries: int) -> None:
    """Create group g with a maximum number of redeliveries."""
    config = {"groupName": "acme%g", "retryMaxTimes": retries, "consumeEnable": True}
    command = commands.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, orjson.dumps(config))
    ok(await replica.app.backend.request("broker-a", REQUESTS[command.code], command, 5, None))


async def _send_back(client: Client, message: Any, **more: object) -> None:
    fields = {
        "offset": message.commit_log_offset,
        "group": "g",
        "originTopic": "bookings",
        "delayLevel": 1,
        "maxReconsumeTimes": 16,
        **more,
    }
    await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(fields))


async def test_pulled_redeliveries_of_remoting_clients_are_retries(replica: Replica) -> None:
    async with replica.remoting() as client:
        await client.heartbeat(consumers={"g": ["bookings", "%RETRY%g"]})
        await send(client, "bookings", b"pulled")
        (stored,) = await client.pull("bookings", "g")
        assert _delivered(replica) == {("acme%orders", "false"): 1}
        await _send_back(client, stored)
        assert len(await client.pull("%RETRY%g", "g", wait=15_000)) == 1
        assert _delivered(replica) == {("acme%orders", "false"): 1, ("%RETRY%acme%g", "true"): 1}


@pytest.mark.parametrize("order", [False, True])
async def test_popped_redeliveries_of_remoting_clients_are_retries(replica: Replica, order: bool) -> None:
    async with replica.remoting() as client:
        await client.heartbeat(consumers={"g": ["bookings"]})
        await send(client, "bookings", b"popped")
        for expected in ({("acme%orders", "false"): 1}, {("acme%orders", "false"): 1, ("acme%orders", "true"): 1}):
            code = int(ResponseCode.POLLING_TIMEOUT)
            while code != ResponseCode.SUCCESS:
                fields = {
                    "consumerGroup": "g",
                    "topic": "bookings",
                    "queueId": 0 if order else -1,
                    "maxMsgNums": 32,
                    "invisibleTime": 1000,
                    "pollTime": 5000,
                    "bornTime": int(time.time() * 1000),
                    "initMode": 0,
                    "order": order,
                }
                code = (await client.ask(RequestCode.POP_MESSAGE, client.named(fields), timeout=20)).code
            assert _delivered(replica) == expected


async def test_redeliveries_of_grpc_clients_are_retries_and_then_dead_letters(replica: Replica) -> None:
    await _create_group(replica, 1)
    async with replica.grpc("bookings") as client:
        # A new group starts at the end of the queues.
        await client.receive(wait=5)
        await grpc_send(client, b"failing")
        (first,) = await client.receive_all(1)
        assert (await client.change(first, 0)).status.code == Code.OK
        (second,) = await client.receive_all(1)
        assert second.system_properties.delivery_attempt == 2
        assert _delivered(replica) == {("acme%orders", "false"): 1, ("acme%orders", "true"): 1}
        assert _by_protocol(replica) == {}
        assert (await client.change(second, 0)).status.code == Code.OK
        # Without attempts left: Gantry sends it to the dead letter queue instead.
        assert await client.receive(wait=10) == []
        await until(lambda: _by_protocol(replica) == {"grpc": 1}, "the dead letter")
        await grpc_send(client, b"given up")
        (message,) = await client.receive_all(1)
        assert (await client.forward(message)).status.code == Code.OK
        assert _by_protocol(replica) == {"grpc": 2}
        assert _of_group(replica) == 2


async def test_dead_letters_of_remoting_clients_include_those_over_the_maximum(replica: Replica) -> None:
    """The broker of this process reports them; others do not reply whether a message had redeliveries left."""
    async with replica.remoting() as client:
        await client.heartbeat(consumers={"g": ["bookings", "%RETRY%g"]})
        await send(client, "bookings", b"failing")
        (stored,) = await client.pull("bookings", "g")
        await _send_back(client, stored, maxReconsumeTimes=1)
        (again,) = await client.pull("%RETRY%g", "g", wait=15_000)
        assert _by_protocol(replica) == {}
        await _send_back(client, again, maxReconsumeTimes=1)
        assert _by_protocol(replica) == {"remoting": 1}
        await _send_back(client, stored, delayLevel=-1)
        assert _by_protocol(replica) == {"remoting": 2}
        assert _of_group(replica) == 2
