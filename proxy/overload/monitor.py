"""The monitor of the process's memory: its level, and the actions that keep it below the ceiling.

1. At the soft bound, connections that hold more than their share are not read, and freed memory is returned to the
   system.
2. At the hard bound, the connections that hold the most for the longest time are closed, and new connections are
   refused. Requests are refused while that is not enough.
3. Requests that have not arrived in full, and requests in flight, have bounds of their own, which hold between two
   measurements as well.

The memory is measured, because the bytes that connections count are not all: objects, fragmentation and buffers of
libraries add to them.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from proxy.core.budget import Budget
from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.core.long_poll import refuse_polls
from proxy.overload.ceiling import Ceiling, ceiling
from proxy.overload.holders import LEAST, Connection, Holder, Holders, ranked
from proxy.overload.process_memory import ProcessMemory
from proxy.settings.limits import LimitSettings
from remoting.codes import RequestCode
from remoting.errors import Overloaded
from remoting.memory_watch import MemoryWatch
from remoting.tasks import every

_log = logging.getLogger("gantry.overload")

# Seconds between measurements.
_INTERVAL = 0.1
# Measurements beside those, after this share of the ceiling has been received or sent.
_STRIDE_SHARE = 1 / 64
# The soft level ends below this share of the soft bound, and the hard level below the soft bound.
_RECOVERY_SHARE = 0.9
# Share of a bound of requests to which load is shed.
_RELIEF_SHARE = 0.75
# Requests in flight over this share of their bound are refused, as ending and refusing long polls was not enough.
_REFUSAL_SHARE = 1.25
# Seconds for which a connection may hold more than its share before it is not read, and unread before it is closed.
_PAUSE_AFTER, _CLOSE_AFTER = 1.0, 5.0
# Seconds at the hard bound after which requests are refused, as closing connections was not enough.
_REFUSE_AFTER = 1.0
# Seconds between returns of freed memory to the system; longer while they free little.
_TRIM_INTERVAL, _MAX_TRIM_INTERVAL = 0.25, 8.0
# Seconds after a higher level for which the interval stays below this one, as more is freed step by step.
_RECOVERY_SECONDS, _RECOVERY_TRIM_INTERVAL = 20.0, 1.0
# Bytes above the least memory so far at which some may have been freed.
_MAX_FREED = 24 * 2**20
# Seconds after which connections that were closed have released their memory.
_RELEASE_SECONDS = 0.02
# Share of the ceiling below which refusing requests would not help: the process itself takes the memory.
_SHEDDABLE_SHARE = 0.05
# Seconds between log lines of one kind.
_LOG_INTERVAL = 1.0
# A scan of the connections is followed by this multiple of its time without one, unless load has to be shed.
_SCAN_PAUSE = 20
# Labels of the metric of actions.
_ACTIONS = ("pause", "close", "refuse_request", "end_poll", "trim")
# Requests that free something, or keep a client's membership.
_RELIEVING = frozenset(
    (
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.END_TRANSACTION,
    )
)


class Level(IntEnum):
    """The level of overload; the values are those of the metric."""

    NORMAL = 0
    SOFT = 1
    HARD = 2


class Overload:
    """Keeps the process's memory below its ceiling. Attach connections by `watch`, and run `run` in a task.

    connections: yields the open connections. channels: returns the clients of one. refuse_connections: called with the
    reason for which new connections are refused, and with None when they are accepted again. clock: in seconds.
    level, memory: level and bytes at the last measurement. counts: actions since the start.
    """

    def __init__(
        self,
        limits: LimitSettings,
        workers: int,
        budget: Budget,
        connections: Callable[[], Iterable[Connection]],
        channels: Callable[[Connection], Sequence[Channel]],
        refuse_connections: Callable[[str | None], None],
        process: ProcessMemory | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._process = process or ProcessMemory()
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._baseline = self._process.read()
        self._budget = budget
        self._connections = connections
        self._channels = channels
        self._refuse_connections = refuse_connections
        self._holders = Holders()
        self._paused: dict[Connection, float] = {}
        # Connections that are being closed, with the bytes that this will release.
        self._closing: dict[Connection, Holder] = {}
        self._ending_polls = False
        self._refusing = False
        self._hard_since: float | None = None
        self._next_scan = self._next_trim = 0.0
        self._trim_interval = _TRIM_INTERVAL
        self._recovers_until = -math.inf
        # The least memory after a trim.
        self._trimmed = self._baseline
        self._logged_at: dict[str, float] = {}
        self.level = Level.NORMAL
        self.memory = self._baseline
        self.counts: Counter[str] = Counter(dict.fromkeys(_ACTIONS, 0))
        self.watch = MemoryWatch()
        self.watch.on_full = self._relieve_unfinished
        self.watch.on_stride = self.check
        budget.on_full = self._on_full_budget
        self.ceiling: Ceiling
        self.apply(limits)

    def apply(self, limits: LimitSettings) -> None:
        """Use these limits."""
        self.ceiling = bounds = ceiling(limits.memory, self._workers, self._baseline)
        self._request_limit = bounds.request_bytes if limits.total_bytes is None else limits.total_bytes
        self._budget.limit = -1 if self._refusing else self._request_limit
        unfinished = limits.unfinished_bytes
        self.watch.max_unfinished = bounds.request_bytes if unfinished is None else unfinished
        self.watch.stride = bounds.memory * _STRIDE_SHARE
        if bounds.raised:
            _log.warning(
                "limits.memory is raised to %d MiB for this process: %d MiB are used at the start",
                bounds.memory >> 20,
                self._baseline >> 20,
            )

    async def run(self) -> None:
        """Measure the memory until cancelled."""
        await every(_INTERVAL, self.check, name="overload")

    def close(self) -> None:
        """Release the measurement's file."""
        self._process.close()

    def unread_bytes(self) -> int:
        """Return the bytes of responses that clients have not read."""
        return sum(connection.held_response_bytes for connection in self._connections())

    # Levels.

    def check(self) -> None:
        """Measure the memory, and act if it is over a bound or was so before."""
        self.memory = self._process.read()
        level = self._next_level()
        if level is Level.NORMAL and self.level is Level.NORMAL:
            if self.memory > self._trimmed + _MAX_FREED:
                self._trim()
            return
        if self.memory >= self.ceiling.soft * _RECOVERY_SHARE:
            self._trim()
            level = self._next_level()
        self._enter(level)
        now = self._clock()
        if level is Level.HARD:
            self._shed_memory(now)
        elif level is Level.SOFT:
            self._pause_holders(now)
        else:
            self._resume_all()

    def _next_level(self) -> Level:
        """Return the level by the last measurement, with hysteresis."""
        bounds, memory = self.ceiling, self.memory
        filled = max(self.watch.unfinished / self.watch.max_unfinished, self._budget.used / self._request_limit)
        if memory >= (bounds.soft if self.level is Level.HARD else bounds.hard):
            return Level.HARD
        lower = self.level is not Level.NORMAL
        if memory >= bounds.soft * (_RECOVERY_SHARE if lower else 1) or filled >= (0.5 if lower else _RELIEF_SHARE):
            return Level.SOFT
        return Level.NORMAL

    def _enter(self, level: Level) -> None:
        """Change the level: the hard level refuses new connections."""
        before, self.level = self.level, level
        if level is before:
            return
        if level is Level.NORMAL:
            self._recovers_until = self._clock() + _RECOVERY_SECONDS
        if Level.HARD in (level, before):
            text = self.usage() if level is Level.HARD else None
            self._refuse_connections(text)
            self._hard_since = self._clock() if level is Level.HARD else None
            if level is not Level.HARD:
                self._refuse_requests(False)
        if level is Level.HARD or (level is Level.NORMAL and "level" in self._logged_at):
            log = _log.warning if level is Level.HARD else _log.info
            if self._may_log("level") or level is Level.NORMAL:
                log("overload level %s: %s", level.name.lower(), self.usage())
            if level is Level.NORMAL:
                del self._logged_at["level"]

    def usage(self) -> str:
        """Return the memory in use and its ceiling as text."""
        return f"{self.memory >> 20} MiB of memory are in use, of at most {self.ceiling.memory >> 20} MiB"

    # Actions.

    def _scan(self, now: float) -> list[Holder]:
        begin = time.perf_counter()
        holders = [
            holder for holder in self._holders.scan(self._connections(), now) if holder.connection not in self._closing
        ]
        self._next_scan = now + (time.perf_counter() - begin) * _SCAN_PAUSE
        return holders

    def _pause_holders(self, now: float) -> None:
        """Stop reading from the connections that hold more than their share, and close them if that does not help."""
        if now < self._next_scan:
            return
        holders = self._scan(now)
        share = sum(holder.total for holder in holders) / max(len(holders), 1)
        over = {holder.connection: holder for holder in holders if holder.total > share}
        for connection in [connection for connection in self._paused if connection not in over]:
            del self._paused[connection]
            connection.resume()
        for connection, holder in over.items():
            if connection not in self._paused:
                if now - holder.since > _PAUSE_AFTER:
                    self._paused[connection] = now
                    self.counts["pause"] += 1
                    connection.pause()
            elif now - self._paused[connection] > _CLOSE_AFTER:
                self._close([holder])

    def _resume_all(self) -> None:
        paused, self._paused = self._paused, {}
        for connection in paused:
            connection.resume()

    def _shed_memory(self, now: float) -> None:
        """Close connections until the memory will be at the soft bound; refuse requests if it was not enough."""
        holders = self._scan(now)
        released = sum(holder.total for holder in self._closing.values())
        held = sum(holder.total for holder in holders) + released
        if held < self.ceiling.memory * _SHEDDABLE_SHARE:
            if self._may_log("nothing"):
                _log.error("%s, but connections hold %d MiB only", self.usage(), held >> 20)
            self._refuse_requests(False)
            return
        goal = self.memory - self.ceiling.soft - released
        # Closing the connections that hold little would free little.
        self._close(_until(goal, ranked((holder for holder in holders if holder.total >= LEAST), now)))
        lasts = self._hard_since is not None and now - self._hard_since > _REFUSE_AFTER
        self._refuse_requests(lasts and self.memory >= self.ceiling.hard)

    def _refuse_requests(self, refusing: bool) -> None:
        self._refusing = refusing
        self._budget.limit = -1 if refusing else self._request_limit

    def _close(self, holders: list[Holder]) -> None:
        """Close connections, and measure again when they have released their memory."""
        if not holders:
            return
        largest = holders[0]
        if self._may_log("close"):
            _log.warning(
                "%s: closing %d connections that hold %d MiB; first %s (%s)",
                self.usage(),
                len(holders),
                sum(holder.total for holder in holders) >> 20,
                self._describe(largest.connection),
                largest.kinds(),
            )
        for holder in holders:
            self._closing[holder.connection] = holder
            self._paused.pop(holder.connection, None)
            self.counts["close"] += 1
            holder.connection.shed()
        self._trim_interval, self._next_trim = _TRIM_INTERVAL, 0.0
        self._loop.call_later(_RELEASE_SECONDS, self._released, [holder.connection for holder in holders])

    def _released(self, connections: list[Connection]) -> None:
        for connection in connections:
            self._closing.pop(connection, None)
        self.check()

    def _describe(self, connection: Connection) -> str:
        clients = [channel.identity.client_id or "?" for channel in self._channels(connection)]
        address = connection.peer.address if connection.peer is not None else "?"
        return f"{address}, client {', '.join(clients[:3]) or 'unknown'}"

    def _trim(self) -> None:
        """Return freed memory to the system, less often while there is little to return."""
        now = self._clock()
        if now < self._next_trim:
            return
        recovers = self.level is Level.NORMAL and now < self._recovers_until
        self._process.trim(thorough=recovers)
        before, self.memory = self.memory, self._process.read()
        self._trimmed = min(self._trimmed, self.memory)
        self.counts["trim"] += 1
        little = before - self.memory < before >> 5
        longest = _RECOVERY_TRIM_INTERVAL if recovers else _MAX_TRIM_INTERVAL
        self._trim_interval = min(self._trim_interval * 2, longest) if little else _TRIM_INTERVAL
        self._next_trim = now + self._trim_interval

    def _may_log(self, kind: str) -> bool:
        now = self._clock()
        if now - self._logged_at.get(kind, -_LOG_INTERVAL) < _LOG_INTERVAL:
            return False
        self._logged_at[kind] = now
        return True

    # Bounds that hold between two measurements.

    def _relieve_unfinished(self) -> None:
        """Close the connections with the most and oldest unfinished requests, down to a share of their bound."""
        closing = sum(holder.unfinished for holder in self._closing.values())
        goal = self.watch.unfinished - closing - self.watch.max_unfinished * _RELIEF_SHARE
        if self.watch.unfinished - closing <= self.watch.max_unfinished:
            return
        now = self._clock()
        unfinished = [
            Holder(holder.connection, holder.unfinished, 0, 0, holder.since)
            for holder in self._scan(now)
            if holder.unfinished
        ]
        self._close(_until(goal, ranked(unfinished, now)))

    def _on_full_budget(self, context: Context) -> None:
        """Handle a request while requests in flight are over their bound: end long polls, or refuse it."""
        if self._refusing:
            if context.code in _RELIEVING:
                return
            self.counts["refuse_request"] += 1
            raise Overloaded("the proxy has too little memory; try again later")
        self._end_polls()
        # A poll can be repeated, and its reply may be large.
        polls = context.spec is not None and context.spec.poll is not None
        if polls or self._budget.used > self._request_limit * _REFUSAL_SHARE:
            self.counts["refuse_request"] += 1
            self._budget.reject(context)

    def _end_polls(self) -> None:
        """End the long polls of the connections with the most requests in flight, down to a share of the bound."""
        if self._ending_polls:
            return
        # They are counted until their callbacks have run.
        self._ending_polls = True
        self._loop.call_later(_RELEASE_SECONDS, self._polls_ended)
        now = self._clock()
        waiting = [
            Holder(holder.connection, 0, holder.requests, 0, holder.since)
            for holder in self._scan(now)
            if any(channel.session.polls for channel in self._channels(holder.connection))
        ]
        chosen = _until(self._budget.used - self._request_limit * _RELIEF_SHARE, ranked(waiting, now))
        if chosen and self._may_log("polls"):
            _log.warning(
                "%d bytes of requests are in flight: ending the long polls of %d connections; first %s (%s)",
                self._budget.used,
                len(chosen),
                self._describe(chosen[0].connection),
                chosen[0].kinds(),
            )
        error = Overloaded("too many requests are in flight; try again later")
        for holder in chosen:
            for channel in self._channels(holder.connection):
                self.counts["end_poll"] += refuse_polls(channel, error)

    def _polls_ended(self) -> None:
        self._ending_polls = False


def _until(goal: float, holders: Iterable[Holder]) -> list[Holder]:
    """Return the first holders, until they hold `goal` bytes together."""
    chosen = []
    for holder in holders:
        if goal <= 0:
            break
        goal -= holder.total
        chosen.append(holder)
    return chosen
