"""Replicas under stress: draining without a failed send, misbehaving clients, old clients on two brokers."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import Client, create_topic, described, pull_fields, send_fields, strings, unique, v2
from tests.cluster.reports import figure
from tests.cluster.servers import HOST, Cluster, Gantry, run_client, serving
from tests.cpu_use import CpuUse
from tests.faults.relay import relaying
from tests.ports import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(500, func_only=True)]


async def test_no_send_fails_while_a_replica_drains(pair: Cluster, tmp_path: Path) -> None:
    topic = unique("drain")
    await anyio.to_thread.run_sync(pair.topic, topic, 4)
    one, two = free_port(), free_port()
    targets = [f"{HOST}:{one}", f"{HOST}:{two}"]
    # As behind a load balancer: clients receive its address, and it selects a live replica.
    async with relaying(lambda: targets) as balancer:
        (tmp_path / "one").mkdir()
        config = f'drain_timeout = 25.0\n[[listen]]\naddress = "{{}}"\nadvertise = "{balancer.address}"\n'
        leaving = Gantry(tmp_path / "one", pair.namesrv, config.format(targets[0]), port=one, listen=False)
        staying = Gantry(tmp_path, pair.namesrv, config.format(targets[1]), port=two, listen=False)
        async with serving(leaving), serving(staying):
            reports: list[dict[str, object]] = []

            async def load() -> None:
                words = ("bench-send", "40000", "--endpoint", balancer.address, "--topic", topic, "--group", "g")
                call = lambda: run_client("java-remoting", *words, timeout=300)  # noqa: E731  # run in a thread
                reports.append(await anyio.to_thread.run_sync(call))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load)
                # The client's start included.
                with anyio.fail_after(180):
                    while balancer.codes.count(RequestCode.SEND_MESSAGE_V2) < 2000:
                        await anyio.sleep(0.02)
                used = CpuUse(leaving.pid, staying.pid, *pair.pids)
                sent = balancer.codes.count(RequestCode.SEND_MESSAGE_V2)
                leaving.signal(signal.SIGTERM)
                status = await anyio.to_thread.run_sync(leaving.stop)
                seconds, limit = used.seconds, used.lengthen(20)
            leaving.check(-1 if status is None else status)
            assert sent < 40_000, "the load was over too soon"
            assert reports[0]["failures"] == 0, reports
            figure(f"drained in {seconds:.2f} s after {sent} of 40000 sends, none failed")
            assert seconds < limit


async def test_misbehaving_clients_do_not_slow_other_clients(pair: Cluster, tmp_path: Path) -> None:
    topic = await create_topic(pair.broker, "neighbours")
    # The clients stay connected before they send and while one does not read, however long that is on a busy machine.
    patience = "".join(f"{name}_timeout = 600\n" for name in ("negotiation", "unread", "dead_peer"))
    config = f"[limits]\nbuffer = 262144\n{patience}"
    async with (
        serving(Gantry(tmp_path, pair.namesrv, config)) as gantry,
        Client(gantry.address) as good,
        Client(gantry.address) as slow,
        Client(gantry.address) as flood,
    ):
        for _ in range(8):
            await good.send(topic, bytes(1 << 20))
        newest = await create_topic(pair.broker, "good")
        await good.send(newest, b"warm")

        async def latency(count: int) -> float:
            worst = 0.0
            for _ in range(count):
                begin = time.monotonic()
                await good.send(newest, b"x")
                worst = max(worst, time.monotonic() - begin)
            return worst

        alone = await latency(100)
        used = CpuUse(gantry.pid, *pair.pids)
        slow.pause()
        pulls = [
            slow.begin(RequestCode.PULL_MESSAGE, slow.named(pull_fields(topic, unique("group"))), timeout=60)
            for _ in range(60)
        ]
        fields = v2(flood.named(send_fields(topic)))
        flooding = [flood.begin(RequestCode.SEND_MESSAGE_V2, fields, bytes(4096), timeout=60) for _ in range(8000)]
        worst = await latency(200)
        limit = used.lengthen(max(2.0, 10 * alone))
        memory = _resident(gantry.pid)
        figure(
            f"slowest of 100 sends alone {alone * 1000:.0f} ms, of 200 beside them {worst * 1000:.0f} ms, {memory} MiB"
        )
        assert worst < limit
        assert memory < 400
        replies = await asyncio.gather(*flooding)
        assert {reply.code for reply in replies} <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert not good.closed
        slow.resume()
        # Messages for a client that does not read are not kept: it pulls them again.
        codes = [reply.code for reply in await asyncio.gather(*pulls)]
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
        assert ResponseCode.SUCCESS in codes


def _resident(pid: int) -> int:
    """Return the memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmRSS")


# Clients that name no broker.


@pytest.fixture(scope="module")
def doors(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A replica with a shared listener and one dedicated to the second broker."""
    port = free_port()
    config = (
        f'[[listen]]\naddress = "{HOST}:{port}"\n[[listen]]\naddress = "{HOST}:{free_port()}"\nbroker = "broker-b"\n'
    )
    with Gantry(tmp_path_factory.mktemp("doors"), pair.namesrv, config, port=port, listen=False) as gantry:
        yield gantry


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("normal", ()),
        ("fifo", ()),
        ("transaction", ()),
        ("normal", ("--refuse", "1")),
    ],
    ids=["clustering", "ordered", "transaction", "retry"],
)
async def test_old_client_uses_two_brokers_through_dedicated_listeners(
    pair: Cluster, doors: Gantry, kind: str, words: tuple[str, ...]
) -> None:
    topic, group = unique("old"), unique("group")
    await anyio.to_thread.run_sync(pair.topic, topic, 4)
    async with Client(doors.address) as client:
        # A group's very first member reads its retry topic only after 30 s, with any server.
        await client.heartbeat({group: [topic]})
        await client.route(topic)
        await client.heartbeat({group: [topic]})
    options = ("--endpoint", doors.address, "--topic", topic, "--group", group, "--kind", kind, *words)
    report = await anyio.to_thread.run_sync(lambda: run_client("java-remoting-494", "roundtrip", "24", *options))
    assert report["brokers"] == 2, report


async def test_missing_dedicated_listener_is_reported_with_a_remedy(pair: Cluster, tmp_path: Path) -> None:
    topic = unique("nameless")
    await anyio.to_thread.run_sync(pair.topic, topic, 2)
    async with (
        serving(Gantry(tmp_path, pair.namesrv)) as gantry,
        Client(gantry.address, version=401, broker=None) as client,
    ):
        await client.route(topic)
        for code, fields in (
            (RequestCode.SEND_MESSAGE_V2, v2(strings(send_fields(topic)))),
            (RequestCode.PULL_MESSAGE, pull_fields(topic, unique("group"))),
        ):
            reply = await client.ask(code, fields, b"x")
            assert reply.code == ResponseCode.VERSION_NOT_SUPPORTED, described(reply)
            for part in ("listen.broker", "broker-a", "broker-b", "4.9.5"):
                assert part in (reply.remark or ""), reply.remark
        # A topic on a single broker is unambiguous.
        alone = await create_topic(pair.broker, "alone")
        await client.route(alone)
        await client.send(alone, b"x")
        assert [message.body for message in await client.pull(alone, unique("group"))] == [b"x"]
