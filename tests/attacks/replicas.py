"""Replicas that are attacked, and the release of what an attack used."""

import contextlib
import time
from pathlib import Path

from tests.attacks import figures
from tests.attacks.deployments import Deployment
from tests.benchmark.processes import rss_mb, tree
from tests.cluster.servers import TIMEOUT, Gantry
from tests.cpu_use import CpuUse
from tests.ports import HOST, free_port

# Seconds without other work, and MiB a process, within which memory and connections of an attack are released;
# allocators keep some pages.
_MAX_RELEASE_SECONDS = 15.0
_MAX_REMAINING = 64.0
# Sockets of a replica that may remain: connections to brokers.
_MAX_REMAINING_SOCKETS = 16


def deployed(deployment: Deployment, directory: Path, namesrv: str = "", limits: str = "", more: str = "") -> Gantry:
    """Return a replica that is not started, without admin API.

    namesrv: name servers of the cluster. limits: keys of the table `limits`. more: further tables, in TOML.
    """
    config = "drain_timeout = 0.5\n"
    if deployment is Deployment.WORKERS:
        config += "workers = 2\n"
    if deployment is not Deployment.CLUSTER:
        config += f'[embedded]\ndirectory = "{directory / "broker"}"\n'
    if deployment is Deployment.WORKERS:
        config += f'listen = "{HOST}:{free_port()}"\n'
    if limits:
        config += f"[limits]\n{limits}\n"
    if "[admin]" not in more:
        config += '[admin]\nlisten = "off"\n'
    return Gantry(directory, namesrv if deployment is Deployment.CLUSTER else "", config + more)


def wait_until_ready(gantry: Gantry, deployment: Deployment) -> None:
    """Wait until all processes serve: a port accepts as soon as the first does."""
    count = 2 if deployment is Deployment.WORKERS else 1
    deadline = time.monotonic() + TIMEOUT
    while gantry.log.read_text().count("gantry: ready") < count:
        assert time.monotonic() < deadline, f"not all processes are ready:\n{gantry.tail()}"
        time.sleep(0.05)


class Baseline:
    """Memory and sockets of a replica before an attack."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # With several processes, one of them supervises.
        self._memory = rss_mb(pid) + _MAX_REMAINING * max(len(tree(pid)) - 1, 1)
        self._sockets = sockets(pid) + _MAX_REMAINING_SOCKETS

    def wait_for_release(self) -> None:
        """Wait until memory and sockets are as before, apart from a remainder; fail after some seconds."""
        cpu = CpuUse(self._pid)
        while (used := rss_mb(self._pid)) > self._memory or sockets(self._pid) > self._sockets:
            assert cpu.seconds < cpu.lengthen(_MAX_RELEASE_SECONDS), (
                f"{used:.0f} MiB and {sockets(self._pid)} sockets are in use after the attack,"
                f" {self._memory:.0f} and {self._sockets} allowed"
            )
            time.sleep(0.1)
        figures.record_release(cpu.seconds)


def sockets(pid: int) -> int:
    """Return the number of open sockets of the process and its descendants."""
    count = 0
    for member in tree(pid):
        for descriptor in Path(f"/proc/{member}/fd").glob("*"):
            with contextlib.suppress(FileNotFoundError):
                count += str(descriptor.readlink()).startswith("socket:")
    return count
