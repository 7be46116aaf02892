"""The supervisor: starts and restarts workers, forwards signals and frames, serves the metrics of all workers."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.standstill import is_late
from protocol_negotiation.tls import TlsMode
from proxy.frontends.listeners import start_listener
from proxy.observability.metrics import family
from proxy.observability.metrics.exposition import families, serve
from proxy.observability.metrics.family import Family, Snapshot
from proxy.observability.metrics.series_aggregator import SeriesAggregator
from proxy.observability.metrics.snapshot import decode
from proxy.settings.model import Settings
from proxy.workers.control import Frames
from proxy.workers.frames import Frame, Kind
from remoting.tasks import every

_log = logging.getLogger("gantry.workers")

# Seconds until a worker that ended is restarted: doubled each time, until one has run for _STABLE_SECONDS.
_FIRST_RESTART_DELAY, _MAX_RESTART_DELAY = 0.5, 30.0
_STABLE_SECONDS = 60.0
# Seconds between metrics snapshots. A worker that dies loses the counts since its last one.
_SNAPSHOT_INTERVAL = 5.0
# Seconds for one worker's snapshot, and for those of all workers when metrics are scraped.
_SNAPSHOT_TIMEOUT = 2.0
_SCRAPE_TIMEOUT = 5.0
# Seconds between checks for workers that do not answer.
_SILENCE_INTERVAL = 1.0
# Seconds after drain_delay and drain_timeout until workers are killed.
_GRACE = 15.0
# Unread bytes of a worker above which it gets no more requests.
_MAX_UNREAD = 2**20

# Environment variable of workers: a secret that they share, for TLS session tickets.
TICKET_SECRET = "_GANTRY_TICKET_SECRET"  # noqa: S105  # a name

WORKERS = Family(
    "gantry_workers",
    family.Kind.GAUGE,
    "Worker processes by state: serving clients, unresponsive (no answer to the parent for two seconds), or down.",
    ("state",),
)
EXITS = Family(
    "gantry_worker_exits",
    family.Kind.COUNTER,
    "Worker processes that ended unexpectedly, by exit status or signal, or `unresponsive`: killed by the parent, since"
    " they did not answer for `worker_timeout`; each is restarted.",
    ("status",),
)


class Worker:
    """One worker: its number, its process and its frames."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        on_snapshot: Callable[[str, Snapshot], None],
        on_frame: Callable[["Worker", Frame], None],
    ) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.frames: Frames | None = None
        self.ready = False
        # Whether its metrics snapshot is late.
        self.late = False
        # Whether this process was killed because it did not answer.
        self.given_up = False
        self._command = command
        # Listeners for metrics snapshots, and for frames to other workers.
        self._on_snapshot = on_snapshot
        self._on_frame = on_frame
        self._snapshot: asyncio.Future[None] | None = None
        # When a snapshot was requested that has not come, in seconds of the event loop.
        self._requested_at = 0.0
        # A signal to send once the process can handle it.
        self._pending_signal: signal.Signals | None = None

    @property
    def name(self) -> str:
        return f"worker {self.number}"

    async def run(self, on_ready: asyncio.Event) -> int:
        """Run the process; return its exit status, negative for a signal. Raises OSError."""
        self.given_up = False
        ours, theirs = socket.socketpair()
        with theirs:
            words = (*self._command, "--worker", f"{self.number}:{theirs.fileno()}")
            try:
                self.process = await asyncio.create_subprocess_exec(*words, pass_fds=(theirs.fileno(),))
            except OSError:
                ours.close()
                raise
        self._send_pending_signal()
        self.frames = await Frames.over(ours)
        reading = asyncio.ensure_future(self._read(self.frames, on_ready))
        try:
            return await self.process.wait()
        finally:
            reading.cancel()
            self.frames.close()
            self.process = self.frames = self._pending_signal = None
            self.ready = self.late = False
            if self._snapshot is not None:
                self._snapshot.cancel()
                self._snapshot = None

    async def _read(self, frames: Frames, on_ready: asyncio.Event) -> None:
        try:
            while (frame := await frames.read()) is not None:
                if frame.kind is Kind.SNAPSHOT:
                    self._on_snapshot(self.name, decode(frame.content))
                    snapshot, self._snapshot = self._snapshot, None
                    self.late = False
                    if snapshot is not None:
                        snapshot.set_result(None)
                elif frame.kind is Kind.READY:
                    self.ready = True
                    self._send_pending_signal()
                    on_ready.set()
                else:
                    self._on_frame(self, frame)
        except Exception:
            _log.exception("frames of %s cannot be read", self.name)
        # The worker notices the closed socket, ends, and is restarted.
        self.ready = False
        frames.close()

    def send(self, frame: Frame) -> bool:
        """Send a frame; return False if the worker cannot receive it."""
        if self.frames is None or not self.ready or (frame.kind is Kind.REQUEST and self.frames.unread > _MAX_UNREAD):
            return False
        self.frames.write(frame)
        return True

    @property
    def silence(self) -> float:
        """Seconds since a request that the worker has not answered, although it was ready; 0 without one."""
        if self._snapshot is None or not self.ready:
            return 0.0
        return self._snapshot.get_loop().time() - self._requested_at

    def restart_silence(self) -> None:
        """Count the silence from now on."""
        if self._snapshot is not None:
            self._requested_at = self._snapshot.get_loop().time()

    async def read_metrics(self) -> None:
        """Request a metrics snapshot and wait for it, for the worker's end, or for the timeout."""
        if self.frames is None or not self.ready:
            return
        if self._snapshot is None:
            self._snapshot = asyncio.get_running_loop().create_future()
            self.restart_silence()
            self.frames.write(Frame(Kind.SNAPSHOT))
        _, late = await asyncio.wait([self._snapshot], timeout=_SNAPSHOT_TIMEOUT)
        if late:
            self.late = True
            _log.warning("%s: metrics snapshot timed out", self.name)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to a process that is starting, as soon as it can handle it."""
        if self.process is None or (number is signal.SIGHUP and not self.ready):
            # SIGHUP ends a process without a handler; it does not replace a signal to end.
            if number is not signal.SIGHUP or self._pending_signal is None:
                self._pending_signal = number
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def _send_pending_signal(self) -> None:
        pending, self._pending_signal = self._pending_signal, None
        if pending is not None:
            self.signal(pending)


class Supervisor(Collector):
    """Runs the workers of `settings`. command: the command line of a worker, without its number."""

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        self._settings = settings
        self._drain_seconds = settings.drain_delay + settings.drain_timeout
        self.workers = [
            Worker(number, command, self._add_snapshot, self._forward) for number in range(settings.workers)
        ]
        self._aggregator = SeriesAggregator(settings.metrics.top, settings.metrics.idle)
        # The aggregator is written in the event loop and read in threads of the HTTP server.
        self._lock = threading.Lock()
        self._exits: Counter[tuple[str, ...]] = Counter()
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit status. Raises OSError if an address is in use."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._signal_all, signal.SIGHUP)
        await self._check_addresses()
        with ExitStack() as stack:
            if self._settings.metrics_listen is not None:
                stack.callback(serve(self, self._settings.metrics_listen))
            reading = asyncio.ensure_future(every(_SNAPSHOT_INTERVAL, self.gather, name="metrics of the workers"))
            watching = asyncio.ensure_future(self._replace_silent())
            running = [asyncio.ensure_future(self._run_worker(worker)) for worker in self.workers]
            await self._stop.wait()
            # From here on, the time of the drain applies.
            watching.cancel()
            _log.info("stopping the workers")
            self._signal_all(signal.SIGTERM)
            _, late = await asyncio.wait(running, timeout=self._drain_seconds + _GRACE)
            if late:
                _log.error("%d workers did not end in time and are killed", len(late))
                self._signal_all(signal.SIGKILL)
                await asyncio.wait(late)
            reading.cancel()
        _log.info("stopped")
        return self._status

    async def _check_addresses(self) -> None:
        """Check that no address is in use. SO_REUSEPORT would share it with the workers of another supervisor, which
        would get half of the connections. Raises OSError that names the address."""
        for item in self._settings.listen:
            options = ListenerOptions(item.address, HostPort.parse(item.address), tls_mode=TlsMode.DISABLED)
            listener = Listener(options, {}, None, lambda outcome, peer, first: None)
            await start_listener(listener)
            await listener.close()

    async def _run_worker(self, worker: Worker) -> None:
        """Run a worker, and restart it when it ends."""
        delay = _FIRST_RESTART_DELAY
        if worker.number:
            # The first may run the broker that the others need. If it cannot start, neither can they.
            await _first_of(self._ready, self._stop)
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                status = await worker.run(self._ready)
            except OSError as error:
                # The system may be out of memory or processes for a while.
                _log.error("%s cannot be started: %s", worker.name, error)
                status = 1
            with self._lock:
                self._aggregator.remove_source(worker.name)
            self._notify_ended(worker)
            if self._stop.is_set():
                return
            self._exits["unresponsive" if worker.given_up else _status_name(status),] += 1
            if not self._ready.is_set():
                _log.error("%s ended with %s before any worker was ready", worker.name, _status_name(status))
                self._status = status if status > 0 else 1
                self._stop.set()
                return
            if time.monotonic() - started > _STABLE_SECONDS:
                delay = _FIRST_RESTART_DELAY
            _log.error("%s ended with %s and is restarted in %.1f s", worker.name, _status_name(status), delay)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay)
            delay = min(2 * delay, _MAX_RESTART_DELAY)

    async def _replace_silent(self) -> None:
        """Kill workers that do not answer, which are then restarted: the kernel gives them new connections for ever."""
        timeout = self._settings.worker_timeout
        while timeout:
            due = self._loop.time() + _SILENCE_INTERVAL
            await asyncio.sleep(_SILENCE_INTERVAL)
            # The workers of a machine or container that stood still have not run either.
            stood_still = is_late(self._loop, due)
            for worker in self.workers:
                if stood_still:
                    worker.restart_silence()
                elif worker.silence > timeout and not worker.given_up:
                    _log.error("%s has not answered for %.0f s and is killed", worker.name, worker.silence)
                    worker.given_up = True
                    worker.signal(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in self.workers:
            worker.signal(number)

    # Calls between workers.

    def _forward(self, sender: Worker, frame: Frame) -> None:
        """Forward a frame to the worker that it names, with the sender's number."""
        sent = frame.worker < len(self.workers) and self.workers[frame.worker].send(
            frame._replace(worker=sender.number)
        )
        if not sent and frame.kind is Kind.REQUEST:
            sender.send(Frame(Kind.UNAVAILABLE, frame.worker, frame.call))

    def _notify_ended(self, ended: Worker) -> None:
        for worker in self.workers:
            if worker is not ended:
                worker.send(Frame(Kind.UNAVAILABLE, ended.number))

    # Metrics.

    async def gather(self) -> None:
        """Read and aggregate the metrics of all workers."""
        await asyncio.gather(*(worker.read_metrics() for worker in self.workers))
        self._add_snapshot("supervisor", list(self._own_metrics()))

    def _add_snapshot(self, name: str, snapshot: Snapshot) -> None:
        with self._lock:
            self._aggregator.add_snapshot(name, snapshot)

    def _own_metrics(self) -> Iterator[tuple[Family, dict[tuple[str, ...], float]]]:
        ready = sum(worker.ready for worker in self.workers)
        late = sum(worker.ready and worker.late for worker in self.workers)
        yield WORKERS, {("serving",): ready - late, ("unresponsive",): late, ("down",): len(self.workers) - ready}
        yield EXITS, dict(self._exits)

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, for prometheus_client, in a thread of the HTTP server."""
        asyncio.run_coroutine_threadsafe(self.gather(), self._loop).result(_SCRAPE_TIMEOUT)
        settings = self._settings
        with self._lock:
            node = settings.replica or socket.gethostname()
            return list(families(self._aggregator.series(), settings.metrics.cluster, node))


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _status_name(status: int) -> str:
    """Return an exit status as text: its number, or the signal's name."""
    if status >= 0:
        return str(status)
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


async def supervise(settings: Settings, arguments: Sequence[str]) -> int:
    """Run workers with the arguments of this program; see `Supervisor.run`."""
    os.environ[TICKET_SECRET] = secrets.token_hex(32)
    os.environ.update(_search_path())
    # -P: without it, a file proxy.py in the current directory would run instead.
    return await Supervisor(settings, (sys.executable, "-P", "-m", "proxy", *arguments)).run()


def _search_path() -> dict[str, str]:
    """Return the environment with which workers find the modules of this process without the current directory.

    `python -m proxy` in a source checkout finds them there.
    """
    root = Path(__file__).resolve().parents[2]
    former = os.environ.get("PYTHONPATH", "")
    if Path(sys.path[0]).resolve() != root or str(root) in former.split(os.pathsep):
        return {}
    return {"PYTHONPATH": f"{root}{os.pathsep}{former}" if former else str(root)}
