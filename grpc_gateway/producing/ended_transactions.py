"""Memory of transactions that have ended: brokers would store the message of a second commit, also after a rollback."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from grpc_gateway.transaction_id import TransactionId

# Transactions of a replica, of 350 bytes each at most, and seconds for which they are known.
_LIMIT: Final = 50_000
_LIFETIME: Final = 600.0
# One in this many transactions is the smallest share of a source from which its own are forgotten.
_SHARES: Final = 100


@dataclass(slots=True)
class _Ended:
    """The end of a transaction.

    offset: commit log offset of its latest id that ended it; previous: that of the one before, -1 without any. source,
    time: of the latest.
    """

    offset: int
    previous: int
    source: Hashable
    time: float


class EndedTransactions:
    """The last 50,000 transactions that this process has ended in the last ten minutes.

    A transaction is known by its topic, its broker and its message id, which the ids of all its checks share. Before a
    check, brokers store the half message again: the id of a later check has a higher commit log offset, and ends the
    transaction again. That is right if the broker has lost the end before, at whichever replica that was.

    If there are too many, the source with the most of them loses its oldest ones: it cannot make others' unknown.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = _LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        # By hashes of their keys, in the order of their times.
        self._ended: dict[int, _Ended] = {}
        self._by_source: dict[Hashable, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._ended)

    def ended(self, topic: str, transaction: TransactionId) -> bool:
        """Return whether the transaction has been ended, by this id or by that of a later check."""
        ended = self._ended.get(_key(topic, transaction))
        return (
            ended is not None
            and transaction.commit_log_offset <= ended.offset
            and self._clock() - ended.time < _LIFETIME
        )

    def add(self, topic: str, transaction: TransactionId, source: Hashable) -> None:
        """Record the end of a transaction by a request from `source`."""
        key, now = _key(topic, transaction), self._clock()
        former = self._forget(key)
        self._forget_old(now)
        if len(self._ended) >= self._limit:
            self._make_room()
        previous = -1 if former is None else former.offset
        self._ended[key] = _Ended(transaction.commit_log_offset, previous, source, now)
        self._by_source.setdefault(source, {})[key] = None

    def undo(self, topic: str, transaction: TransactionId) -> None:
        """Undo an `add`, because the end has failed: it may be repeated."""
        key = _key(topic, transaction)
        ended = self._ended.get(key)
        if ended is None or ended.offset != transaction.commit_log_offset:
            return
        if ended.previous < 0:
            self._forget(key)
        else:
            ended.offset, ended.previous = ended.previous, -1

    def checked(self, topic: str, transaction: TransactionId) -> None:
        """Forget a transaction, because the broker asks for its outcome."""
        self._forget(_key(topic, transaction))

    def _forget(self, key: int) -> _Ended | None:
        ended = self._ended.pop(key, None)
        if ended is not None:
            keys = self._by_source[ended.source]
            del keys[key]
            if not keys:
                del self._by_source[ended.source]
        return ended

    def _forget_old(self, now: float) -> None:
        while self._ended:
            key = next(iter(self._ended))
            if now - self._ended[key].time < _LIFETIME:
                return
            self._forget(key)

    def _make_room(self) -> None:
        largest = max(self._by_source.values(), key=len)
        least = max(1, self._limit // _SHARES)
        # If each source has few transactions, the oldest of all: a search for the largest source takes long then.
        keys, count = (largest, len(largest) // 2) if len(largest) > least else (self._ended, least)
        for key in list(keys)[: max(count, 1)]:
            self._forget(key)


def _key(topic: str, transaction: TransactionId) -> int:
    return hash((topic, transaction.broker, transaction.message_id))
