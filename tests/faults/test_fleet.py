"""Three replicas behind HAProxy and clients of both protocols: drains, killed servers, and a soak.

FAULT_ROUNDS: rounds of drains, one of each replica (1). SOAK_SECONDS: duration of the soak (60; `make soak`: 1,800).
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio
import anyio.to_thread
import pytest

from tests.cluster.client import create_topic, unique
from tests.cluster.reports import figure
from tests.cluster.servers import HOST, PEERS, Cluster, Failed, Gantry
from tests.faults.fleet import REPLICAS, Fleet, workers
from tests.faults.load import PROTOCOLS, Load

_ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
_SOAK = float(os.environ.get("SOAK_SECONDS", "60"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.fleet,
    pytest.mark.anyio,
    pytest.mark.timeout(int(600 + 200 * _ROUNDS + 2 * _SOAK), func_only=True),
]

_QUEUES = 4
# The Go clients do not reconnect at GO_AWAY, and wait for pending calls of a closed connection until their timeout.
_OFFICIAL = ("go-remoting", "go-grpc", "java-remoting")
_BATCH = 1000
# Seconds in which a batch that a drain interrupts is sent and received; messages that may arrive twice in it.
_BATCH_TIMEOUT, _MAX_DUPLICATES = 60, 200
# Messages of a gRPC receive at most; seconds of pops that a killed broker may deliver again; deliveries of one message:
# popped before and after the kill, and again when each of these leases ends, if its acknowledgement was lost.
_RECEIVED, _REPEATED, _DELIVERIES = 32, 10, 4
_SERVERS = ("broker", "broker-b", "namesrv", "namesrv2")
# A gRPC client's report of a message whose first delivery was lost with the connection.
_REDELIVERED = "attempt"


class Official(threading.Thread):
    """An official client that sends batches of messages and receives them, until it is told to stop.

    reports: one per batch; errors: batches that failed, except for redelivered messages.
    """

    def __init__(self, client: str, address: str, topic: str) -> None:
        super().__init__(name=client, daemon=True)
        self.client = client
        self.reports: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self._words = ("--endpoint", address, "--topic", topic, "--allow-duplicates", "--timeout", str(_BATCH_TIMEOUT))

    def run(self) -> None:
        while not self.stopping.is_set():
            group = unique("group")
            words = ("roundtrip", str(_BATCH), "--group", group, "--run", group, *self._words)
            report = _run(self.client, *words)
            self.reports.append(report)
            if (
                report["error"]
                or report["sent"] != _BATCH
                or report["missing"]
                or (report["wrong"] and _REDELIVERED not in report["first_wrong"])
            ):
                self.errors.append(str(report))

    @property
    def slowest(self) -> float:
        """Seconds of the slowest batch."""
        return max(float(report["seconds"]) for report in self.reports)

    def total(self, key: str) -> int:
        """Return the sum of a count over all batches."""
        return sum(int(report[key]) for report in self.reports)


def _run(name: str, *words: str) -> dict[str, Any]:
    """Run an official client to its end; return its report, also of a failure."""
    command = [sys.executable, str(PEERS), "client", name, *words]
    nothing = {"sent": 0, "missing": _BATCH, "duplicates": 0, "wrong": 0, "seconds": 0.0}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * _BATCH_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        return {**nothing, "error": str(error)}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {**nothing, "error": f"no report: {done.stderr[-1000:]}"}


@contextmanager
def _official(fleet: Fleet, topics: dict[str, str]) -> Iterator[list[Official]]:
    """Run the official clients inside the context; at its end they finish their batches."""
    clients = [Official(name, fleet.address, topics[name]) for name in _OFFICIAL]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(4 * _BATCH_TIMEOUT)
        assert not any(client.is_alive() for client in clients)


@contextmanager
def _fleet(pair: Cluster, directory: Path, **options: Any) -> Iterator[Fleet]:
    with Fleet(directory, pair, **options).running() as fleet:
        yield fleet


async def test_drains_fail_no_call_and_lose_no_message(pair: Cluster, tmp_path: Path) -> None:
    # On one broker, since the Go remoting client names none.
    topics = {name: await create_topic(pair.broker, name, queues=_QUEUES) for name in _OFFICIAL}
    with _fleet(pair, tmp_path) as fleet:
        load = Load(fleet.address, await create_topic(pair.broker, "drained"), {"broker-a": pair.broker})
        drains, durations = 0, []

        def drain(replica: Gantry) -> None:
            begin = time.monotonic()
            status = replica.stop()
            durations.append(time.monotonic() - begin)
            replica.check(-1 if status is None else status)
            replica.start()
            fleet.wait(REPLICAS)

        def drain_all() -> None:
            nonlocal drains
            with _official(fleet, topics) as clients:
                for _ in range(_ROUNDS):
                    for replica in fleet.replicas:
                        time.sleep(5)
                        drain(replica)
                        drains += 1
            for client in clients:
                figure(
                    f"{client.client}, {drains} drains: {client.total('sent')} sent, {client.total('missing')} lost, "
                    f"{client.total('duplicates')} duplicates, {client.total('wrong')} redelivered, "
                    f"{len(client.errors)} failed batches, the slowest {client.slowest:.1f} s"
                )
                assert client.errors == []
                assert client.reports
                assert max(int(report["duplicates"]) for report in client.reports) <= _MAX_DUPLICATES

        async with load.running(("grpc",), receivers=()):
            await anyio.to_thread.run_sync(drain_all)
        lost = await load.lost()
        figure(
            f"raw gRPC client, {drains} drains of at most {max(durations):.1f} s: {len(load.acknowledged)} sends, "
            f"{load.failures.total()} reconnections, {len(lost)} lost"
        )
        assert lost == set()
        assert drains == 3 * _ROUNDS


async def test_no_acknowledged_message_is_lost_when_replicas_and_workers_are_killed(
    pair: Cluster, tmp_path: Path
) -> None:
    topic, brokers = await _topic_of(pair, "killed")
    with _fleet(pair, tmp_path, workers=2) as fleet:
        load = Load(fleet.address, topic, brokers)

        def kill_all() -> None:
            for replica in fleet.replicas:
                time.sleep(3)
                victim = random.choice(workers(replica))
                os.kill(victim, signal.SIGKILL)
                _wait_until_replaced(replica, victim)
            for replica in fleet.replicas:
                time.sleep(3)
                replica.kill()
                replica.start()
                fleet.wait(REPLICAS)

        async with load.running(PROTOCOLS * 2):
            await anyio.to_thread.run_sync(kill_all)
            await anyio.sleep(1)
        lost = await load.lost()
        figure(f"3 workers and 3 replicas killed: {load}; {len(lost)} lost")
        assert len(load.acknowledged) > 100
        assert lost == set()
        # Each kill may repeat the one batch of each of two receivers whose acknowledgement it prevents.
        assert load.duplicates("remoting") == 0
        assert load.duplicates("grpc") <= 6 * len(brokers) * _RECEIVED
        # At most one call of each client and killed process, and the reconnections until HAProxy has noticed.
        assert load.failures.total() <= 8 * 6 * 5


async def test_no_acknowledged_message_is_lost_when_brokers_and_name_servers_are_killed(
    pair: Cluster, tmp_path: Path
) -> None:
    topic, brokers = await _topic_of(pair, "broken")
    with _fleet(pair, tmp_path) as fleet:
        load = Load(fleet.address, topic, brokers)
        sent: list[int] = []

        def kill_all() -> None:
            for name in _SERVERS:
                time.sleep(5)
                before = len(load.acknowledged)
                pair.kill(name)
                time.sleep(3)
                sent.append(len(load.acknowledged) - before)
                pair.restart(name)

        begin = time.monotonic()
        async with load.running(PROTOCOLS * 2):
            await anyio.to_thread.run_sync(kill_all)
            await anyio.sleep(5)
            seconds = time.monotonic() - begin
        lost = await load.lost()
        figure(f"{', '.join(_SERVERS)} killed: {load}; {len(lost)} lost; {sent} sent while each was dead")
        assert lost == set()
        assert min(sent) > 0
        assert load.duplicates("remoting") == 0
        # A broker stores what a group has popped every 5 s, so a killed one delivers the last seconds again.
        assert load.duplicates("grpc") <= len(brokers) * _REPEATED * len(load.acknowledged) / seconds
        assert load.most("grpc") <= _DELIVERIES


async def _topic_of(pair: Cluster, name: str) -> tuple[str, dict[str, str]]:
    """Create a topic with one queue at each broker; return its name and the brokers' addresses by name."""
    topic = unique(name)
    await anyio.to_thread.run_sync(pair.topic, topic, 1)
    return topic, {"broker-a": pair.broker, "broker-b": pair.addresses["broker-b"]}


def _wait_until_replaced(replica: Gantry, victim: int) -> None:
    deadline = time.monotonic() + 45
    while victim in (alive := workers(replica)) or len(alive) < 2:
        if time.monotonic() > deadline:
            raise Failed(f"worker {victim} was not replaced:\n{replica.tail()}")
        time.sleep(0.1)


async def test_soak_keeps_memory_descriptors_and_tasks_flat(pair: Cluster, tmp_path: Path) -> None:
    topic, brokers = await _topic_of(pair, "soak")
    with _fleet(pair, tmp_path) as fleet:
        load = Load(fleet.address, topic, brokers)
        samples: list[list[dict[str, float]]] = []
        async with load.running(PROTOCOLS * 3, pause=0.02):
            end = time.monotonic() + _SOAK
            while time.monotonic() < end:
                await anyio.sleep(min(5.0, _SOAK / 12))
                samples.append(await anyio.to_thread.run_sync(lambda: [_usage(port) for port in fleet.metrics]))
        lost = await load.lost()
        figure(f"soak of {_SOAK:.0f} s: {load}; {len(lost)} lost")
        assert (lost, load.failures) == (set(), {})
        assert [load.duplicates(protocol) for protocol in PROTOCOLS] == [0, 0]
        third = len(samples) // 3
        for number in range(REPLICAS):
            for name, (share, absolute) in _FLAT.items():
                values = [sample[number][name] for sample in samples]
                early, late = max(values[third : 2 * third]), max(values[2 * third :])
                figure(f"soak of {_SOAK:.0f} s, replica {number}, {name}: {early:,.0f}, at the end {late:,.0f}")
                assert late <= early * (1 + share) + absolute, (name, values)


def _usage(port: int) -> dict[str, float]:
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=30) as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return {name: float(rows[name]) for name in _FLAT}


# Allowed growth from the second third of a soak to the last one: share, and absolute.
_FLAT = {
    "process_resident_memory_bytes": (0.02, 2 * 2**20),
    "process_open_fds": (0.0, 3.0),
    "gantry_tasks": (0.0, 5.0),
}
