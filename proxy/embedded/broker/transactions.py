"""Transactions: half messages, their end, and asking producers about those that do not end.

A half message is stored in a system topic, and has a row in the table of halves (key: commit log offset) until
it has been committed, rolled back, or asked about in vain too often. Unlike RocketMQ's it is not stored anew
with every check, so that its offsets, by which a producer ends it, stay what they were.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from proxy.core.channel import Channel
from proxy.embedded.broker import names
from proxy.embedded.broker.append_pipeline import AppendPipeline
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import Store
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.ids import OffsetMessageId
from remoting.messages import TRANSACTION_MASK, StoredMessage, SysFlag

_log = logging.getLogger("gantry.embedded")


@dataclass(slots=True)
class Half:
    """A half message that has not ended.

    born: when its producer sent it, immunity: how long after that it is not asked about (ms); `own` where the
    producer asked for that time. asked: how often it has been asked about, at: when it last was.
    """

    born: int
    immunity: int
    own: bool
    asked: int = 0
    at: int = 0

    def encode(self) -> bytes:
        return f"{self.born} {self.immunity} {int(self.own)} {self.asked} {self.at}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Half":
        born, immunity, own, asked, at = map(int, value.split())
        return cls(born, immunity, bool(own), asked, at)


class Transactions:
    """Half messages by commit log offset. `ask(group, command)` sends a check to a member of a producer group."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        intake: AppendPipeline,
        ask: Callable[[str, RemotingCommand], Channel | None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._intake = intake
        self._ask = ask
        self._table = store.table("halves")
        self._halves = {int.from_bytes(key, "big"): Half.decode(value) for key, value in self._table.items()}
        self._next_check = 0

    def __len__(self) -> int:
        return len(self._halves)

    def prepare(self, message: StoredMessage, pairs: dict[str, str], now: int) -> StoredMessage:
        """Store a half message."""
        if unique_id := pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID):
            pairs[properties.TRANSACTION_ID] = unique_id
        pairs[properties.REAL_TOPIC] = message.topic
        pairs[properties.REAL_QUEUE_ID] = str(message.queue_id)
        self._intake.check(message.topic, message.body)
        half = replace(
            message,
            topic=names.HALF_TOPIC,
            queue_id=0,
            # A delay begins with the commit: until then the message must not look as if it could be delayed.
            sys_flag=message.sys_flag & ~TRANSACTION_MASK | SysFlag.TRANSACTION_PREPARED,
        )
        row = self._new(message, pairs)
        with self._store.transaction():
            stored = self._intake.put(half, pairs, now)
            self._table.put(_key(stored.commit_log_offset), row.encode())
        # What is remembered here follows what has been written, never the other way round.
        self._halves[stored.commit_log_offset] = row
        return stored

    def _new(self, message: StoredMessage, pairs: Mapping[str, str]) -> Half:
        seconds = pairs.get(properties.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
        own = seconds.isdecimal()
        return Half(message.born_timestamp, 1000 * int(seconds) if own else self._settings.transaction_timeout, own)

    # The end.

    def find(self, offset: int) -> tuple[StoredMessage, bool] | None:
        """The half message at a commit log offset, and whether it has not ended; None: there is none."""
        record = self._store.record(offset)
        if record is None:
            return None
        message = messages.decode_message(record)
        return (message, offset in self._halves) if message.topic == names.HALF_TOPIC else None

    def immune(self, offset: int, now: int) -> bool:
        """Whether the producer may still end the message by itself: not after the time it asked for."""
        half = self._halves[offset]
        return not half.own or now - half.born <= half.immunity

    def commit(self, message: StoredMessage, now: int) -> StoredMessage:
        """Store a half message where it belongs."""
        pairs = dict(message.property_map)
        topic, queue_id = pairs.pop(properties.REAL_TOPIC), int(pairs.pop(properties.REAL_QUEUE_ID))
        final = replace(
            message,
            topic=topic,
            queue_id=queue_id,
            sys_flag=message.sys_flag & ~TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT,
            prepared_transaction_offset=message.commit_log_offset,
        )
        with self._store.transaction():
            stored = self._intake.put(final, pairs, now)
            self._table.delete(_key(message.commit_log_offset))
        del self._halves[message.commit_log_offset]
        return stored

    def roll_back(self, message: StoredMessage) -> None:
        """Forget a half message."""
        self._forget(message.commit_log_offset)

    def _forget(self, offset: int) -> None:
        self._table.delete(_key(offset))
        del self._halves[offset]

    # Checks.

    def tick(self, now: int) -> None:
        """Ask about half messages that should have ended."""
        if now < self._next_check:
            return
        self._next_check = now + self._settings.transaction_interval
        for offset, half in list(self._halves.items()):
            if now - half.born > half.immunity:
                self._check(offset, half, now)

    def _check(self, offset: int, half: Half, now: int) -> None:
        record = self._store.record(offset)
        if record is None:
            _log.error("the half message at commit log offset %d is gone", offset)
            self._forget(offset)
            return
        message = messages.decode_message(record)
        if half.asked >= self._settings.transaction_checks or now - half.born > self._settings.half_life:
            self._give_up(message, now)
            return
        half.asked, half.at = half.asked + 1, now
        self._table.put(_key(offset), half.encode())
        group = message.get(properties.PRODUCER_GROUP) or ""
        if self._ask(group, self._question(message, half)) is None:
            _log.info("nobody of producer group %s is there to be asked about a transaction", group)

    def _question(self, message: StoredMessage, half: Half) -> RemotingCommand:
        settings = self._settings
        pairs = dict(message.property_map)
        pairs[properties.TRANSACTION_CHECK_TIMES] = str(half.asked)
        unique_id = pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID, "")
        real = replace(
            message,
            topic=pairs[properties.REAL_TOPIC],
            queue_id=int(pairs[properties.REAL_QUEUE_ID]),
            properties=properties.encode(pairs),
        )
        fields = {
            "topic": names.HALF_TOPIC,
            "commitLogOffset": str(message.commit_log_offset),
            "tranStateTableOffset": str(message.queue_offset),
            "offsetMsgId": str(OffsetMessageId(settings.host, settings.port, message.commit_log_offset)),
            "msgId": unique_id,
            "transactionId": unique_id,
            "bname": settings.name,
        }
        return commands.request(RequestCode.CHECK_TRANSACTION_STATE, fields, messages.encode_message(real), oneway=True)

    def _give_up(self, message: StoredMessage, now: int) -> None:
        pairs = dict(message.property_map)
        # In its new place it must be neither a half message nor delayed.
        aside = replace(message, topic=names.UNCHECKED_TOPIC, queue_id=0)
        with self._store.transaction():
            self._intake.put(aside, pairs, now)
            self._table.delete(_key(message.commit_log_offset))
        del self._halves[message.commit_log_offset]


def _key(commit_log_offset: int) -> bytes:
    return commit_log_offset.to_bytes(8, "big")
