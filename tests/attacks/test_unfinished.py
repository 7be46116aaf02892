"""gRPC requests and frames that are begun and not completed, with a good client beside them."""

import asyncio

import pytest

from tests.attacks.good_client import memory_released, observed
from tests.attacks.raw_client import Client, Code, data, message
from tests.benchmark.processes import rss_mb
from tests.cluster.client import unique
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

_SEND = "/apache.rocketmq.v2.MessagingService/SendMessage"
_MIB = 1 << 20


def _fill(client: Client, streams: range) -> int:
    """Send the first 15.5 MiB of messages of 16 MiB on all streams as their windows allow; return the bytes sent."""
    rest = {stream: memoryview(message(bytes(16 * _MIB - 1)))[: 31 * _MIB // 2] for stream in streams}
    client.send(b"".join(client.headers(stream, client.request(_SEND)) for stream in streams))
    client.until(lambda client: client.settings)
    sent = 0
    while any(rest.values()):
        progressed = False
        for stream in streams:
            size = min(len(rest[stream]), client.window(stream), 1 << 14)
            if size > 0:
                client.use_window(stream, size)
                client.blast(data(stream, bytes(rest[stream][:size])))
                rest[stream] = rest[stream][size:]
                sent += size
                progressed = True
        if not progressed and not client.until(
            lambda client: any(rest[stream] and client.window(stream) > 0 for stream in streams), 5.0
        ):
            break
    return sent


async def test_unfinished_messages_on_many_streams_take_bounded_memory(replica: Gantry) -> None:
    """Eight streams with 15.5 MiB each would take 124 MiB."""
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        before = rss_mb(replica.pid)
        with Client(replica.port) as client:
            sent = await asyncio.to_thread(_fill, client, range(1, 16, 2))
    assert 16 * _MIB < sent < 64 * _MIB
    observation.check(growth=80)
    await memory_released(replica.pid, before + 24)


@pytest.mark.complete
@pytest.mark.timeout(90)
async def test_a_dripped_frame_and_a_dripped_message_end_in_time(replica: Gantry) -> None:
    async with observed(replica.address, replica.pid, unique("good")) as observation:
        with Client(replica.port) as slow_frame, Client(replica.port) as slow_message:
            for client in (slow_frame, slow_message):
                await asyncio.to_thread(client.until, lambda client: client.settings)
                client.send(client.headers(1, client.request(_SEND)))
            octets = data(1, message(bytes(1000)))
            for position in range(8):
                slow_frame.send(octets[position : position + 1])
                slow_message.send(data(1, octets[9 + position : 10 + position]))
                await asyncio.sleep(4.5)
            # 36 seconds have passed since the headers.
            assert await asyncio.to_thread(slow_frame.goaway_code, 3) == Code.ENHANCE_YOUR_CALM
            assert (await asyncio.to_thread(slow_message.response, 1, 3)).grpc_status == 4
    observation.check(growth=16)
