"""The broker: its tables and queues, the entry for requests, and the entry for the passing of time.

    handle(channel, command, now) -> future of the response, or None without a response
    tick(now)

Sans-io except for the futures of responses: no clock, no socket, no task. Requests to clients go through `push`.
"""

import asyncio
import heapq
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.embedded.broker.append_pipeline import AppendPipeline
from proxy.embedded.broker.creations import Creations
from proxy.embedded.broker.errors import code_of, fields_of
from proxy.embedded.broker.fifo_locks import FifoLocks
from proxy.embedded.broker.group_notices import GroupNotices
from proxy.embedded.broker.groups import Groups
from proxy.embedded.broker.lock_table import QueueLocks
from proxy.embedded.broker.long_polls import LongPoll, LongPolls
from proxy.embedded.broker.members import Members
from proxy.embedded.broker.offsets import Offsets
from proxy.embedded.broker.poll_waking import ANY_QUEUE, PollWaking
from proxy.embedded.broker.pop_checkpoints import Checkpoints
from proxy.embedded.broker.poppers import PopKey
from proxy.embedded.broker.request import Answer, Request, java_bool
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.broker.source_share import has_place, source_of_client
from proxy.embedded.broker.statistics import Statistics
from proxy.embedded.broker.topics import Topics
from proxy.embedded.broker.transactions import Transactions
from proxy.embedded.broker.user_table import Users
from proxy.embedded.broker.work_budget import WorkBudget
from proxy.embedded.store import StorageError, Store
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, UnsupportedRequest
from remoting.messages import StoredMessage, encoded_size
from remoting.outcomes import Reply, copy_outcome
from remoting.tasks import isolated

_log = logging.getLogger("gantry.embedded")

# Milliseconds between searches for members without heartbeats.
_SWEEP_INTERVAL = 10_000
# Minimum number of outdated times of FIFO locks before the times are rebuilt.
_MIN_OUTDATED_UNLOCKS = 1024

# Serves the requests of one code.
Handler = Callable[["Broker", Request], Answer]
# Runs at each tick, with the time in ms, and a budget of its own.
Routine = Callable[["Broker", int, WorkBudget], None]


class Broker:
    """One broker over one store. `handlers` serve requests by code, `routines` run at each tick.

    close_silent: closes the connection of a client whose heartbeats have stopped. clock: returns seconds, from which
    the broker sees how long its work takes.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        push: Push,
        handlers: Mapping[int, Handler],
        routines: tuple[Routine, ...],
        clock: Callable[[], float],
        close_silent: Callable[[Channel], None] = lambda channel: None,
        now: int = 0,
    ) -> None:
        self.settings = settings
        self.store = store
        self.push = push
        self.now = self.started = now
        self.random = random.Random()  # noqa: S311  # chooses queues
        self.trace_switch = java_bool(settings.trace)
        self.creations = Creations(settings)
        # The client of the request in progress, which may create topics and groups.
        self._requester: Channel | None = None
        self.topics = Topics(settings, store, self.admit_topic)
        self.groups = Groups(settings, store, self._admit_group)
        self.offsets = Offsets(store, settings.max_offsets)
        self.request_modes = store.table("modes")
        self.kv_config = store.table("kv")
        # Whether routes permit writing; tools may change it, until a restart.
        self.listed_writable = True
        self.users = Users(store.table("users"), store.table("acls"))
        self.members = Members()
        self._notices = GroupNotices(self._send_notices)
        self.locks = QueueLocks(settings.lock_timeout, settings.max_locks)
        self.pipeline = AppendPipeline(settings, store, self.message_appended)
        self.transactions = Transactions(settings, store, self.pipeline, self.members.producers_in_turn, push)
        self.checkpoints = Checkpoints(store)
        self.fifo_locks = FifoLocks(store)
        self._handlers = handlers
        self._routines = routines
        self._clock = clock
        self._close_silent = close_silent
        self._loop = asyncio.get_running_loop()
        self.waking = PollWaking(self._resume, clock, self._loop.call_soon)
        self.waiting_pulls, self.waiting_pops = self.waking.pulls, self.waking.pops
        self.waiting_notifications = self.waking.notifications
        self._unlocks = [(at, key) for at, key in self.fifo_locks.locked(now)]
        heapq.heapify(self._unlocks)
        self._next_sweep = now + _SWEEP_INTERVAL
        # Channels that are still to be searched for silent members, each of which may be in a thousand groups.
        self._unswept: list[Channel] = []
        self.statistics = Statistics(settings.cluster, now)
        # Called with the protocol of the request, the group and the original topic of each dead letter.
        self.on_dead_letter: Callable[[str, str, str], None] = lambda protocol, group, topic: None

    # Requests.

    def handle(self, channel: Channel | None, command: RemotingCommand, now: int) -> Reply | None:
        """Serve a request of a client (None: of this process itself)."""
        self.now, self._requester = now, channel
        answer = self._serve(self._handlers.get(command.code, _unsupported), Request(channel, command, now))
        self._requester = None
        self.waking.run()
        if answer is None or isinstance(answer, asyncio.Future):
            return answer
        reply = self.future()
        reply.set_result(answer)
        return reply

    def _serve(self, handler: Handler, request: Request) -> Answer:
        try:
            return handler(self, request)
        except RemotingError as error:
            return commands.response(code_of(error), fields_of(request.command.code, error), remark=str(error))
        except StorageError as error:
            return _storage_error_response(error)
        except Exception:
            _log.exception("request %d failed", request.command.code)
            return commands.response(ResponseCode.SYSTEM_ERROR, remark="internal error")

    def future(self) -> Reply:
        """Return the future of a response."""
        return self._loop.create_future()

    def when_durable(self, response: RemotingCommand) -> Answer:
        """Return the response, once all writes so far are as durable as the store's sync policy promises."""
        synced = self.store.synced()
        if synced.done() and synced.exception() is None:
            return response
        reply = self.future()
        synced.add_done_callback(partial(_complete_when_synced, reply, response))
        return reply

    def _resume(self, poll: LongPoll, code: RequestCode) -> None:
        """Serve a request that has waited; it may continue to wait."""
        answer = self._serve(self._handlers[code], poll.request.resume(self.now, poll.reply))
        if isinstance(answer, asyncio.Future):
            if answer is not poll.reply:
                answer.add_done_callback(partial(copy_outcome, poll.reply))
        elif answer is not None and not poll.reply.done():
            poll.reply.set_result(answer)

    def admit_topic(self, name: str) -> bool:
        """Return whether the request in progress may create a topic."""
        settings = self.settings
        return self.creations.admit(self._requester, "topic", name, len(self.topics), settings.max_topics, self.now)

    def _admit_group(self, name: str) -> bool:
        settings = self.settings
        return self.creations.admit(self._requester, "group", name, len(self.groups), settings.max_groups, self.now)

    # Time.

    def tick(self, now: int) -> bool:
        """Run the routines that are due; return whether work is left that should not wait for long."""
        self.now = now
        more = False
        for routine in (*_ROUTINES, *self._routines):
            # One of its own for each, so that much work of one does not keep the others from theirs.
            budget = WorkBudget(self._clock)
            try:
                routine(self, now, budget)
            except (RemotingError, StorageError) as error:
                _log.error("a routine of the broker is postponed: %s", error)
            except Exception:
                _log.exception("a routine of the broker failed")
            more |= budget.exhausted
        self.waking.run()
        return more

    def _remove_silent_members(self, now: int, budget: WorkBudget) -> None:
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            self.locks.expire(now)
            self._unswept = self.members.channels()
        while self._unswept and not budget.exhausted:
            budget.use()
            channel = self._unswept.pop()
            if self.members.is_expired(channel, now - self.settings.member_expiry):
                isolated(self.channel_closed, channel)
                isolated(self._close_silent, channel)

    def _wake_unlocked(self, now: int, budget: WorkBudget) -> None:
        while self._unlocks and self._unlocks[0][0] <= now and not budget.exhausted:
            _, key = heapq.heappop(self._unlocks)
            budget.use()
            if self.fifo_locks.free_at(key) <= now:
                self.queue_readable(*key)

    # Members.

    def channel_closed(self, channel: Channel) -> None:
        """Remove a client whose connection has ended from its groups."""
        for group in self.members.remove_channel(channel):
            self.notify_members(group)

    def end_memberships(self, may_stay: Callable[[Channel, str], bool]) -> int:
        """Remove the members of consumer groups that may not stay there; return the number of memberships."""
        ended = [(channel, group) for channel, group in self.members.memberships() if not may_stay(channel, group)]
        for channel, group in ended:
            self.members.remove_consumer(group, channel)
            self.notify_members(group)
        return len(ended)

    def notify_members(self, group: str) -> None:
        """Notify the members of a consumer group of a change of the group, soon."""
        self._notices.changed(group, self.now)

    def _send_notices(self, group: str) -> None:
        consumers = self.members.consumers.get(group)
        config = self.groups.get(group)
        if consumers is None or consumers.broadcasting or (config is not None and not config.notifies_members):
            return
        for channel in list(consumers.clients):
            if channel.closed:
                continue
            notice = commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True)
            isolated(self.push, channel, notice)

    def dead_lettered(self, channel: Channel | None, group: str, topic: str) -> None:
        """Report a message that is in the dead letter queue of a group."""
        isolated(self.on_dead_letter, "remoting" if channel is None else channel.protocol, group, topic)

    # Long polls.

    def message_appended(self, message: StoredMessage) -> None:
        """Count a message that is in its queue, and wake its polls at the end of the request or tick."""
        self.statistics.add_stored(message.topic, encoded_size(message), self.now)
        self.waking.append(message)

    def queue_readable(self, topic: str, group: str, queue_id: int) -> None:
        """Wake a pop of a group that waits for this queue or for any, at the end of the request or tick."""
        self.waking.wake((topic, group, queue_id))
        self.waking.wake((topic, group, ANY_QUEUE))

    def unlock_at(self, at: int, key: PopKey) -> None:
        """Wake a pop of this key if the queue's FIFO lock is free at a time (ms)."""
        heapq.heappush(self._unlocks, (at, key))
        if len(self._unlocks) > 2 * len(self.fifo_locks) + _MIN_OUTDATED_UNLOCKS:
            # Most are of locks that were postponed or released.
            self._unlocks = [(at, key) for at, key in self.fifo_locks.locked(self.now)]
            heapq.heapify(self._unlocks)

    def admit_poll(self, key: PopKey, channel: Channel | None) -> bool:
        """Return whether another pop or notification of a client may wait for this key."""
        settings, pops, notifications = self.settings, self.waiting_pops, self.waiting_notifications
        source = source_of_client(channel)
        own = pops.count_of(source) + notifications.count_of(source)
        return has_place(own, pops.total + notifications.total, settings.max_polls) and has_place(
            pops.count_of_key(key, source), pops.count(key), settings.max_polls_per_queue + 1
        )

    # Reading.

    def read_one(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """Return the encoded record at a queue offset, or None."""
        min_offset, max_offset = self.store.bounds(topic, queue_id)
        if not min_offset <= offset < max_offset:
            return None
        records = self.store.read(topic, queue_id, offset, 1, 1)
        return records[0] if records else None


def _expiry(polls_of: Callable[[Broker], LongPolls[Any]], code: RequestCode) -> Routine:
    """Return the routine that serves the polls of one kind whose deadline is reached."""

    def expire(broker: Broker, now: int, budget: WorkBudget) -> None:
        for poll in polls_of(broker).due(now, budget):
            broker._resume(poll, code)

    return expire


# The routines of every broker, in this order.
_ROUTINES: tuple[Routine, ...] = (
    lambda broker, now, budget: broker.pipeline.tick(now, budget),
    lambda broker, now, budget: broker.transactions.tick(now, budget),
    lambda broker, now, _: broker._notices.tick(now),
    lambda broker, now, _: broker.statistics.tick(now),
    Broker._wake_unlocked,
    lambda broker, now, _: broker.waking.tick(),
    _expiry(lambda broker: broker.waiting_pulls, RequestCode.PULL_MESSAGE),
    _expiry(lambda broker: broker.waiting_pops, RequestCode.POP_MESSAGE),
    _expiry(lambda broker: broker.waiting_notifications, RequestCode.NOTIFICATION),
    Broker._remove_silent_members,
)


def _unsupported(_: Broker, request: Request) -> Answer:
    raise UnsupportedRequest(f"request {request.command.code} is not supported by the embedded broker")


def _storage_error_response(error: BaseException) -> RemotingCommand:
    return commands.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"the broker cannot store this now: {error}")


def _complete_when_synced(reply: Reply, response: RemotingCommand, synced: "asyncio.Future[None]") -> None:
    if reply.done():
        return
    error = asyncio.CancelledError() if synced.cancelled() else synced.exception()
    reply.set_result(response if error is None else _storage_error_response(error))
