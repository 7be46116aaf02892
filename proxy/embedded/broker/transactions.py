"""Transactions: half messages, their commit and rollback, and checks of unresolved ones with their producers.

A half message is stored in a system topic, and has a row in the table of half messages (key: commit log offset) until
it is committed, rolled back, or checked too often without a result. Unlike in RocketMQ it is not stored again with
every check, so that its offsets, by which a producer ends it, do not change.
"""

import heapq
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.embedded.broker import names
from proxy.embedded.broker.append_pipeline import AppendPipeline
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.broker.work_budget import WorkBudget
from proxy.embedded.store import StorageError, Store
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.ids import OffsetMessageId
from remoting.messages import TRANSACTION_MASK, StoredMessage, SysFlag
from remoting.names import HALF_TOPIC, UNCHECKED_TOPIC
from remoting.outcomes import Reply

_log = logging.getLogger("gantry.embedded")

# Maximum number of checks in one tick, and of times that are looked at, most of which may be outdated.
_MAX_CHECKS = 256
_MAX_TIMES = 4096
# Minimum number of outdated times of checks before the times are rebuilt.
_MIN_OUTDATED = 1024
# The longest immunity in seconds that a producer may choose, in digits.
_MAX_IMMUNITY_DIGITS = 10


@dataclass(slots=True)
class HalfMessage:
    """The row of a half message. Times in ms.

    immunity: duration after `born` in which it is not checked. explicit: whether the producer chose the immunity.
    checks, last_check: number of checks so far, and the time of the last one. group: the producer group, so that a
    check without a member to ask need not read the message; None if only the message has it.
    """

    born: int
    immunity: int
    explicit: bool
    checks: int = 0
    last_check: int = 0
    group: str | None = None

    def encode(self) -> bytes:
        numbers = f"{self.born} {self.immunity} {int(self.explicit)} {self.checks} {self.last_check}"
        return (numbers if self.group is None else f"{numbers} {self.group}").encode()

    @classmethod
    def decode(cls, value: bytes) -> "HalfMessage":
        *numbers, rest = value.split(b" ", 5)
        # Rows of earlier versions have no group.
        group = rest.decode() if len(numbers) == 5 else None
        born, immunity, explicit, checks, last_check = map(int, numbers if group is not None else (*numbers, rest))
        return cls(born, immunity, bool(explicit), checks, last_check, group)


class Transactions:
    """Half messages by commit log offset.

    `producers` returns the members of a producer group in the order in which they are sent the next check, by `push`,
    until one is sent. Anyone can be a member: a check that the push refuses does not reach its client.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        pipeline: AppendPipeline,
        producers: Callable[[str], list[Channel]],
        push: Push,
    ) -> None:
        self._settings = settings
        self._store = store
        self._pipeline = pipeline
        self._producers = producers
        self._push = push
        self._table = store.table("halves")
        self._rows = {int.from_bytes(key, "big"): HalfMessage.decode(value) for key, value in self._table.items()}
        # A heap of the times of the next checks, with the half messages' offsets; resolved ones are outdated.
        self._due = self._next_checks()
        # Time before which there are no checks, since storage has failed.
        self._paused_until = 0

    def __len__(self) -> int:
        return len(self._rows)

    def prepare(self, message: StoredMessage, pairs: dict[str, str], now: int) -> StoredMessage:
        """Store a half message."""
        if unique_id := pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID):
            pairs[properties.TRANSACTION_ID] = unique_id
        pairs[properties.REAL_TOPIC] = message.topic
        pairs[properties.REAL_QUEUE_ID] = str(message.queue_id)
        self._pipeline.check(message.topic, message.body)
        half = replace(
            message,
            topic=HALF_TOPIC,
            queue_id=0,
            # A delay begins with the commit: until then the message must not be treated as a delayed one.
            sys_flag=message.sys_flag & ~TRANSACTION_MASK | SysFlag.TRANSACTION_PREPARED,
        )
        row = self._new_row(message, pairs, now)
        with self._store.transaction():
            stored = self._pipeline.append(half, pairs, now)
            self._table.put(_key(stored.commit_log_offset), row.encode())
        # Memory is updated only after the write has succeeded.
        self._rows[stored.commit_log_offset] = row
        heapq.heappush(self._due, (self._next_check(row), stored.commit_log_offset))
        if len(self._due) > 2 * len(self._rows) + _MIN_OUTDATED:
            self._due = self._next_checks()
        return stored

    def _new_row(self, message: StoredMessage, pairs: Mapping[str, str], now: int) -> HalfMessage:
        seconds = pairs.get(properties.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
        explicit = seconds.isdecimal() and len(seconds) <= _MAX_IMMUNITY_DIGITS
        immunity = 1000 * int(seconds) if explicit else self._settings.transaction_timeout
        # Both are the producer's: otherwise it could keep a message open forever.
        born, immunity = min(message.born_timestamp, now), min(immunity, self._settings.transaction_max_age)
        group = pairs.get(properties.PRODUCER_GROUP) or ""
        # The row is in memory, and a name of any length is the producer's.
        return HalfMessage(born, immunity, explicit, group=group if names.is_group(group) else None)

    # Commit and rollback.

    def find(self, offset: int) -> tuple[StoredMessage, bool] | None:
        """Return the half message at a commit log offset and whether it is unresolved; None if there is none."""
        record = self._store.record(offset)
        if record is None:
            return None
        message = messages.decode_message(record)
        return (message, offset in self._rows) if message.topic == HALF_TOPIC else None

    def may_end(self, offset: int, now: int) -> bool:
        """Return whether the producer may end a message without a check: not after the immunity that it chose."""
        half = self._rows[offset]
        return not half.explicit or now - half.born <= half.immunity

    def commit(self, message: StoredMessage, now: int) -> StoredMessage:
        """Store a half message in its topic."""
        pairs = dict(message.property_map)
        # As in brokers, the message keeps these properties.
        topic, queue_id = pairs[properties.REAL_TOPIC], int(pairs[properties.REAL_QUEUE_ID])
        committed = replace(
            message,
            topic=topic,
            queue_id=queue_id,
            sys_flag=message.sys_flag & ~TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT,
            prepared_transaction_offset=message.commit_log_offset,
        )
        with self._store.transaction():
            stored = self._pipeline.append(committed, pairs, now)
            self._table.delete(_key(message.commit_log_offset))
        del self._rows[message.commit_log_offset]
        return stored

    def roll_back(self, message: StoredMessage) -> None:
        """Remove a half message."""
        self._forget(message.commit_log_offset)

    def _forget(self, offset: int) -> None:
        self._table.delete(_key(offset))
        del self._rows[offset]

    # Checks.

    def tick(self, now: int, budget: WorkBudget) -> None:
        """Check half messages that are unresolved for too long; of many, some remain for the next ticks.

        RocketMQ checks all of them every `transaction_interval`, so that the first check of one may come that much
        later than its immunity ends.
        """
        if now < self._paused_until:
            return
        checks = 0
        for _ in range(_MAX_TIMES):
            if not self._due or self._due[0][0] > now or checks == _MAX_CHECKS or budget.exhausted:
                return
            _, offset = heapq.heappop(self._due)
            budget.use()
            half = self._rows.get(offset)
            if half is None:
                continue
            checks += 1
            try:
                self._check(offset, half, now, budget)
            except StorageError:
                self._paused_until = now + self._settings.transaction_interval
                raise
            except Exception:
                # The other half messages must still be checked.
                _log.exception("the check of the half message at commit log offset %d failed", offset)
            finally:
                if offset in self._rows:
                    heapq.heappush(self._due, (now + self._settings.transaction_interval, offset))

    def _next_check(self, half: HalfMessage) -> int:
        """Return the time in ms from which a half message is to be checked."""
        if half.checks:
            return half.last_check + self._settings.transaction_interval
        return half.born + half.immunity + 1

    def _next_checks(self) -> list[tuple[int, int]]:
        """Return a heap of the times of the next checks of all half messages, with their offsets."""
        due = [(self._next_check(half), offset) for offset, half in self._rows.items()]
        heapq.heapify(due)
        return due

    def _check(self, offset: int, half: HalfMessage, now: int, budget: WorkBudget) -> None:
        settings = self._settings
        if half.checks >= settings.transaction_checks or now - half.born > settings.transaction_max_age:
            if (message := self._read(offset, budget)) is not None:
                self._discard_unresolved(message, now)
            return
        group, message = half.group, None
        if group is None:
            if (message := self._read(offset, budget)) is None:
                return
            group = message.get(properties.PRODUCER_GROUP) or ""
        # The member first: without one, the message, perhaps of megabytes, need not be read.
        producers = self._producers(group)
        if producers and message is None and (message := self._read(offset, budget)) is None:
            return
        half.checks, half.last_check = half.checks + 1, now
        self._table.put(_key(offset), half.encode())
        if message is None or not self._send_check(producers, message, half, budget):
            _log.info("producer group %s has no member to check a transaction with", group)

    def _send_check(
        self, producers: list[Channel], message: StoredMessage, half: HalfMessage, budget: WorkBudget
    ) -> bool:
        """Send a check to the first producer that may receive it; return whether there is one."""
        for producer in producers:
            request = self._check_request(message, half)
            budget.use()
            if not _refused(self._push(producer, request)):
                return True
        return False

    def _read(self, offset: int, budget: WorkBudget) -> StoredMessage | None:
        """Return a half message; forget it and return None if it was removed."""
        record = self._store.record(offset)
        if record is None:
            _log.error("the half message at commit log offset %d was removed", offset)
            self._forget(offset)
            return None
        budget.use(len(record))
        return messages.decode_message(record)

    def _check_request(self, message: StoredMessage, half: HalfMessage) -> RemotingCommand:
        settings = self._settings
        pairs = dict(message.property_map)
        pairs[properties.TRANSACTION_CHECK_TIMES] = str(half.checks)
        unique_id = pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID, "")
        real = replace(
            message,
            topic=pairs[properties.REAL_TOPIC],
            queue_id=int(pairs[properties.REAL_QUEUE_ID]),
            properties=properties.encode(pairs),
        )
        fields = {
            "topic": HALF_TOPIC,
            "commitLogOffset": str(message.commit_log_offset),
            "tranStateTableOffset": str(message.queue_offset),
            "offsetMsgId": str(OffsetMessageId(settings.host, settings.port, message.commit_log_offset)),
            "msgId": unique_id,
            "transactionId": unique_id,
            "bname": settings.name,
        }
        return commands.request(RequestCode.CHECK_TRANSACTION_STATE, fields, messages.encode_message(real), oneway=True)

    def _discard_unresolved(self, message: StoredMessage, now: int) -> None:
        pairs = dict(message.property_map)
        # In this topic it is neither a half message nor delayed.
        unresolved = replace(message, topic=UNCHECKED_TOPIC, queue_id=0)
        with self._store.transaction():
            self._pipeline.append(unresolved, pairs, now)
            self._table.delete(_key(message.commit_log_offset))
        del self._rows[message.commit_log_offset]


def _refused(reply: Reply | None) -> bool:
    """Return whether a push was refused, so that its client has not got it."""
    if reply is None or not reply.done() or reply.cancelled() or reply.exception() is not None:
        return False
    return reply.result().code == ResponseCode.NO_PERMISSION


def _key(commit_log_offset: int) -> bytes:
    return commit_log_offset.to_bytes(8, "big")
