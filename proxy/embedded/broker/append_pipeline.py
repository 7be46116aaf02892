"""The way of a message into its queue: validation, delays, the storage and its notification.

A delayed message is stored in a system topic, as by RocketMQ's brokers, with its topic and queue in its properties, and
has a row in the table of timers: due time, commit log offset. At its due time it is stored again in its queue.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.broker.work_budget import WorkBudget
from proxy.embedded.store import Store
from remoting import messages, properties
from remoting.codes import ResponseCode
from remoting.errors import BodyError, RemotingError
from remoting.messages import MAX_PROPERTIES_LENGTH, TRANSACTION_MASK, StoredMessage, SysFlag
from remoting.names import MAX_RETRY_TOPIC_LENGTH, MAX_TOPIC_LENGTH, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC

_log = logging.getLogger("gantry.embedded")

_TIMERS = (properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS)
_NEVER_DELAYED = frozenset((int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK)))
# Maximum number of due messages that are stored in one transaction, and of transactions in one tick.
_MAX_BATCH = 256
_MAX_BATCHES = 4
# Milliseconds until timers are looked at again if none is stored, and if the due messages could not be stored.
_MAX_WAIT, _RETRY_WAIT = 3_600_000, 1000


class MessageIllegal(RemotingError):
    """A message cannot be stored."""

    code = ResponseCode.MESSAGE_ILLEGAL


class AppendPipeline:
    """Stores messages whose store host and body CRC are set. `on_appended` is called for each that is in its queue."""

    def __init__(self, settings: BrokerSettings, store: Store, on_appended: Callable[[StoredMessage], None]) -> None:
        self._settings = settings
        self._store = store
        self._on_appended = on_appended
        self._timers = store.table("timers")
        # Lower bound of the due times (ms).
        self._next_due = 0

    def append(self, message: StoredMessage, pairs: dict[str, str], now: int) -> StoredMessage:
        """Store a message with these properties, in its queue or until it is due; return the stored record.

        Raises MessageIllegal, and the store's errors.
        """
        self.check(message.topic, message.body)
        due = None
        if message.sys_flag & TRANSACTION_MASK not in _NEVER_DELAYED:
            message, due = self._delay(message, pairs, now)
        message = self._with_properties(message, pairs)
        if due is None:
            stored = self._store.append(message)
            self._on_appended(stored)
            return stored
        with self._store.transaction():
            stored = self._store.append(message)
            self._timers.put(_key(due, stored.commit_log_offset), _value(pairs))
        self._next_due = min(self._next_due, due)
        self._on_appended(stored)
        return stored

    def append_all(self, batch: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Store messages of one queue next to each other, all or none; batches are never delayed."""
        for message in batch:
            self.check(message.topic, message.body, message.properties)
        stored = self._store.append_all(batch)
        for message in stored:
            self._on_appended(message)
        return stored

    def check(self, topic: str, body: bytes, text: str = "") -> None:
        """Raise MessageIllegal for a message that exceeds the broker's limits."""
        # Only retry topics may be longer, as at brokers (HookUtils.checkBeforePutMessage). A dead letter topic may be
        # created with such a name (`names.check_topic`), but stores no message.
        maximum = MAX_RETRY_TOPIC_LENGTH if topic.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH
        size = len(topic) if topic.isascii() else len(topic.encode())
        if size > maximum:
            raise MessageIllegal(f"a topic of {size} bytes is longer than {maximum}")
        if len(body) > self._settings.max_message_size:
            raise MessageIllegal(
                f"a message body of {len(body)} bytes is larger than {self._settings.max_message_size}"
            )
        _check_properties(text)

    def _with_properties(self, message: StoredMessage, pairs: Mapping[str, str]) -> StoredMessage:
        try:
            text = properties.encode(pairs)
        except BodyError as error:
            raise MessageIllegal(str(error)) from None
        _check_properties(text)
        return message.updated(text)

    # Delays (RocketMQ's HookUtils.handleScheduleMessage).

    def _delay(self, message: StoredMessage, pairs: dict[str, str], now: int) -> tuple[StoredMessage, int | None]:
        level = int_or(pairs.get(properties.DELAY_TIME_LEVEL), 0)
        if level > 0:
            for key in _TIMERS:
                pairs.pop(key, None)
            return self._delayed_by_level(message, pairs, level, now)
        if properties.TIMER_OUT_MS in pairs or not any(key in pairs for key in _TIMERS):
            return message, None
        return self._delayed_by_time(message, pairs, now)

    def _delayed_by_level(
        self, message: StoredMessage, pairs: dict[str, str], level: int, now: int
    ) -> tuple[StoredMessage, int | None]:
        delays = self._settings.delay_ladder
        level = min(level, len(delays))
        pairs[properties.DELAY_TIME_LEVEL] = str(level)
        self._set_origin(message, pairs)
        return replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1), now + delays[level - 1]

    def _delayed_by_time(
        self, message: StoredMessage, pairs: dict[str, str], now: int
    ) -> tuple[StoredMessage, int | None]:
        try:
            due = due_time(pairs, now)
        except ValueError:
            raise MessageIllegal("the time of a timer message is not a number") from None
        if due <= now:
            if properties.TIMER_DEL_UNIQKEY in pairs:
                raise MessageIllegal("the time of a recall has passed")
            return message, None
        if due - now > self._settings.max_delay:
            raise MessageIllegal(f"a timer message is delayed by more than {self._settings.max_delay} ms")
        pairs[properties.TIMER_OUT_MS] = str(self._rounded(due))
        self._set_origin(message, pairs)
        return replace(message, topic=TIMER_TOPIC, queue_id=0), due

    def _rounded(self, due: int) -> int:
        precision = self._settings.timer_precision
        return (due - 1) // precision * precision

    @staticmethod
    def _set_origin(message: StoredMessage, pairs: dict[str, str]) -> None:
        pairs[properties.REAL_TOPIC] = message.topic
        pairs[properties.REAL_QUEUE_ID] = str(message.queue_id)

    def recall(self, topic: str, unique_id: str, rounded: int) -> bool:
        """Remove a delayed message whose TIMER_OUT_MS is `rounded`; return whether there was one."""
        identity = f"{topic}\0{unique_id}".encode()
        end = _key(rounded + 2 * self._settings.timer_precision, 0)
        for key, value in self._timers.items(_key(rounded, 0)):
            if key >= end:
                return False
            if value == identity:
                self._timers.delete(key)
                return True
        return False

    def tick(self, now: int, budget: WorkBudget) -> None:
        """Store due messages in their queues; of many, some remain for the next tick."""
        for _ in range(_MAX_BATCHES):
            if now < self._next_due or budget.exhausted:
                return
            due, self._next_due = self._due(now)
            if due:
                self._store_due(due, now, budget)

    def _due(self, now: int) -> tuple[list[bytes], int]:
        """Return the rows of the next batch of due messages, and the time (ms) at which the batch after it is due."""
        due: list[bytes] = []
        for key, _ in self._timers.items():  # noqa: PERF102  # a table, not a dict
            time = _due_time_of(key)
            if time > now or len(due) == _MAX_BATCH:
                return due, time
            due.append(key)
        return due, now + _MAX_WAIT

    def _store_due(self, due: Sequence[bytes], now: int, budget: WorkBudget) -> None:
        """Store due messages in one transaction; the budget may leave some of them due."""
        # Unless they are stored, as while the disk is full.
        next_due, self._next_due = self._next_due, now + _RETRY_WAIT
        stored = []
        with self._store.transaction():
            for key in due:
                if budget.exhausted:
                    next_due = _due_time_of(key)
                    break
                message = self._due_message(key, budget)
                self._timers.delete(key)
                if message is not None:
                    stored.append(self._store.append(message))
        self._next_due = next_due
        for message in stored:
            self._on_appended(message)

    def _due_message(self, key: bytes, budget: WorkBudget) -> StoredMessage | None:
        """Return a due message for its queue; None for one that cannot be restored."""
        offset = int.from_bytes(key[8:], "big")
        record = self._store.record(offset)
        budget.use(0 if record is None else len(record))
        if record is None:
            _log.error("a delayed message at commit log offset %d was removed", offset)
            return None
        try:
            return self._restored(messages.decode_message(record))
        except (RemotingError, KeyError, ValueError):
            # The other messages must still be stored.
            _log.exception("a delayed message at commit log offset %d is invalid", offset)
            return None

    def _restored(self, message: StoredMessage) -> StoredMessage:
        pairs = message.property_map
        topic, queue_id = pairs[properties.REAL_TOPIC], int(pairs[properties.REAL_QUEUE_ID])
        # The properties of the delay are kept, as by RocketMQ.
        return replace(message, topic=topic, queue_id=queue_id)

    @property
    def delayed(self) -> int:
        """Number of messages that are not due yet."""
        return len(self._timers)


def due_time(pairs: Mapping[str, str], now: int) -> int:
    """Return the due time of a timer message in ms since 1970. Raises ValueError."""
    if (seconds := pairs.get(properties.TIMER_DELAY_SEC)) is not None:
        return now + 1000 * int(seconds)
    if (delay := pairs.get(properties.TIMER_DELAY_MS)) is not None:
        return now + int(delay)
    return int(pairs[properties.TIMER_DELIVER_MS])


def int_or(text: str | None, default: int) -> int:
    """Return a text as an integer, or the default if it is none."""
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def _check_properties(text: str) -> None:
    # A character takes at most four bytes.
    if len(text) > MAX_PROPERTIES_LENGTH // 4 and len(text.encode()) > MAX_PROPERTIES_LENGTH:
        raise MessageIllegal(f"message properties are longer than {MAX_PROPERTIES_LENGTH} bytes")


def _key(due: int, commit_log_offset: int) -> bytes:
    return max(due, 0).to_bytes(8, "big") + commit_log_offset.to_bytes(8, "big")


def _due_time_of(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def _value(pairs: Mapping[str, str]) -> bytes:
    unique_id = pairs.get(properties.UNIQ_CLIENT_MESSAGE_ID, "")
    return f"{pairs[properties.REAL_TOPIC]}\0{unique_id}".encode()
