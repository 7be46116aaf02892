"""Queue locks: one client of a group consumes a queue in order (RocketMQ's RebalanceLockManager). Sans-io."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.embedded.broker.source_share import Source, has_place
from remoting.counts import count_down

# Topic, broker name, queue id.
Queue = tuple[str, str, int]


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_at: int
    source: Source


class QueueLocks:
    """Locks by group and queue; a lock that is not renewed within `timeout` ms is free.

    maximum: number of locks, of which a source address has a share. Clients choose the names of groups and queues.
    """

    def __init__(self, timeout: int, maximum: int) -> None:
        self._timeout = timeout
        self._maximum = maximum
        self._locks: defaultdict[str, dict[Queue, _Lock]] = defaultdict(dict)
        # The number of locks by source address.
        self._counts: Counter[Source] = Counter()
        self._total = 0

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now: int, source: Source = None) -> list[Queue]:
        """Lock or renew queues for a client; return those that it holds now. A queue without a place is not locked."""
        locks = self._locks[group]
        locked = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None and not has_place(self._counts[source], self._total, self._maximum):
                continue
            if lock is None or lock.client_id == client_id or now - lock.renewed_at > self._timeout:
                if lock is not None:
                    self._forget(lock)
                locks[queue] = _Lock(client_id, now, source)
                self._counts[source] += 1
                self._total += 1
                locked.append(queue)
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Release the locks of a client on these queues."""
        locks = self._locks[group]
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._forget(locks.pop(queue))

    def expire(self, now: int) -> None:
        """Remove the locks that were not renewed in time."""
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if now - lock.renewed_at > self._timeout]:
                self._forget(locks.pop(queue))
            if not locks:
                del self._locks[group]

    def is_locked(self, group: str, now: int) -> bool:
        """Return whether a group has any lock."""
        return any(now - lock.renewed_at <= self._timeout for lock in self._locks.get(group, {}).values())

    def _forget(self, lock: _Lock) -> None:
        self._total -= 1
        count_down(self._counts, lock.source)
