"""A survey of all consumer groups that the brokers hold: members, lag, retry backlog and dead letters.

The brokers are asked for the progress of every group at an interval, with few requests at a time, so that metrics, the
API and the page have the state of groups that nobody looks at.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from zlib import crc32

from proxy.core.client_registry import Role
from proxy.core.handlers.groups import consumer_list
from proxy.operations import broker_requests, operator_channel
from proxy.operations.broker_requests import BrokerRefused
from proxy.operations.groups import known_groups
from proxy.operations.groups.dead_letter_count import DeadLetterCount
from proxy.operations.groups.offset_table import QueueKey, QueueOffsets, offset_table, progress
from proxy.operations.groups.silence import Silence
from proxy.operations.messages import stored_messages
from proxy.operations.replica import Replica
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError, ServiceUnavailable
from remoting.fastjson import load_object
from remoting.names import DLQ_PREFIX, RETRY_PREFIX, dead_letter_topic
from remoting.tasks import every

_log = logging.getLogger("gantry.admin")

# Concurrent requests of a survey.
_MAX_CONCURRENT = 8
# Seconds that the first waiting message may have waited before its group counts as lagging.
LAGGING_SECONDS = 60.0
# Seconds after which a queue with waiting messages, of which none is consumed, is stuck.
STUCK_SECONDS = 120.0
# Response codes of brokers without the topic or group.
_ABSENT = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
# Surveys of which one asks for the members of a group that was offline: a request for each group at each survey.
_OFFLINE_ROUNDS = 4
# Seconds for which metrics keep the last complete status of a group.
KEPT_SECONDS = 3600.0
# A group fails if more messages wait for their redelivery than it consumes in this many seconds, and more than a few.
_FAILING_SECONDS = 60.0
_FEW_RETRIES = 10
# Shortest time of a rate: clients commit their offsets every five seconds.
_MIN_RATE_SECONDS = 5.0


class GroupState(StrEnum):
    """The state of a consumer group, the first that applies.

    offline: it has no members. stuck: a queue has had waiting messages for two minutes and none was consumed. lagging:
    a message has waited for more than a minute.
    """

    OFFLINE = "offline"
    STUCK = "stuck"
    LAGGING = "lagging"
    ONLINE = "online"


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Lag of a group in one topic. seconds: age of the oldest waiting message."""

    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of one group.

    At the brokers that answered: lag by topic, without retry topics; known_retry_backlog: waiting messages in its retry
    topics; known_dead_letters: messages in its dead letter queue. last_consumed: store time of the last consumed
    message in ms since 1970; 0: unknown. rate: consumed messages per second since the survey before; None in the first
    one.
    unanswered: brokers without a reply. Then sums over brokers are None, and a state that they could change.
    """

    name: str
    state: GroupState | None
    members: int
    lag: dict[str, TopicLag]
    known_retry_backlog: int
    known_dead_letters: int
    last_consumed: int
    rate: float | None
    unanswered: list[str]

    @property
    def urgency(self) -> int:
        """How much it needs attention; 0: it does not.

        3: stuck; 2: lagging; 1: dead letters, messages that wait for members, or failing. As far as it is known: a
        broker that does not answer is no reason of its own, as it would be one for every group.
        """
        if self.state is GroupState.STUCK:
            return 3
        if self.state is GroupState.LAGGING:
            return 2
        waits = not self.members and bool(self._known_lag_messages or self.known_retry_backlog)
        return 1 if self.known_dead_letters or waits or self.failing else 0

    @property
    def failing(self) -> bool:
        """Whether many of its messages fail: their first dead letters come hours later, after all redeliveries."""
        if self.rate is None:
            return False
        return self.known_retry_backlog > max(_FEW_RETRIES, self.rate * _FAILING_SECONDS)

    @property
    def retry_backlog(self) -> int | None:
        """Waiting messages in its retry topics; None if a broker did not answer."""
        return None if self.unanswered else self.known_retry_backlog

    @property
    def dead_letters(self) -> int | None:
        """Messages in its dead letter queue; None if a broker did not answer."""
        return None if self.unanswered else self.known_dead_letters

    @property
    def lag_messages(self) -> int | None:
        """Waiting messages in all topics; None if a broker did not answer."""
        return None if self.unanswered else self._known_lag_messages

    @property
    def _known_lag_messages(self) -> int:
        return sum(topic.messages for topic in self.lag.values())

    @property
    def lag_seconds(self) -> float | None:
        """Age of the oldest waiting message; None if a broker did not answer."""
        return None if self.unanswered else self.known_lag_seconds

    @property
    def known_lag_seconds(self) -> float:
        """Age of the oldest message that waits at the brokers that answered."""
        return max((topic.seconds for topic in self.lag.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue of a group between surveys.

    waiting_since: monotonic time since which it has had waiting messages and consumed none. waiting_from: store time of
    the message at the group's offset, in ms since 1970.
    """

    consumed: int
    waiting_since: float
    waiting_from: int | None = None


@dataclass(frozen=True, slots=True)
class _History:
    """A group at a survey. consumed_at: monotonic time of it; consumed: sum of offsets then; rate: of its status.

    consumed is None as long as a broker has not answered.
    """

    consumed_at: float
    consumed: int | None
    rate: float | None
    queues: dict[QueueKey, _Queue]


@dataclass(frozen=True, slots=True)
class _Round:
    """One survey, or look. number: of the survey; None: a look. dead_letter_ends: see `DeadLetterCount`."""

    number: int | None
    silence: Silence
    dead_letter_queues: set[str]
    dead_letter_ends: dict[tuple[str, str], int]


class GroupSurvey:
    """The latest status of each group.

    interval: seconds between surveys; 0: only on request. max_groups: groups of one survey, the first by name.
    """

    def __init__(self, replica: Replica, interval: float, max_groups: int) -> None:
        self._replica = replica
        self._interval = interval
        self._max_groups = max_groups
        self._histories: dict[str, _History] = {}
        self._limit = asyncio.Semaphore(_MAX_CONCURRENT)
        self._lock = asyncio.Lock()
        self._taken_at = float("-inf")
        self._surveys = 0
        # Status by group, the names of the groups beyond `max_groups`, and the seconds that the last survey took.
        self.latest: dict[str, GroupStatus] = {}
        self.left_out: list[str] = []
        self.dead_letters = DeadLetterCount()
        # The silent brokers: those that the last survey asked no further.
        self.silent: list[str] = []
        # The last status of each group for which all brokers answered, and its monotonic time.
        self._complete: dict[str, tuple[GroupStatus, float]] = {}
        self.seconds = 0.0

    @property
    def taken(self) -> bool:
        """Whether a survey has succeeded."""
        return self._taken_at > float("-inf")

    def complete(self, group: str) -> GroupStatus | None:
        """Return the last status of a group for which all brokers answered; None if it is older than KEPT_SECONDS."""
        status, taken_at = self._complete.get(group, (None, 0.0))
        return status if time.monotonic() - taken_at <= KEPT_SECONDS else None

    async def run(self) -> None:
        """Take surveys until cancelled."""
        if self._interval:
            await every(self._interval, self._survey, name="survey of consumer groups")

    async def _survey(self) -> None:
        try:
            await self.refresh(0.0)
        except RemotingError as error:
            _log.debug("no survey of consumer groups: %s", error)

    async def refresh(self, max_age: float) -> dict[str, GroupStatus]:
        """Return the status of all groups, at most `max_age` seconds old. Raises RemotingError."""
        # Without waiting for the end of a survey: that of many groups takes long.
        if time.monotonic() - self._taken_at <= max_age:
            return self.latest
        async with self._lock:
            if time.monotonic() - self._taken_at > max_age:
                start = time.monotonic()
                try:
                    self.latest = await self._take()
                except RemotingError as error:
                    self.latest = {name: _unknown(status, str(error)) for name, status in self.latest.items()}
                    raise
                self._taken_at = time.monotonic()
                self.seconds = self._taken_at - start
        return self.latest

    async def look(self, group: str) -> GroupStatus:
        """Return the status of one group now, compared with the last survey. Raises RemotingError.

        A look changes no reference: otherwise the rate would depend on the number of readers. Without surveys, the
        first look is the reference.
        """
        silence = Silence()
        status, history = await self._status(group, _Round(None, silence, await self._dead_letter_queues(silence), {}))
        reference = self._histories.get(group)
        if not self._interval and (reference is None or reference.consumed is None):
            self._histories[group] = history
        return status

    async def _take(self) -> dict[str, GroupStatus]:
        known, unanswered = await known_groups.consumer_groups(self._replica)
        silence = Silence()
        silence.give_up(unanswered)
        if unanswered and not self.taken and len(unanswered) == len(await self._replica.core.backend.brokers()):
            self._report_silent(silence)
            raise ServiceUnavailable(f"no answer from {', '.join(unanswered)}")
        # Groups of a broker that does not answer now are not gone.
        formerly_left_out = self.left_out
        names = self._within_limit(known.union(self.latest, self.left_out) if unanswered else known)
        self._surveys += 1
        current = _Round(self._surveys, silence, await self._dead_letter_queues(silence), {})
        # A few tasks at a time, for any number of groups.
        rest = iter(names)
        found: dict[str, GroupStatus] = {}
        histories: dict[str, _History] = {}

        async def work() -> None:
            for name in rest:
                found[name], history = await self._status(name, current)
                histories[name] = history

        await asyncio.gather(*(work() for _ in range(_MAX_CONCURRENT)))
        self._histories = histories
        self._report_silent(silence)
        answered = set(await self._replica.core.backend.brokers()) - silence.found
        old = {dead_letter_topic(group) for group in formerly_left_out}
        self.dead_letters.update(current.dead_letter_ends, current.dead_letter_queues, old, answered)
        now = time.monotonic()
        self._complete = {
            name: (status, now) if not status.unanswered else self._complete[name]
            for name, status in found.items()
            if not status.unanswered or name in self._complete
        }
        return dict(sorted(found.items()))

    def _report_silent(self, silence: Silence) -> None:
        silent = sorted(silence.given_up)
        if silent != self.silent:
            _log.warning("brokers that do not answer the survey of consumer groups: %s", ", ".join(silent) or "none")
        self.silent = silent

    def _within_limit(self, known: set[str]) -> list[str]:
        """Return the groups to survey, and keep the names of the others."""
        names = sorted(known)
        left_out = names[self._max_groups :]
        if len(left_out) != len(self.left_out):
            _log.warning(
                "%d of %d consumer groups are not surveyed: admin.survey_groups is %d",
                len(left_out),
                len(names),
                self._max_groups,
            )
        self.left_out = left_out
        return names[: self._max_groups]

    async def _dead_letter_queues(self, silence: Silence) -> set[str]:
        """Return the dead letter topics that exist. Brokers without a reply are asked no further.

        A request for another topic could create it.
        """
        bodies, silent = await known_groups.table_bodies(self._replica, RequestCode.GET_ALL_TOPIC_CONFIG)
        topics = (topic for body in bodies for topic in load_object(body).get("topicConfigTable") or ())
        silence.give_up(silent)
        return {topic for topic in topics if topic.startswith(DLQ_PREFIX)}

    async def _status(self, group: str, current: _Round) -> tuple[GroupStatus, _History]:
        """Return the status of a group, and the history that the next survey compares with."""
        silence = current.silence
        brokers = sorted(await self._replica.core.backend.brokers())
        asked = [broker for broker in brokers if broker not in silence.given_up]
        rows, failed = await self._progress(group, asked, silence)
        former = self._histories.get(group)
        consumed = sum(row.consumed for row in rows)
        stays_offline = former is not None and former.consumed == consumed and self._may_skip(group, current)
        members = await self._members(group, ask=bool(asked) and not stays_offline)
        dead_letters = 0
        if dead_letter_topic(group) in current.dead_letter_queues:
            dead_letters, failed_too = await self._stored(dead_letter_topic(group), asked, current)
            failed = failed | failed_too
        unanswered = [broker for broker in brokers if broker not in asked or broker in failed]
        now = time.monotonic()
        own = [row for row in rows if not row.key.topic.startswith(RETRY_PREFIX)]
        retry_backlog = sum(row.lag for row in rows if row.key.topic.startswith(RETRY_PREFIX))
        lag, queues = await self._lag(own, {} if former is None else former.queues, now, silence)
        rate = _rate(former, consumed, now, surveyed=self._interval > 0)
        status = GroupStatus(
            name=group,
            state=GroupState.ONLINE,
            members=members,
            lag=lag,
            known_retry_backlog=retry_backlog,
            known_dead_letters=dead_letters,
            last_consumed=max((row.consumed_until for row in rows), default=0),
            rate=None if unanswered else rate,
            unanswered=unanswered,
        )
        status = _with_state(status, queues.values(), now)
        if not unanswered:
            return status, _History(now, consumed, rate, queues)
        if former is None:
            former = _History(now, None, None, {})
        unknown = {key: queue for key, queue in former.queues.items() if key.broker in unanswered}
        # A sum without a broker is no reference: its return would look like consumption.
        return status, replace(former, queues=queues | unknown)

    def _may_skip(self, group: str, current: _Round) -> bool:
        """Return whether a survey may take a group that was offline for one that still is, if it consumes nothing."""
        if current.number is None or not self._interval or self._replica.registry.members(Role.CONSUMER, group):
            return False
        status = self.latest.get(group)
        if status is None or status.state is not GroupState.OFFLINE:
            return False
        return (current.number + crc32(group.encode())) % _OFFLINE_ROUNDS != 0

    async def _progress(
        self, group: str, brokers: Sequence[str], silence: Silence
    ) -> tuple[list[QueueOffsets], set[str]]:
        """Return the group's queues, and the brokers without a reply."""
        rows: list[QueueOffsets] = []
        failed = set()
        for broker in brokers:
            try:
                async with self._limit:
                    reply = await broker_requests.ask(
                        self._replica.core, broker, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group}
                    )
                rows += progress(reply.body)
            except RemotingError as error:
                if not _is_absent(error):
                    failed.add(broker)
                    silence.add(broker, error)
        return rows, failed

    async def _members(self, group: str, ask: bool) -> int:
        """Return the number of members, here and elsewhere. ask: whether a broker may answer."""
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        if not ask:
            return len(self._replica.registry.members(Role.CONSUMER, group))
        try:
            async with self._limit:
                reply = await operator_channel.handle(self._replica.core, consumer_list, code, {"consumerGroup": group})
        except (RemotingError, TimeoutError):
            return len(self._replica.registry.members(Role.CONSUMER, group))
        return len(load_object(reply.body).get("consumerIdList") or ()) if reply.code == 0 else 0

    async def _stored(self, topic: str, brokers: Sequence[str], current: _Round) -> tuple[int, set[str]]:
        """Return the number of messages that are stored in a topic, and the brokers without a reply."""
        count = 0
        failed = set()
        for broker in brokers:
            try:
                async with self._limit:
                    reply = await broker_requests.ask(
                        self._replica.core, broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}
                    )
            except RemotingError as error:
                if not _is_absent(error):
                    failed.add(broker)
                    current.silence.add(broker, error)
                continue
            end = 0
            for _, row in offset_table(reply.body):
                end += int(row.get("maxOffset", 0))
                count += max(int(row.get("maxOffset", 0)) - int(row.get("minOffset", 0)), 0)
            current.dead_letter_ends[topic, broker] = end
        return count, failed

    async def _lag(
        self, rows: Iterable[QueueOffsets], former_queues: dict[QueueKey, _Queue], now: float, silence: Silence
    ) -> tuple[dict[str, TopicLag], dict[QueueKey, _Queue]]:
        """Return the lag by topic, and the queues with waiting messages. former_queues: those of the last survey."""
        lag: dict[str, TopicLag] = {}
        queues: dict[QueueKey, _Queue] = {}
        for row in rows:
            seconds = 0.0
            if row.lag:
                queue = former_queues.get(row.key)
                if queue is None or queue.consumed != row.consumed:
                    queue = _Queue(row.consumed, now)
                if queue.waiting_from is None and row.key.broker not in silence.given_up:
                    queue = replace(queue, waiting_from=await self._stored_at(row, silence))
                queues[row.key] = queue
                if queue.waiting_from is not None:
                    seconds = max(time.time() - queue.waiting_from / 1000, 0.0)
            former = lag.get(row.key.topic, TopicLag(0, 0.0))
            lag[row.key.topic] = TopicLag(former.messages + row.lag, max(former.seconds, round(seconds, 3)))
        return lag, queues

    async def _stored_at(self, row: QueueOffsets, silence: Silence) -> int | None:
        """Return the store time of the group's next message in ms since 1970; None if it is not readable."""
        topic, broker, queue = row.key
        try:
            async with self._limit:
                found = await stored_messages.pull(self._replica, broker, topic, queue, row.consumed, 1)
        except RemotingError as error:
            silence.add(broker, error)
            return None
        return found[0].store_timestamp if found else None


def _rate(former: _History | None, consumed: int, now: float, *, surveyed: bool) -> float | None:
    """Return the messages per second since the former survey; of a survey just taken, its rate.

    surveyed: whether surveys follow, so that an unknown rate becomes known.
    """
    if former is None or former.consumed is None or now <= former.consumed_at:
        return None
    elapsed = now - former.consumed_at
    if elapsed < _MIN_RATE_SECONDS and (surveyed or former.rate is not None):
        return former.rate
    return round(max(consumed - former.consumed, 0) / elapsed, 3)


def _is_absent(error: RemotingError) -> bool:
    """Return whether a broker replied that it does not have the topic or group."""
    return isinstance(error, BrokerRefused) and error.answer in _ABSENT


def _unknown(status: GroupStatus, reason: str) -> GroupStatus:
    """Return the status of a group when no broker can be asked."""
    return replace(status, state=None, rate=None, unanswered=[reason])


def _with_state(status: GroupStatus, queues: Iterable[_Queue], now: float) -> GroupStatus:
    state: GroupState | None = GroupState.ONLINE
    if not status.members:
        # Its members may be known to the brokers that did not answer.
        state = None if status.unanswered else GroupState.OFFLINE
    elif any(now - queue.waiting_since >= STUCK_SECONDS for queue in queues):
        state = GroupState.STUCK
    elif status.known_lag_seconds > LAGGING_SECONDS:
        state = GroupState.LAGGING
    elif status.unanswered:
        state = None
    return replace(status, state=state)
