"""Trace records of gRPC clients' messages, read by the official tool."""

import re
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from remoting.names import TRACE_TOPIC
from tests.cluster.client import Client, create_topic, unique, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.servers import Cluster, Failed, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.external, pytest.mark.timeout(420, func_only=True)]

_CONFIG = """
[grpc]
message_trace = true
min_polling = 0.1
"""


async def test_mqadmin_shows_the_trace_of_a_grpc_message(cluster: Cluster, tmp_path: Path) -> None:
    topic, group = await create_topic(cluster.broker, "traced"), unique("tracers")
    with Gantry(tmp_path, cluster.namesrv, _CONFIG) as gantry:
        async with Consumer(gantry.address, group, topic) as consumer:
            await consumer.receive(wait=0.1)
            await consumer.send(b"traced")
            (message,) = await consumer.receive_all(1)
            await consumer.ack(message)
        message_id = message.system_properties.message_id
        out = ""

        async def shown() -> bool:
            """The tool's time-out of three seconds includes its own start on a busy machine."""
            nonlocal out
            words = ("queryMsgTraceById", "-i", message_id, "-t", TRACE_TOPIC)
            out = await anyio.to_thread.run_sync(lambda: cluster.admin(*words))
            return group in out and re.search(rf"Pub\s+{topic}\s.*success", out) is not None

        with suppress(Failed):
            await wait_until(shown, "the trace", 240)
        assert group in out, out
        assert re.search(r"success", out.partition(group)[2]), out
    async with Client(cluster.broker) as client:
        assert await client.pull(TRACE_TOPIC, unique("reader"))
