"""The supervisor with scripted worker processes."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.observability.metrics import family
from proxy.observability.metrics.family import Family, Snapshot
from proxy.observability.metrics.snapshot import decode
from proxy.settings.model import Settings
from proxy.workers import supervisor
from proxy.workers.control import Frames, controlled
from proxy.workers.frames import Frame, Kind, encode
from proxy.workers.supervisor import Supervisor
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.anyio

# Reports that it is ready once the file in its first argument exists, and then replies to requests for metrics with an
# empty snapshot. Before that it has no handler for SIGHUP.
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


@asynccontextmanager
async def supervised(folder: Any, worker_timeout: float = 30.0) -> AsyncIterator[tuple[Supervisor, Any]]:
    """Run two workers, which are ready once `folder`/go exists."""
    settings = Settings(
        listen=[f"127.0.0.1:{free_port()}"],
        workers=2,
        worker_timeout=worker_timeout,
        cluster={"namesrv": ["127.0.0.1:1"]},
        drain_delay=0,
        drain_timeout=0,
    )
    made = Supervisor(settings, (sys.executable, "-c", _CHILD, str(folder / "go"), str(folder / "hung-up")))
    running = asyncio.ensure_future(made.run())
    yield made, running
    made._stop.set()
    assert await running == 0


async def test_sighup_waits_for_workers_that_are_starting(tmp_path: Any) -> None:
    async with supervised(tmp_path) as (made, running):
        await until((tmp_path / "go.begun").exists)
        made._signal_all(signal.SIGHUP)
        (tmp_path / "go").touch()
        await until(lambda: all(worker.ready for worker in made.workers))
        await until((tmp_path / "hung-up").exists)
        assert not running.done()
        assert made._exits == {}


async def test_shutdown_reaches_a_worker_that_is_starting(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_GRACE", 120.0)
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
        # Before workers that do not end are killed.
        async with asyncio.timeout(60):
            await running


async def test_worker_that_cannot_be_started_is_started_later(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_RESTART_DELAY", 0.05)
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


async def test_worker_that_does_not_answer_is_killed_unless_the_supervisor_stood_still_too(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_SILENCE_INTERVAL", 0.05)
    monkeypatch.setattr(supervisor, "_SNAPSHOT_INTERVAL", 0.05)
    monkeypatch.setattr(supervisor, "_SNAPSHOT_TIMEOUT", 0.05)
    stood_still = True
    monkeypatch.setattr(supervisor, "is_late", lambda loop, due: stood_still)
    (tmp_path / "go").touch()
    async with supervised(tmp_path, worker_timeout=0.5) as (made, _):
        await until(lambda: all(worker.ready for worker in made.workers))
        process = made.workers[1].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        await until(lambda: made.workers[1].late)
        await asyncio.sleep(1)
        assert dict(made._own_metrics())[supervisor.WORKERS] == {("serving",): 1, ("unresponsive",): 1, ("down",): 0}
        assert made._exits == {}
        stood_still = False
        await until(lambda: made._exits == {("unresponsive",): 1})
        await until(lambda: made.workers[1].ready and not made.workers[1].late)
    assert made._exits == {("unresponsive",): 1}


async def test_no_worker_is_killed_without_a_timeout() -> None:
    settings = Settings(listen=["127.0.0.1:1"], workers=2, worker_timeout=0, cluster={"namesrv": ["127.0.0.1:1"]})
    async with asyncio.timeout(30):
        await Supervisor(settings, ())._replace_silent()


async def test_worker_with_failing_metrics_notices_the_supervisors_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = True

    def snapshot() -> Snapshot:
        if failing:
            raise RuntimeError("a bug")
        return [(Family("a", family.Kind.GAUGE, "A."), {(): 1.0})]

    ours, theirs = socket.socketpair()
    parent = await Frames.over(ours)
    ended = asyncio.Event()
    async with asyncio.timeout(30), controlled(theirs.detach(), snapshot) as control:
        parent.write(Frame(Kind.SNAPSHOT))
        assert await parent.read() == Frame(Kind.SNAPSHOT, content=b"[]")
        failing = False
        parent.write(Frame(Kind.SNAPSHOT))
        reply = await parent.read()
        assert reply is not None
        assert decode(reply.content) == snapshot()
        parent.close()
        await control.until_supervisor_ends(ended.set)
    assert ended.is_set()
    assert "a bug" in caplog.text


class FakeFrames:
    """The supervisor's end of a worker's frames."""

    def __init__(self) -> None:
        self.written: list[Frame] = []
        self.unread = 0

    def write(self, frame: Frame) -> None:
        self.written.append(frame)


async def test_frames_are_forwarded_and_workers_that_cannot_receive_requests_are_unavailable() -> None:
    settings = Settings(listen=["127.0.0.1:1"], workers=3, cluster={"namesrv": ["127.0.0.1:1"]})
    made = Supervisor(settings, ())
    ends = [FakeFrames() for _ in made.workers]
    for worker, end in zip(made.workers, ends, strict=True):
        worker.frames = cast(Any, end)
        worker.ready = worker.number != 2
    first, second, third = made.workers
    made._forward(first, Frame(Kind.REQUEST, 1, 7, b"?"))
    assert ends[1].written == [Frame(Kind.REQUEST, 0, 7, b"?")]
    made._forward(second, Frame(Kind.PART, 0, 7, b"!"))
    assert ends[0].written == [Frame(Kind.PART, 1, 7, b"!")]
    # A worker that is starting, an unknown worker, a worker that does not read.
    ends[1].unread = supervisor._MAX_UNREAD + 1
    ends[0].written.clear()
    for number in (2, 9, 1):
        made._forward(first, Frame(Kind.REQUEST, number, 8))
    assert ends[0].written == [Frame(Kind.UNAVAILABLE, number, 8) for number in (2, 9, 1)]
    # Other frames are forwarded or dropped without a reply.
    made._forward(first, Frame(Kind.CANCEL, 1, 7))
    made._forward(first, Frame(Kind.CANCEL, 2, 7))
    assert ends[1].written[-1] == Frame(Kind.CANCEL, 0, 7)
    assert len(ends[0].written) == 3
    made._notify_ended(third)
    assert [end.written[-1] for end in ends[:2]] == [Frame(Kind.UNAVAILABLE, 2)] * 2
    assert ends[2].written == []


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", encode(Frame(Kind.SNAPSHOT, content=b"no JSON"))])
async def test_worker_that_sends_malformed_frames_is_disconnected(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(listen=["127.0.0.1:1"], workers=2, cluster={"namesrv": ["127.0.0.1:1"]})
    worker = Supervisor(settings, ()).workers[0]
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(encode(Frame(Kind.READY)) + sent)
        ready = asyncio.Event()
        async with asyncio.timeout(30):
            await worker._read(await Frames.over(ours), ready)
            assert ready.is_set()
            # The worker sees the end of the stream.
            assert await asyncio.get_running_loop().run_in_executor(None, theirs.recv, 1) == b""
    assert "cannot be" in caplog.text


async def test_metrics_address_in_use_names_the_setting() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings = Settings(
            listen=[f"127.0.0.1:{free_port()}"],
            workers=2,
            cluster={"namesrv": ["127.0.0.1:1"]},
            metrics_listen=(taken := f"127.0.0.1:{other.getsockname()[1]}"),
        )
        with pytest.raises(OSError, match=rf"^\[Errno \d+\] metrics_listen: {taken}: Address already in use$"):
            await Supervisor(settings, (sys.executable, "-c", "")).run()
