"""Intake: what happens to a message on its way into a queue: checks, delays, the notice that it is there.

A message that is to wait is stored in a system topic, as brokers do, with its real topic and queue in its
properties, and a row in the table of timers: time due, commit log offset. When its time has come it is stored
again where it belongs.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from proxy.embedded.broker import names
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import Store
from remoting import messages, properties
from remoting.codes import ResponseCode
from remoting.errors import BodyError, RemotingError
from remoting.messages import TRANSACTION_MASK, StoredMessage, SysFlag
from remoting.names import RETRY_PREFIX

_log = logging.getLogger("gantry.embedded")

_TIMERS = (properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS)
_LONGEST_PROPERTIES = 0x7FFF
_LONGEST_TOPIC = 127
_LONGEST_RETRY_TOPIC = 255
_WAITING = frozenset((int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK)))
# Messages that become due together and are stored in one go.
_BATCH = 256


class MessageIllegal(RemotingError):
    """A message that cannot be stored."""

    code = ResponseCode.MESSAGE_ILLEGAL


class AppendPipeline:
    """Stores messages, which say their own store host and body CRC. `arrived` is told of each that is in its queue."""

    def __init__(self, settings: BrokerSettings, store: Store, arrived: Callable[[StoredMessage], None]) -> None:
        self._settings = settings
        self._store = store
        self._arrived = arrived
        self._timers = store.table("timers")
        # When the next timer is due, at the earliest.
        self._due = 0

    def put(self, message: StoredMessage, pairs: dict[str, str], now: int) -> StoredMessage:
        """Store a message with these properties, now or when it is due; the record as it is stored now.

        Raises MessageIllegal, and what the store raises.
        """
        self.check(message.topic, message.body)
        due = None
        if message.sys_flag & TRANSACTION_MASK not in _WAITING:
            message, due = self._delayed(message, pairs, now)
        message = self._finished(message, pairs)
        if due is None:
            stored = self._store.append(message)
            self._arrived(stored)
            return stored
        with self._store.transaction():
            stored = self._store.append(message)
            self._timers.put(_key(due, stored.commit_log_offset), _value(pairs))
        self._due = min(self._due, due)
        self._arrived(stored)
        return stored

    def put_all(self, batch: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Store messages of one queue one after the other, all or none; batches are never delayed."""
        for message in batch:
            self.check(message.topic, message.body, message.properties)
        stored = self._store.append_all(batch)
        for message in stored:
            self._arrived(message)
        return stored

    def check(self, topic: str, body: bytes, text: str = "") -> None:
        """Raise MessageIllegal for what is beyond a broker's limits."""
        longest = _LONGEST_RETRY_TOPIC if topic.startswith(RETRY_PREFIX) else _LONGEST_TOPIC
        size = len(topic) if topic.isascii() else len(topic.encode())
        if size > longest:
            raise MessageIllegal(f"a topic of {size} bytes is longer than {longest}")
        if len(body) > self._settings.max_message_size:
            raise MessageIllegal(
                f"a message body of {len(body)} bytes is larger than {self._settings.max_message_size}"
            )
        if len(text) > _LONGEST_PROPERTIES // 4 and len(text.encode()) > _LONGEST_PROPERTIES:
            raise MessageIllegal(f"message properties are longer than {_LONGEST_PROPERTIES} bytes")

    def _finished(self, message: StoredMessage, pairs: Mapping[str, str]) -> StoredMessage:
        try:
            text = properties.encode(pairs)
        except BodyError as error:
            raise MessageIllegal(str(error)) from None
        if len(text) > _LONGEST_PROPERTIES // 4 and len(text.encode()) > _LONGEST_PROPERTIES:
            raise MessageIllegal(f"message properties are longer than {_LONGEST_PROPERTIES} bytes")
        return message.updated(text)

    # Delays (RocketMQ's HookUtils.handleScheduleMessage).

    def _delayed(self, message: StoredMessage, pairs: dict[str, str], now: int) -> tuple[StoredMessage, int | None]:
        level = whole(pairs.get(properties.DELAY_TIME_LEVEL), 0)
        if level > 0:
            for key in _TIMERS:
                pairs.pop(key, None)
            return self._levelled(message, pairs, level, now)
        if properties.TIMER_OUT_MS in pairs or not any(key in pairs for key in _TIMERS):
            return message, None
        return self._timed(message, pairs, now)

    def _levelled(
        self, message: StoredMessage, pairs: dict[str, str], level: int, now: int
    ) -> tuple[StoredMessage, int | None]:
        ladder = self._settings.delay_ladder
        level = min(level, len(ladder))
        pairs[properties.DELAY_TIME_LEVEL] = str(level)
        self._note_origin(message, pairs)
        return replace(message, topic=names.SCHEDULE_TOPIC, queue_id=level - 1), now + ladder[level - 1]

    def _timed(self, message: StoredMessage, pairs: dict[str, str], now: int) -> tuple[StoredMessage, int | None]:
        try:
            due = due_time(pairs, now)
        except ValueError:
            raise MessageIllegal("the time of a timer message is not a number") from None
        if due <= now:
            if properties.TIMER_DEL_UNIQKEY in pairs:
                raise MessageIllegal("the time of a recall has passed")
            return message, None
        if due - now > self._settings.longest_delay:
            raise MessageIllegal(f"a timer message is delayed by more than {self._settings.longest_delay} ms")
        pairs[properties.TIMER_OUT_MS] = str(self._rounded(due))
        self._note_origin(message, pairs)
        return replace(message, topic=names.TIMER_TOPIC, queue_id=0), due

    def _rounded(self, due: int) -> int:
        precision = self._settings.timer_precision
        return (due - 1) // precision * precision

    @staticmethod
    def _note_origin(message: StoredMessage, pairs: dict[str, str]) -> None:
        pairs[properties.REAL_TOPIC] = message.topic
        pairs[properties.REAL_QUEUE_ID] = str(message.queue_id)

    def recall(self, topic: str, unique_id: str, rounded: int) -> bool:
        """Take back a message that waits; `rounded` is its TIMER_OUT_MS. False: there is none."""
        wanted = f"{topic}\0{unique_id}".encode()
        end = _key(rounded + 2 * self._settings.timer_precision, 0)
        for key, value in self._timers.items(_key(rounded, 0)):
            if key >= end:
                return False
            if value == wanted:
                self._timers.delete(key)
                return True
        return False

    def tick(self, now: int) -> None:
        """Store what is due where it belongs."""
        while now >= self._due:
            due: list[tuple[bytes, int]] = []
            self._due = now + 3_600_000
            for key, _ in self._timers.items():  # noqa: PERF102  # a table, not a dict
                time = int.from_bytes(key[:8], "big")
                if time > now or len(due) == _BATCH:
                    self._due = time
                    break
                due.append((key, int.from_bytes(key[8:], "big")))
            if not due:
                return
            stored = []
            with self._store.transaction():
                for key, offset in due:
                    self._timers.delete(key)
                    record = self._store.record(offset)
                    if record is None:
                        _log.error("a delayed message at commit log offset %d is gone", offset)
                        continue
                    stored.append(self._store.append(self._restored(messages.decode_message(record))))
            for message in stored:
                self._arrived(message)

    def _restored(self, message: StoredMessage) -> StoredMessage:
        pairs = message.property_map
        topic, queue_id = pairs[properties.REAL_TOPIC], int(pairs[properties.REAL_QUEUE_ID])
        # What it has been through stays to be seen, as with RocketMQ.
        return replace(message, topic=topic, queue_id=queue_id)

    @property
    def waiting(self) -> int:
        """How many messages wait for their time."""
        return len(self._timers)


def due_time(pairs: Mapping[str, str], now: int) -> int:
    """When a timer message is due, in milliseconds since 1970. Raises ValueError."""
    if (seconds := pairs.get(properties.TIMER_DELAY_SEC)) is not None:
        return now + 1000 * int(seconds)
    if (delay := pairs.get(properties.TIMER_DELAY_MS)) is not None:
        return now + int(delay)
    return int(pairs[properties.TIMER_DELIVER_MS])


def whole(text: str | None, default: int) -> int:
    """A whole number, or the default for what is none."""
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def _key(due: int, commit_log_offset: int) -> bytes:
    return max(due, 0).to_bytes(8, "big") + commit_log_offset.to_bytes(8, "big")


def _value(pairs: Mapping[str, str]) -> bytes:
    unique_id = pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID, "")
    return f"{pairs[properties.REAL_TOPIC]}\0{unique_id}".encode()
