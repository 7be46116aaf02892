"""The supervisor: starts workers, again where one dies, passes signals and questions on, shows the metrics of all."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import TlsMode
from proxy.observability.metrics import family
from proxy.observability.metrics.exposition import families, serve
from proxy.observability.metrics.family import Family, Snapshot
from proxy.observability.metrics.series_aggregator import SeriesAggregator
from proxy.observability.metrics.snapshot import decode
from proxy.settings.model import Settings
from proxy.workers.control import Frames
from proxy.workers.frames import Frame, Kind

_log = logging.getLogger("gantry.workers")

# Seconds until a worker that died is started again: twice as many each time, until one has lasted.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LASTED = 60.0
# Seconds between looks at the counts, so that a worker that dies takes few along.
_LOOK = 5.0
# Seconds that a worker has for a snapshot, and whoever scrapes for all of them.
_TIMEOUT = 2.0
_SCRAPE_PATIENCE = 5.0
# Seconds beyond drain_delay and drain_timeout after which a worker that does not end is killed.
_GRACE = 15.0
# Bytes that a worker may leave untaken; it is asked nothing more before it takes them.
_MAX_WAITING = 2**20

WORKERS = Family("gantry_workers", family.Kind.GAUGE, "Worker processes, by whether they serve clients.", ("state",))
EXITS = Family(
    "gantry_worker_exits",
    family.Kind.COUNTER,
    "Worker processes that ended unasked, by exit status or signal; each is started again.",
    ("status",),
)


class Worker:
    """One worker's number, its process, and what it said last."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        feed: Callable[[str, Snapshot], None],
        route: Callable[["Worker", Frame], None],
    ) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.frames: Frames | None = None
        self.ready = False
        self._command = command
        # Takes each snapshot once, as it comes.
        self._feed = feed
        # Takes what is for another worker.
        self._route = route
        self._asked: asyncio.Future[None] | None = None
        # A signal to be passed on once there is somebody who knows what it means.
        self._late: signal.Signals | None = None

    @property
    def name(self) -> str:
        return f"worker {self.number}"

    async def run(self, on_ready: asyncio.Event) -> int:
        """Start the process; its exit status, negative for a signal, when it has ended. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            words = (*self._command, "--worker", f"{self.number}:{theirs.fileno()}")
            try:
                self.process = await asyncio.create_subprocess_exec(*words, pass_fds=(theirs.fileno(),))
            except OSError:
                ours.close()
                raise
        self._pass_late_on()
        self.frames = await Frames.over(ours)
        reading = asyncio.ensure_future(self._read(self.frames, on_ready))
        try:
            return await self.process.wait()
        finally:
            reading.cancel()
            self.frames.close()
            self.process = self.frames = self._late = None
            self.ready = False
            if self._asked is not None:
                self._asked.cancel()
                self._asked = None

    async def _read(self, frames: Frames, on_ready: asyncio.Event) -> None:
        try:
            while (frame := await frames.read()) is not None:
                if frame.kind is Kind.SNAPSHOT:
                    self._feed(self.name, decode(frame.content))
                    asked, self._asked = self._asked, None
                    if asked is not None:
                        asked.set_result(None)
                elif frame.kind is Kind.READY:
                    self.ready = True
                    self._pass_late_on()
                    on_ready.set()
                else:
                    self._route(self, frame)
        except Exception:
            _log.exception("what %s says cannot be understood", self.name)
        # Whoever sends what cannot be read notices that nobody reads it, ends, and is started again.
        self.ready = False
        frames.close()

    def tell(self, frame: Frame) -> bool:
        """Pass a frame on to it; False where it is not there to take it."""
        if self.frames is None or not self.ready or (frame.kind is Kind.REQUEST and self.frames.waiting > _MAX_WAITING):
            return False
        self.frames.write(frame)
        return True

    async def ask(self) -> None:
        """Have it say what it has counted; done when it has, or has ended, or takes too long."""
        if self.frames is None or not self.ready:
            return
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
            self.frames.write(Frame(Kind.SNAPSHOT))
        _, late = await asyncio.wait([self._asked], timeout=_TIMEOUT)
        if late:
            _log.warning("%s has not said in time what it counted", self.name)

    def signal(self, number: signal.Signals) -> None:
        """Pass a signal on; to a process that is being started, as soon as it can take it."""
        if self.process is None or (number is signal.SIGHUP and not self.ready):
            # SIGHUP ends whoever has no handler for it yet.
            if number is not signal.SIGHUP or self._late is None:
                self._late = number
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def _pass_late_on(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            self.signal(late)


class Supervisor(Collector):
    """Runs the workers of `settings`. command: what starts one, but for its number."""

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        self._settings = settings
        self._drain_seconds = settings.drain_delay + settings.drain_timeout
        self.workers = [Worker(number, command, self._feed, self._route) for number in range(settings.workers)]
        self._aggregator = SeriesAggregator(settings.metrics.top, settings.metrics.idle)
        # The ledger is written in the event loop and read in the threads of the HTTP server.
        self._lock = threading.Lock()
        self._exits: Counter[tuple[str, ...]] = Counter()
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; the exit status. Raises OSError where an address cannot be had."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        await self._try_addresses()
        with ExitStack() as stack:
            if self._settings.metrics_listen is not None:
                stack.callback(serve(self, self._settings.metrics_listen))
            looking = asyncio.ensure_future(self._look())
            keeping = [asyncio.ensure_future(self._keep(worker)) for worker in self.workers]
            await self._stop.wait()
            _log.info("stopping the workers")
            self._pass_on(signal.SIGTERM)
            _, late = await asyncio.wait(keeping, timeout=self._drain_seconds + _GRACE)
            if late:
                _log.error("%d workers did not end in time and are killed", len(late))
                self._pass_on(signal.SIGKILL)
                await asyncio.wait(late)
            looking.cancel()
        _log.info("stopped")
        return self._status

    async def _try_addresses(self) -> None:
        """Each address is free: a second supervisor could have it as well, and would take half of the clients."""
        for item in self._settings.listen:
            options = ListenerOptions(item.address, HostPort.parse(item.address), tls_mode=TlsMode.DISABLED)
            listener = Listener(options, {}, None, lambda outcome, peer, first: None)
            await listener.start()
            await listener.close()

    async def _keep(self, worker: Worker) -> None:
        """Start a worker, again and again."""
        pause = _FIRST_PAUSE
        if worker.number:
            # The first may have the broker that the others need; and what ails it would ail them all.
            await _first_of(self._ready, self._stop)
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                status = await worker.run(self._ready)
            except OSError as error:
                # No memory, or no process more: later, perhaps.
                _log.error("%s cannot be started: %s", worker.name, error)
                status = 1
            with self._lock:
                self._aggregator.remove_source(worker.name)
            self._tell_gone(worker)
            if self._stop.is_set():
                return
            self._exits[_status_name(status),] += 1
            if not self._ready.is_set():
                _log.error("%s ended with %s before it served anybody", worker.name, _status_name(status))
                self._status = status if status > 0 else 1
                self._stop.set()
                return
            if time.monotonic() - started > _LASTED:
                pause = _FIRST_PAUSE
            _log.error("%s ended with %s and is started again in %.1f s", worker.name, _status_name(status), pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _pass_on(self, number: signal.Signals) -> None:
        for worker in self.workers:
            worker.signal(number)

    # What workers ask each other.

    def _route(self, sender: Worker, frame: Frame) -> None:
        """To the worker that a frame names, with the sender's number in it instead."""
        passed = frame.worker < len(self.workers) and self.workers[frame.worker].tell(
            frame._replace(worker=sender.number)
        )
        if not passed and frame.kind is Kind.REQUEST:
            sender.tell(Frame(Kind.UNAVAILABLE, frame.worker, frame.call))

    def _tell_gone(self, gone: Worker) -> None:
        for worker in self.workers:
            if worker is not gone:
                worker.tell(Frame(Kind.UNAVAILABLE, gone.number))

    # Metrics.

    async def _look(self) -> None:
        while True:
            await self.gather()
            await asyncio.sleep(_LOOK)

    async def gather(self) -> None:
        """Take in what all workers have counted."""
        await asyncio.gather(*(worker.ask() for worker in self.workers))
        self._feed("supervisor", list(self._own()))

    def _feed(self, name: str, snapshot: Snapshot) -> None:
        with self._lock:
            self._aggregator.add_snapshot(name, snapshot)

    def _own(self) -> Iterator[tuple[Family, dict[tuple[str, ...], float]]]:
        ready = sum(worker.ready for worker in self.workers)
        yield WORKERS, {("serving",): ready, ("down",): len(self.workers) - ready}
        yield EXITS, dict(self._exits)

    def collect(self) -> Iterable[Metric]:
        """All metrics, as prometheus_client asks for them, in a thread of the HTTP server."""
        asyncio.run_coroutine_threadsafe(self.gather(), self._loop).result(_SCRAPE_PATIENCE)
        settings = self._settings
        with self._lock:
            node = settings.replica or socket.gethostname()
            return list(families(self._aggregator.series(), settings.metrics.cluster, node))


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def _status_name(status: int) -> str:
    """An exit status as it is shown: its number, or the signal's name."""
    if status >= 0:
        return str(status)
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


async def supervise(settings: Settings, arguments: Sequence[str]) -> int:
    """Run the workers of a program that was started with these arguments; see `Supervisor.run`."""
    return await Supervisor(settings, (sys.executable, "-m", "proxy", *arguments)).run()
