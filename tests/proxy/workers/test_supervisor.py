"""The supervisor over processes that do nothing but what workers say and are told."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.config import Settings
from proxy.metrics import family
from proxy.metrics.family import Family, Snapshot
from proxy.metrics.snapshot import decode
from proxy.workers import supervisor
from proxy.workers.control import Frames, controlled
from proxy.workers.frames import Frame, Kind
from proxy.workers.supervisor import Supervisor
from tests.proxy.cluster.kit import free_port

pytestmark = pytest.mark.anyio

# Says that it is ready once it may, and then tells what it counted: nothing. Until then SIGHUP ends it.
_CHILD = """
import signal, socket, struct, sys, time
from pathlib import Path
def hung_up(*_):
    Path(sys.argv[2]).touch()
end = socket.socket(fileno=int(sys.argv[-1].split(":")[1]))
Path(sys.argv[1] + ".begun").touch()
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
signal.signal(signal.SIGHUP, hung_up)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
def say(kind, content=b""):
    end.sendall(struct.pack(">IBHQ", 11 + len(content), kind, 0, 0) + content)
say(1)
while end.recv(15):
    say(2, b"[]")
"""


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def supervised(folder: Any) -> AsyncIterator[tuple[Supervisor, Any]]:
    """Two workers, of which each is ready once there is `folder`/go."""
    settings = Settings(
        listen=[f"127.0.0.1:{free_port()}"],
        workers=2,
        cluster={"namesrv": ["127.0.0.1:1"]},
        drain_delay=0,
        drain_timeout=0,
    )
    made = Supervisor(settings, (sys.executable, "-c", _CHILD, str(folder / "go"), str(folder / "hung-up")))
    running = asyncio.ensure_future(made.run())
    yield made, running
    made._stop.set()
    assert await running == 0


async def test_a_hangup_waits_for_workers_that_are_being_started(tmp_path: Any) -> None:
    async with supervised(tmp_path) as (made, running):
        await until((tmp_path / "go.begun").exists)
        made._pass_on(signal.SIGHUP)
        (tmp_path / "go").touch()
        await until(lambda: all(worker.ready for worker in made.workers))
        await until((tmp_path / "hung-up").exists)
        assert not running.done()
        assert made._exits == {}


async def test_the_end_reaches_a_worker_that_is_being_started(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "go").touch()
    make, made_so_far = asyncio.create_subprocess_exec, 0

    async def slowly(*words: str, pass_fds: Sequence[int]) -> Any:
        nonlocal made_so_far
        made_so_far += 1
        process = await make(*words, pass_fds=pass_fds)
        if made_so_far == 2:
            made._stop.set()
            await until(lambda: made.workers[0].process is None)
        return process

    async with supervised(tmp_path) as (made, running):
        monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
        # Before the patience with workers that do not end is over.
        async with asyncio.timeout(supervisor._GRACE - 1):
            await running


async def test_a_worker_that_cannot_be_started_is_tried_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 0.05)
    (tmp_path / "go").touch()
    make, failures = asyncio.create_subprocess_exec, 0

    async def failing(*words: str, pass_fds: Sequence[int]) -> Any:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await make(*words, pass_fds=pass_fds)

    async with supervised(tmp_path) as (made, _):
        await until(lambda: all(worker.ready for worker in made.workers))
        monkeypatch.setattr(asyncio, "create_subprocess_exec", failing)
        process = made.workers[1].process
        assert process is not None
        process.kill()
        await until(lambda: failures == 2 and made.workers[1].ready)
    assert "worker 1 cannot be started: [Errno 11] Resource temporarily unavailable" in caplog.text


async def test_a_worker_whose_metrics_fail_goes_on_and_notices_the_end(caplog: pytest.LogCaptureFixture) -> None:
    failing = True

    def snapshot() -> Snapshot:
        if failing:
            raise RuntimeError("a mistake")
        return [(Family("a", family.Kind.GAUGE, "A."), {(): 1.0})]

    ours, theirs = socket.socketpair()
    parent = await Frames.over(ours)
    ended = asyncio.Event()
    async with asyncio.timeout(10), controlled(theirs.detach(), snapshot) as control:
        parent.write(Frame(Kind.SNAPSHOT))
        assert await parent.read() == Frame(Kind.SNAPSHOT, content=b"[]")
        failing = False
        parent.write(Frame(Kind.SNAPSHOT))
        told = await parent.read()
        assert told is not None
        assert decode(told.content) == snapshot()
        parent.close()
        await control.until_gone(ended.set)
    assert ended.is_set()
    assert "a mistake" in caplog.text
