"""The lag of groups at rest: API, metrics, page's survey, command line and mqadmin have the same numbers."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import anyio.to_thread
import httpx
import pytest

from remoting.codes import RequestCode
from tests.cluster.backends import Backend
from tests.cluster.client import Client, create_topic, queue_fields, unique, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.servers import HOST, Cluster, Failed, Gantry
from tests.ports import free_port
from tests.proxy.tools.cli.shell import Shell

pytestmark = [
    pytest.mark.backends(Backend.CLUSTER, Backend.SOCKET, reason="mqadmin asks a broker of its own process"),
    pytest.mark.anyio,
    pytest.mark.external,
    pytest.mark.timeout(420, func_only=True),
]

# Messages of each queue of two topics, and offsets of the group in them.
_SENT = {0: 9, 1: 4, 2: 0, 3: 7}
_OFFSETS = {0: 3, 1: 4, 2: 0, 3: 0}
_LAG = 6 + 0 + 0 + 7
# A line of mqadmin's table: topic, broker, queue, end, offset, [client], lag, inflight, time.
_LINE = re.compile(
    r"^(\S+)\s+(broker-\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(?:\S+\s+)?(-?\d+)\s+(-?\d+)\s+(?:N/A|\S+ \S+)\s*$",
    re.MULTILINE,
)

# Offset after the last message, offset of the group, and lag, by topic and queue.
_Table = dict[tuple[str, int], tuple[int, int, int]]


@pytest.fixture(scope="module")
def admin(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gantry, str]]:
    """A replica that surveys the groups each second, and the address of its admin API."""
    address = f"{HOST}:{free_port()}"
    config = f'tools = "all"\n[admin]\nlisten = "{address}"\nsurvey_interval = 1\n'
    with Gantry(tmp_path_factory.mktemp("lag"), cluster.namesrv, config) as gantry:
        yield gantry, f"http://{address}"


@pytest.fixture
async def http(admin: tuple[Gantry, str]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=admin[1], timeout=45) as client:
        yield client


async def _mqadmin(cluster: Cluster, group: str, rows: int) -> tuple[_Table, int]:
    """Return the table and the total of `mqadmin consumerProgress`."""
    out = ""

    async def printed() -> bool:
        """The tool's time-out of three seconds includes its own start on a busy machine."""
        nonlocal out
        out = await anyio.to_thread.run_sync(lambda: cluster.admin("consumerProgress", "-g", group))
        return len(_LINE.findall(out)) == rows

    with suppress(Failed):
        await wait_until(printed, "the table", 240)
    table = {
        (topic, int(queue)): (int(end), int(offset), int(lag))
        for topic, _, queue, end, offset, lag, _ in _LINE.findall(out)
    }
    assert len(table) == rows, out
    [total] = re.findall(r"Consume Diff Total: (\d+)", out)
    return table, int(total)


async def _api(http: httpx.AsyncClient, group: str) -> tuple[_Table, int]:
    found = (await http.get(f"/v1/consumer-groups/{group}/lag")).json()
    return _table(found["queues"]), found["lag"]


def _table(rows: list[dict[str, object]]) -> _Table:
    keys = ("end", "consumed", "lag")
    return {(row["topic"], row["queue"]): tuple(row[key] for key in keys) for row in rows}  # type: ignore[misc]


async def _metric(http: httpx.AsyncClient, name: str, group: str) -> float:
    """Return the sum of a metric over the group's topics."""
    lines = (await http.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f'{name}{{consumer_group="{group}"'))


async def test_lag_of_a_group_that_pulls_is_that_of_mqadmin(
    cluster: Cluster, admin: tuple[Gantry, str], http: httpx.AsyncClient
) -> None:
    gantry, _ = admin
    topics = [await create_topic(cluster.broker, f"lag-{name}", queues=len(_SENT)) for name in "ab"]
    group = unique("lagging")
    async with Client(gantry.address) as client:
        await client.heartbeat({group: topics})
        for topic in topics:
            for queue, count in _SENT.items():
                for number in range(count):
                    await client.send(topic, b"%d" % number, queue=queue)
                await client.pull_all(count, topic, group, queue)
                fields = {**queue_fields(topic, queue, consumerGroup=group), "commitOffset": _OFFSETS[queue]}
                await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        expected = {
            (topic, queue): (count, _OFFSETS[queue], count - _OFFSETS[queue])
            for topic in topics
            for queue, count in _SENT.items()
        }
        assert await _mqadmin(cluster, group, len(expected)) == (expected, 2 * _LAG)
        assert await _api(http, group) == (expected, 2 * _LAG)
        shown = (
            await anyio.to_thread.run_sync(lambda: Shell(gantry.address).ok("groups", "show", group, "--json"))
        ).object
        assert shown["lag"] == 2 * _LAG

        async def surveyed() -> bool:
            return await _metric(http, "gantry_consumer_lag_messages", group) == 2 * _LAG

        await wait_until(surveyed, "the survey", 60)
        assert await _metric(http, "gantry_consumer_retry_backlog", group) == 0
        [row] = (await http.get("/v1/consumer-groups", params={"prefix": group})).json()["items"]
        assert row["lag"] == 2 * _LAG


async def test_lag_of_a_group_that_pops_is_that_of_mqadmin(
    cluster: Cluster, admin: tuple[Gantry, str], http: httpx.AsyncClient
) -> None:
    gantry, _ = admin
    topic, group = await create_topic(cluster.broker, "lag-pop", queues=1), unique("popping")
    async with Client(gantry.address) as member:
        # Creates the retry topic, without which mqadmin has no group.
        await member.heartbeat({group: [topic]})
    async with Consumer(gantry.address, group, topic) as consumer:
        for _ in range(10):
            await consumer.send(b"x")
        (first,) = await consumer.receive_all(1, batch_size=1)
        for message in [first, *await consumer.receive_all(3, batch_size=3)]:
            await consumer.ack(message)

        async def at_rest() -> bool:
            """Acknowledgements reach the offset when the broker merges them."""
            return (await _api(http, group))[1] == 6

        await wait_until(at_rest, "the acknowledged messages", 60)
        table, total = await _api(http, group)
        assert table[topic, 0] == (10, 4, 6)
        assert await _mqadmin(cluster, group, len(table)) == (table, total)

        async def surveyed() -> bool:
            lag = await _metric(http, "gantry_consumer_lag_messages", group)
            return lag + await _metric(http, "gantry_consumer_retry_backlog", group) == total

        await wait_until(surveyed, "the survey", 60)
