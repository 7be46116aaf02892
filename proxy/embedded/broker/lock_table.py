"""Queue locks: one client of a group consumes a queue in order (RocketMQ's RebalanceLockManager). Sans-io."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

# Topic, broker name, queue id.
Queue = tuple[str, str, int]


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_at: int


class QueueLocks:
    """Locks by group and queue; a lock that is not renewed within `timeout` ms is free."""

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._locks: defaultdict[str, dict[Queue, _Lock]] = defaultdict(dict)

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now: int) -> list[Queue]:
        """Lock or renew queues for a client; return those that it holds now."""
        locks = self._locks[group]
        locked = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.renewed_at > self._timeout:
                locks[queue] = _Lock(client_id, now)
                locked.append(queue)
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Release the locks of a client on these queues."""
        locks = self._locks[group]
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def expire(self, now: int) -> None:
        """Remove the locks that were not renewed in time."""
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if now - lock.renewed_at > self._timeout]:
                del locks[queue]
            if not locks:
                del self._locks[group]

    def is_locked(self, group: str, now: int) -> bool:
        """Return whether a group has any lock."""
        return any(now - lock.renewed_at <= self._timeout for lock in self._locks.get(group, {}).values())
