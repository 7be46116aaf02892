"""Queue locks: one client of a group at a time consumes a queue in order (RocketMQ's RebalanceLockManager). Sans-io."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

# Topic, broker name, queue id.
Queue = tuple[str, str, int]


@dataclass(slots=True)
class _Lock:
    client_id: str
    at: int


class Locks:
    """Locks by group and queue; one that is not renewed for `life` ms is free."""

    def __init__(self, life: int) -> None:
        self._life = life
        self._locks: defaultdict[str, dict[Queue, _Lock]] = defaultdict(dict)

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now: int) -> list[Queue]:
        """Those of the queues that are the client's from now on."""
        locks = self._locks[group]
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.at > self._life:
                locks[queue] = _Lock(client_id, now)
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Free those of the queues that are the client's."""
        locks = self._locks[group]
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def held(self, group: str, now: int) -> bool:
        """Whether a group has any lock."""
        return any(now - lock.at <= self._life for lock in self._locks.get(group, {}).values())
