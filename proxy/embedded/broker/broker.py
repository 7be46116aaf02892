"""The broker: its parts, one entry for requests, one for time.

    handle(channel, command, now) -> future of the answer, or None where there is none
    tick(now)

Sans-io but for the futures of answers: no clock, no socket, no task. What is said to clients goes through `push`.
"""

import asyncio
import heapq
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.embedded.broker import names
from proxy.embedded.broker.append_pipeline import AppendPipeline
from proxy.embedded.broker.errors import fields_of
from proxy.embedded.broker.fifo_locks import FifoLocks
from proxy.embedded.broker.groups import Groups
from proxy.embedded.broker.lock_table import Locks
from proxy.embedded.broker.long_polls import Held, LongPolls
from proxy.embedded.broker.members import Members
from proxy.embedded.broker.offsets import Offsets
from proxy.embedded.broker.pop_checkpoints import Checkpoints
from proxy.embedded.broker.request import Answer, Reply, Request, code_of, yes
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.broker.topics import Topics
from proxy.embedded.broker.transactions import Transactions
from proxy.embedded.store import Corrupt, StorageFailed, StorageFull, Store
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, UnsupportedRequest
from remoting.messages import StoredMessage

_log = logging.getLogger("gantry.embedded")

# Topic, group, queue id; -1 stands for any queue.
PopKey = tuple[str, str, int]
ANY_QUEUE = -1
# How often it is looked for members that have gone silent, in ms.
_SWEEP = 10_000

_STORAGE = (StorageFull, StorageFailed, Corrupt)

# Serves one request code; runs at each tick with the time in ms.
Handler = Callable[["Broker", Request], Answer]
Routine = Callable[["Broker", int], None]


class Broker:
    """One broker over one store. `handlers` are the requests it knows; `routines` what it does as time goes by."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        push: Push,
        handlers: Mapping[int, Handler],
        routines: tuple[Routine, ...],
        dismiss: Callable[[Channel], None] = lambda channel: None,
        now: int = 0,
    ) -> None:
        self.settings = settings
        self.store = store
        self.push = push
        self.now = self.started = now
        self.random = random.Random()
        self.trace_switch = yes(settings.trace)
        self.topics = Topics(settings, store.table("topics"))
        self.groups = Groups(settings, store.table("groups"))
        self.offsets = Offsets(store.table("offsets"), store.table("resets"))
        self.modes = store.table("modes")
        self.values = store.table("kv")
        self.members = Members()
        self.locks = Locks(settings.lock_life)
        self.intake = AppendPipeline(settings, store, self.arrived)
        self.transactions = Transactions(settings, store, self.intake, self._ask_producer)
        self.checkpoints = Checkpoints(store.table("pops"))
        self.orders = FifoLocks(store.table("orders"))
        self.pulls: LongPolls[tuple[str, int]] = LongPolls()
        self.pops: LongPolls[PopKey] = LongPolls()
        self.notices: LongPolls[PopKey] = LongPolls()
        self._handlers = handlers
        self._routines = routines
        self._dismiss = dismiss
        self._loop = asyncio.get_running_loop()
        self._arrivals: list[StoredMessage] = []
        self._roused: dict[PopKey, None] = {}
        self._later: dict[PopKey, None] = {}
        # Who pops a topic, or waits for its retry topic.
        self._poppers: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._unlocks = [(at, key) for at, key in self.orders.locked(now)]
        heapq.heapify(self._unlocks)
        self._next_sweep = now + _SWEEP
        # Messages stored and handed out since the start.
        self.counts = {"put": 0, "got": 0}

    # Requests.

    def handle(self, channel: Channel | None, command: RemotingCommand, now: int) -> Reply | None:
        """Serve a request of a client (None: of this process itself)."""
        self.now = now
        answer = self._run(self._handlers.get(command.code, _unsupported), Request(channel, command, now))
        self._settle()
        if answer is None or isinstance(answer, asyncio.Future):
            return answer
        reply = self.future()
        reply.set_result(answer)
        return reply

    def _run(self, handler: Handler, request: Request) -> Answer:
        try:
            return handler(self, request)
        except RemotingError as error:
            return commands.response(code_of(error), fields_of(request.command.code, error), remark=str(error))
        except _STORAGE as error:
            return _unstorable(error)
        except Exception:
            _log.exception("request %d failed", request.command.code)
            return commands.response(ResponseCode.SYSTEM_ERROR, remark="internal error")

    def future(self) -> Reply:
        """An answer that is still to come."""
        return self._loop.create_future()

    def durable(self, reply: RemotingCommand) -> Answer:
        """The answer, once everything written so far is as durable as the store's policy promises."""
        synced = self.store.synced()
        if synced.done() and synced.exception() is None:
            return reply
        answer = self.future()
        synced.add_done_callback(partial(_release, answer, reply))
        return answer

    def answer(self, held: Held, handler: Handler, now: int) -> None:
        """Serve a request that has waited; it may go on waiting."""
        answer = self._run(handler, held.request.again(now))
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(_hand_on, held.reply))
        elif answer is not None and not held.reply.done():
            held.reply.set_result(answer)

    # Time.

    def tick(self, now: int) -> None:
        """Do what is due."""
        self.now = now
        for routine in (*_ROUTINES, *self._routines):
            try:
                routine(self, now)
            except (RemotingError, *_STORAGE) as error:
                _log.error("a broker's routine could not be done now: %s", error)
            except Exception:
                _log.exception("a broker's routine failed")
        self._settle()

    def _sweep(self, now: int) -> None:
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP
        for channel in self.members.expired(now - self.settings.member_expiry):
            self.closed(channel)
            self._dismiss(channel)

    def _unlock(self, now: int) -> None:
        while self._unlocks and self._unlocks[0][0] <= now:
            _, key = heapq.heappop(self._unlocks)
            if self.orders.free_at(key) <= now:
                self.arrived_at(*key)

    def _look(self, _: int) -> None:
        later, self._later = self._later, {}
        self._roused.update(later)

    # Members.

    def closed(self, channel: Channel) -> None:
        """A client's connection has ended."""
        for group in self.members.closed(channel):
            self.changed(group)

    def changed(self, group: str) -> None:
        """Tell the members of a consumer group that it has changed."""
        consumers = self.members.consumers.get(group)
        config = self.groups.get(group)
        if consumers is None or consumers.broadcasting or (config is not None and not config.notified):
            return
        for channel in list(consumers.clients):
            if not channel.closed:
                notice = {"consumerGroup": group}
                self.push(channel, commands.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, notice, oneway=True))

    def _ask_producer(self, group: str, command: RemotingCommand) -> Channel | None:
        channel = self.members.producer(group)
        if channel is not None:
            self.push(channel, command)
        return channel

    # Messages that have arrived wake who waits for them.

    def arrived(self, message: StoredMessage) -> None:
        """A message is in its queue."""
        self.counts["put"] += 1
        if self.pulls.total or self.pops.total or self.notices.total:
            self._arrivals.append(message)

    def arrived_at(self, topic: str, group: str, queue_id: int) -> None:
        """There may be something to pop for a group in this queue."""
        self.rouse(topic, group, queue_id)
        self.rouse(topic, group, ANY_QUEUE)

    def rouse(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one who waits to pop from exactly this."""
        self._roused[topic, group, queue_id] = None

    def look_again(self, key: PopKey) -> None:
        """Wake one who waits to pop from exactly this, with the next tick."""
        self._later[key] = None

    def unlock_at(self, at: int, key: PopKey) -> None:
        """A queue that is popped in order may be free at this time."""
        heapq.heappush(self._unlocks, (at, key))

    def room(self, key: PopKey) -> bool:
        """Whether one more may wait for this; it is then known who pops the topic."""
        settings = self.settings
        if (
            self.pops.total + self.notices.total >= settings.most_polls
            or self.pops.count(key) > settings.most_polls_per_queue
        ):
            return False
        topic, group, _ = key
        self._poppers[topic].add((topic, group))
        for v2 in (False, True):
            self._poppers[names.pop_retry_topic(topic, group, v2)].add((topic, group))
        return True

    def _settle(self) -> None:
        """Wake everybody for whom something has changed."""
        while self._arrivals or self._roused:
            arrivals, self._arrivals = self._arrivals, []
            for message in arrivals:
                self._wake_pulls(message)
                self._wake_pops(message)
            roused, self._roused = self._roused, {}
            for key in roused:
                self._wake_one(key, _anything)

    def _wake_pulls(self, message: StoredMessage) -> None:
        def fits(held: Held) -> bool:
            return held.offset <= message.queue_offset and (
                held.wanted is None or held.wanted.wants(message.property_map)
            )

        for held in self.pulls.take((message.topic, message.queue_id), fits):
            self.answer(held, self._handlers[RequestCode.PULL_MESSAGE], self.now)

    def _wake_pops(self, message: StoredMessage) -> None:
        def fits(held: Held) -> bool:
            return held.wanted is None or held.wanted.wants(message.property_map)

        for topic, group in self._poppers.get(message.topic, ()):
            self._wake_one((topic, group, ANY_QUEUE), fits)
            if message.topic == topic:
                self._wake_one((topic, group, message.queue_id), fits)

    def _wake_one(self, key: PopKey, fits: Callable[[Held], bool]) -> None:
        waiting = ((self.pops, RequestCode.POP_MESSAGE), (self.notices, RequestCode.NOTIFICATION))
        for holds, code in waiting:
            held = holds.take_one(key, fits)
            if held is not None:
                self.answer(held, self._handlers[code], self.now)

    def _expire(self, now: int) -> None:
        """Answer those who have waited for long enough."""
        waiting: tuple[tuple[list[Held], int], ...] = (
            (self.pulls.due(now), RequestCode.PULL_MESSAGE),
            (self.pops.due(now), RequestCode.POP_MESSAGE),
            (self.notices.due(now), RequestCode.NOTIFICATION),
        )
        for due, code in waiting:
            for held in due:
                self.answer(held, self._handlers[code], now)

    # Reading.

    def read_one(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """The encoded record at a queue offset."""
        least, most = self.store.bounds(topic, queue_id)
        if not least <= offset < most:
            return None
        records = self.store.read(topic, queue_id, offset, 1, 1)
        return records[0] if records else None


# What every broker does as time goes by, in this order.
_ROUTINES: tuple[Routine, ...] = (
    lambda broker, now: broker.intake.tick(now),
    lambda broker, now: broker.transactions.tick(now),
    Broker._unlock,
    Broker._look,
    Broker._expire,
    Broker._sweep,
)


def _anything(_: Held) -> bool:
    return True


def _unsupported(_: Broker, request: Request) -> Answer:
    raise UnsupportedRequest(f"request {request.command.code} is not known here")


def _unstorable(error: BaseException) -> RemotingCommand:
    return commands.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"the broker cannot store this now: {error}")


def _release(answer: Reply, reply: RemotingCommand, synced: "asyncio.Future[None]") -> None:
    if answer.done():
        return
    error = asyncio.CancelledError() if synced.cancelled() else synced.exception()
    answer.set_result(reply if error is None else _unstorable(error))


def _hand_on(reply: Reply, answer: Reply) -> None:
    if not reply.done() and not answer.cancelled():
        reply.set_result(answer.result())
