"""The state of a replica that belongs to its operators: health, recent events, audit, tap, log levels, settings."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from proxy.core.health import Health
from proxy.observability.metrics.family import Family, Kind, Merge, Samples, by_label
from proxy.operations import connected_clients, event_log, health_checks
from proxy.operations.audit import Audit
from proxy.operations.event_log import EventLog
from proxy.operations.groups import group_metrics
from proxy.operations.groups.group_survey import GroupSurvey
from proxy.operations.history.history import History
from proxy.operations.log_levels import LogLevels
from proxy.operations.merged_tap import MergedTap
from proxy.operations.paging import Place
from proxy.operations.peers import Peers
from proxy.operations.replica import Replica
from proxy.operations.request_tap import RequestTap
from proxy.operations.workers import Workers
from proxy.settings.loading import Sources
from proxy.workers.worker_rpc import WorkerRpc

if TYPE_CHECKING:
    from proxy.operations.configuration import Configuration

WORKER_ANSWERS = Family(
    "gantry_admin_worker_answers",
    Kind.COUNTER,
    "Calls from the admin API to other workers: answered, gone, or late.",
    ("outcome",),
)
STREAMS = Family("gantry_admin_streams", Kind.GAUGE, "Open streams of the live tap.")
CLIENTS = Family("gantry_clients", Kind.GAUGE, "Clients that are connected here, by id.")
READY = Family("gantry_ready", Kind.GAUGE, "1 if the replica is ready for clients.", (), Merge.MIN)


class AdminServices:
    """The services that operations and the admin interfaces share; one of each in a replica."""

    def __init__(self, replica: Replica, sources: Sources | None) -> None:
        self.replica = replica
        self.settings = replica.settings.admin
        self.loop = asyncio.get_running_loop()
        self.started = event_log.now()
        # Seconds since 1970 of the loop's zero, so that times of all replicas have one order. Constant: pages need it.
        # The loop's clock is the monotonic one, of which `loop.time()` is an earlier reading.
        self.clock_offset = time.time() - time.monotonic()
        self.health = Health(
            partial(health_checks.all_checks, replica), partial(health_checks.checks_for_restart, replica)
        )
        self.events = EventLog(self.settings.kept)
        self.audit = Audit(self.settings.kept)
        self.tap = RequestTap(replica.core.observers, self.settings.streams)
        self.log_levels = LogLevels()
        # Calls to other workers, by outcome.
        self.worker_calls: Counter[str] = Counter()
        self.workers = Workers(self.worker_calls)
        self.merged_tap = MergedTap(self.tap, self.workers)
        self.peers = Peers(self.settings, replica.settings.replica)
        self.history = History(replica.metrics.requests)
        self.survey = GroupSurvey(replica, self.settings.survey_interval, self.settings.survey_groups)
        self._sources = sources
        self._origins = {} if sources is None else sources.origins()
        if self.settings.address is not None:
            replica.connection_listeners.append(self.events.connection)

    @cached_property
    def configuration(self) -> "Configuration":
        """The settings in force."""
        # Loaded on first use: its models would delay the start.
        from proxy.operations.configuration import Configuration

        return Configuration(self.replica, self._sources, self._origins)

    def join(self, rpc: WorkerRpc, prepare: Callable[[], Awaitable[None]]) -> None:
        """Become one of several workers. prepare: registers this worker's operations, before the first is served."""
        self.workers.join(rpc, prepare)
        self.merged_tap.join(rpc)

    def connection_id(self, number: int) -> int | str:
        """Return a connection's number; where there are several workers, with the worker's, as in `1:17`."""
        return f"{self.workers.number}:{number}" if self.workers.several else number

    @property
    def placement(self) -> dict[str, Any]:
        """The fields `replica` and, where there are several workers, `worker` of things that belong to this one."""
        fields: dict[str, Any] = {"worker": self.workers.number} if self.workers.several else {}
        return {**fields, "replica": self.peers.name}

    def place(self, value: Any, number: int) -> Place:
        """Return the place of a numbered thing in a list: numbers are unique in a worker of a replica only."""
        return Place(value, self.workers.number, f"{self.peers.name}/{number:019}")

    def close(self) -> None:
        """End all streams and restore all log levels."""
        self.tap.close()
        self.log_levels.close()

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the metrics of the services, and of consumer groups."""
        yield WORKER_ANSWERS, by_label(self.worker_calls)
        yield STREAMS, {(): len(self.tap.watchers)}
        yield from group_metrics.read(self.survey)
        yield CLIENTS, {(): connected_clients.count(self.replica)}
        yield READY, {(): self.health.report("/readyz").ok}
