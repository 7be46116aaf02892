"""Real servers and Gantry processes for tests: a cluster of the peers kit, and replicas in front of it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import anyio
import anyio.to_thread
import pytest

from tests.cluster import coverage
from tests.ports import HOST as HOST
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests" / "peers" / "peers"
# Seconds to wait for an expected event; Java servers on a busy machine are slow at times.
TIMEOUT = 45.0
# Seconds that a start of Gantry may take: it loads its modules for seconds on a processor of its own.
START_TIMEOUT = 2 * TIMEOUT


class Failed(AssertionError):
    """A server or program failed; the message contains its output."""


def accepts(port: int) -> bool:
    """Return whether a server listens on this port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


class Cluster:
    """An instance of the peers kit. Its servers run inside the context."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._options = options
        self.addresses: dict[str, str] = {}

    @property
    def namesrv(self) -> str:
        """Addresses of all name servers."""
        return ";".join(self.addresses[name] for name in ("namesrv", "namesrv2") if name in self.addresses)

    @property
    def broker(self) -> str:
        """The master's address."""
        return self.addresses["broker"]

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        nodes = json.loads(self._peers("status"))["nodes"].values()
        return [node["pid"] for node in nodes if node["alive"]]

    def __enter__(self) -> Self:
        report = self._peers("start", "--namesrv-port", "0", "--broker-port", "0", *self._options)
        self.addresses = json.loads(report)["addresses"]
        return self

    def __exit__(self, *_: object) -> None:
        self._peers("stop", "--now")

    def adopt(self) -> Self:
        """Use the servers that run in the directory; they continue afterwards."""
        self.addresses = json.loads(self._peers("status"))["addresses"]
        return self

    def kill(self, name: str) -> None:
        """kill -9 of one server."""
        self._peers("kill", name)

    def suspend(self, name: str) -> None:
        """SIGSTOP of one server: its connections stay open, and nothing is answered."""
        self._peers("kill", name, "--signal", "STOP")

    def resume(self, name: str) -> None:
        """SIGCONT of a suspended server."""
        self._peers("kill", name, "--signal", "CONT")

    def restart(self, name: str) -> None:
        """Restart a server with its data; return when it is ready."""
        self._peers("restart", name)

    def topic(self, name: str, queues: int = 8, kind: str = "NORMAL") -> None:
        """Create a topic on every broker."""
        self._peers("topic", name, "--queues", str(queues), "--type", kind)

    def group(self, name: str) -> None:
        """Create a consumer group on every broker."""
        self._peers("group", name)

    def pop_mode(self, topic: str, group: str) -> None:
        """Make the brokers assign queues of the topic to this group for popping."""
        self._peers("popmode", topic, group)

    def user(self, name: str, secret: str, *grants: str) -> None:
        """Create a user on every broker, with permissions such as Topic:orders=Pub,Sub."""
        self._peers("user", name, secret, *(word for grant in grants for word in ("--grant", grant)))

    def super_user(self, name: str, secret: str) -> None:
        """Create a user with all permissions on every broker."""
        self._peers("user", name, secret, "--super")

    def admin(self, *words: str) -> str:
        """Return the output of mqadmin, whose exit status is meaningless."""
        done = self._run("admin", *words)
        return done.stdout + done.stderr

    def _peers(self, command: str, *words: str) -> str:
        done = self._run(command, *words)
        if done.returncode:
            raise Failed(f"peers {command} {' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _run(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, str(PEERS), command, "--dir", str(self.directory), *words]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)


@contextmanager
def started(factory: pytest.TempPathFactory, name: str, *options: str) -> Iterator[Cluster]:
    """Start a cluster for a fixture.

    While writing tests, start an instance of the kit with these options, and give its directory in TEST_PEERS_<NAME>.
    """
    running = os.environ.get(f"TEST_PEERS_{name.upper()}")
    if running is not None:
        yield Cluster(Path(running)).adopt()
        return
    with Cluster(factory.mktemp(name), *options) as cluster:
        yield cluster


def run_client(name: str, *words: str, timeout: float = 180.0) -> dict[str, Any]:
    """Run one of the kit's official clients to its end; return its report."""
    done = subprocess.run(
        [sys.executable, PEERS, "client", name, *words], capture_output=True, text=True, timeout=timeout
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise Failed(f"client {name} {' '.join(words)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    report: dict[str, Any] = json.loads(lines[-1])
    return report


class Gantry:
    """One replica as a separate process, which serves inside the context and must end with status 0.

    config is TOML; the other arguments become flags. Without namesrv, config selects the backend.
    """

    running: ClassVar[list["Gantry"]] = []

    def __init__(
        self, directory: Path, namesrv: str, config: str = "", port: int | None = None, listen: bool = True
    ) -> None:
        self.port = free_port() if port is None else port
        self.log = directory / f"gantry-{self.port}.log"
        self._command = [sys.executable, "-m", "proxy", "serve", "--log-level", "debug"]
        if namesrv:
            self._command += ["--namesrv", namesrv]
        if listen:
            self._command += ["--listen", self.address]
        if config:
            file = directory / f"gantry-{self.port}.toml"
            file.write_text(config)
            self._command += ["--config", str(file)]
        self._process: subprocess.Popen[bytes] | None = None
        coverage.add_proxy(self.address)

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Id of the process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = self.stop()
        # The failure of the test is not hidden by errors that follow from it.
        if error is None and status is not None:
            self.check(status)

    def start(self) -> None:
        """Start, and wait until the port accepts."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        Gantry.running.append(self)
        deadline = time.monotonic() + START_TIMEOUT
        while not accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Failed(f"gantry did not start:\n{self.tail()}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> int | None:
        """Send SIGTERM and return the exit status, None if it was killed before."""
        if self._process is None:
            return None
        self.signal(signal.SIGTERM)
        try:
            status = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"gantry did not end after SIGTERM:\n{self.tail()}") from None
        self._gone()
        return status

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._gone()

    def check(self, status: int) -> None:
        """Raise Failed unless the status is 0 and the log contains no traceback."""
        if status != 0 or "Traceback" in self.log.read_text():
            raise Failed(f"gantry ended with {status}; its log:\n{self.tail()}")

    def tail(self, lines: int = 60) -> str:
        """Return the end of its log, and the first traceback."""
        text = self.log.read_text()
        before, found, after = text.partition("Traceback")
        traceback = [*before.splitlines()[-3:], *(found + after).splitlines()[:40], "[…]"] if found else []
        return "\n".join(traceback + text.splitlines()[-lines:])

    def _gone(self) -> None:
        self._process = None
        Gantry.running.remove(self)


@asynccontextmanager
async def serving(gantry: Gantry) -> AsyncIterator[Gantry]:
    """Run a replica inside the context without blocking the event loop, on which it may depend to start."""
    await anyio.to_thread.run_sync(gantry.start)
    try:
        yield gantry
    except BaseException:
        gantry.kill()
        raise
    status = await anyio.to_thread.run_sync(gantry.stop)
    if status is not None:
        gantry.check(status)


async def eventually(check: Callable[[], object], what: str = "it", timeout: float = TIMEOUT) -> float:
    """Wait until check() is true; return the duration in seconds."""
    begin = time.monotonic()
    while not check():
        if time.monotonic() - begin > timeout:
            raise Failed(f"{what} did not happen within {timeout} s")
        await anyio.sleep(0.01)
    return time.monotonic() - begin
