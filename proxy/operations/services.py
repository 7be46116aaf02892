"""The state of a replica that belongs to its operators: health, recent events, audit, tap, log levels, settings."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from proxy.core.health import Health
from proxy.operations import connected_clients, event_log, group_metrics, health_checks
from proxy.operations.audit import Audit
from proxy.operations.event_log import EventLog
from proxy.operations.group_survey import GroupSurvey
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
        self.health = Health(partial(health_checks.look, replica), partial(health_checks.find_lasting, replica))
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
        self.survey = GroupSurvey(replica, self.settings.survey_interval)
        self._sources = sources
        self._origins = {} if sources is None else sources.origins()
        if self.settings.address is not None:
            replica.connection_listeners.append(self.events.connection)
        self._add_metrics()

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

    def _add_metrics(self) -> None:
        metrics = self.replica.metrics
        metrics.counter(
            "gantry_admin_worker_answers",
            "Calls from the admin API to other workers: answered, gone, or late.",
            "outcome",
            self.worker_calls,
        )
        metrics.gauge("gantry_admin_streams", "Open streams of the live tap.", lambda: len(self.tap.watchers))
        metrics.add(partial(group_metrics.read, self.survey))
        metrics.gauge(
            "gantry_clients", "Clients that are connected here, by id.", partial(connected_clients.count, self.replica)
        )
        metrics.gauge("gantry_ready", "1 if the replica is ready for clients.", self._is_ready)

    def _is_ready(self) -> bool:
        return self.health.report("/readyz").ok
