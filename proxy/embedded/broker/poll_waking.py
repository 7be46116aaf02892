"""Waking of long polls: for messages, and when a group may pop more, as after an acknowledgement.

The messages of a queue are collected until the end of a request or tick, so that each poll is looked at once. Thousands
may wait, and a filter may take a millisecond: a turn of the event loop does a part of that work, the next turns the
rest.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from proxy.embedded.broker.appended import Appended
from proxy.embedded.broker.long_polls import LongPoll, LongPolls
from proxy.embedded.broker.poppers import PopKey, Poppers
from proxy.embedded.broker.work_budget import WorkBudget
from remoting.codes import RequestCode
from remoting.messages import StoredMessage
from remoting.tasks import isolated

_log = logging.getLogger("gantry.embedded")

# Topic and queue id.
QueueKey = tuple[str, int]
# As the queue id of a PopKey: any queue.
ANY_QUEUE = -1
# Seconds of a part.
_PART = 0.005

_Key = TypeVar("_Key", bound=QueueKey | PopKey)
# Looks at one poll with each step.
_Work = Iterator[None]


class PollWaking:
    """The waiting polls of a broker, and those of them that are to be served.

    resume: serves a poll by the handler of a request code. clock: returns seconds. call_soon: calls a function in the
    next turn of the event loop.
    """

    def __init__(
        self,
        resume: Callable[[LongPoll, RequestCode], None],
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._resume = resume
        self._clock = clock
        self._call_soon = call_soon
        self.poppers = Poppers()
        self.pulls: LongPolls[QueueKey] = LongPolls()
        self.pops: LongPolls[PopKey] = LongPolls(self.poppers.add, self.poppers.remove)
        self.notifications: LongPolls[PopKey] = LongPolls(self.poppers.add, self.poppers.remove)
        # Messages and changes since the last part, and keys for the next tick.
        self._appended: dict[QueueKey, Appended] = {}
        self._changed: dict[PopKey, None] = {}
        self._next_changed: dict[PopKey, None] = {}
        # The rest of the work that a part did not end. Events of its key meanwhile wait for its end.
        self._begun: dict[QueueKey | PopKey, _Work] = {}
        self._continues = False

    # Events that wake polls.

    def append(self, message: StoredMessage) -> None:
        """Wake the polls of a message that is in its queue."""
        key = message.topic, message.queue_id
        if self.pulls.count(key) or self.poppers.of(message.topic):
            appended = self._appended.get(key)
            if appended is None:
                appended = self._appended[key] = Appended()
            appended.add(message)

    def wake(self, key: PopKey) -> None:
        """Wake one pop with exactly this key."""
        self._changed[key] = None

    def wake_at_next_tick(self, key: PopKey) -> None:
        """Wake one pop with exactly this key at the next tick."""
        self._next_changed[key] = None

    def tick(self) -> None:
        """Wake the pops for which this is the next tick."""
        changed, self._next_changed = self._next_changed, {}
        self._changed.update(changed)

    # Parts.

    def run(self) -> None:
        """Serve the polls for which there is a message or another change; of many, some in later turns."""
        if self._appended or self._changed:
            self._begin(WorkBudget(self._clock, _PART))
            self._continue_later()

    def _continue(self) -> None:
        self._continues = False
        budget = WorkBudget(self._clock, _PART)
        for key in list(self._begun):
            if budget.exhausted:
                break
            # Each key gets its turn: one with much work is the last one then.
            self._do(key, self._begun.pop(key), budget)
        self._begin(budget)
        self._continue_later()

    def _continue_later(self) -> None:
        if (self._begun or self._appended or self._changed) and not self._continues:
            self._continues = True
            self._call_soon(self._continue)

    def _begin(self, budget: WorkBudget) -> None:
        """Look at the polls of keys to which something happened."""
        while not budget.exhausted:
            if (queue := self._first_free(self._appended)) is not None:
                self._do(queue, self._serve_queue(queue, self._appended.pop(queue)), budget)
            elif (key := self._first_free(self._changed)) is not None:
                del self._changed[key]
                self._do(key, self._serve_one(key, _fits_always), budget)
            else:
                return

    def _first_free(self, keys: Iterable[_Key]) -> _Key | None:
        return next((key for key in keys if key not in self._begun), None)

    def _do(self, key: QueueKey | PopKey, work: _Work, budget: WorkBudget) -> None:
        """Do a part of the work for a key, and keep the rest."""
        try:
            for _ in work:
                budget.use()
                if budget.exhausted:
                    self._begun[key] = work
                    return
        except Exception:
            _log.exception("long polls of %s could not be looked at", key)

    # Serving.

    def _serve_queue(self, key: QueueKey, appended: Appended) -> _Work:
        for poll in self.pulls.take(key, appended.fits):
            if poll is not None:
                isolated(self._resume, poll, RequestCode.PULL_MESSAGE)
            yield
        topic, queue_id = key
        for popped, group in list(self.poppers.of(topic)):
            yield from self._serve_one((popped, group, ANY_QUEUE), appended.fits)
            if popped == topic:
                yield from self._serve_one((popped, group, queue_id), appended.fits)

    def _serve_one(self, key: PopKey, fits: Callable[[LongPoll], bool]) -> _Work:
        """Serve one pop and one notification. A pop that leaves messages wakes the next one."""
        if self.pops.count(key):
            yield from self._serve_first(self.pops, key, fits, RequestCode.POP_MESSAGE)
        if self.notifications.count(key):
            yield from self._serve_first(self.notifications, key, fits, RequestCode.NOTIFICATION)

    def _serve_first(
        self, polls: LongPolls[PopKey], key: PopKey, fits: Callable[[LongPoll], bool], code: RequestCode
    ) -> _Work:
        for poll in polls.take(key, fits):
            if poll is not None:
                isolated(self._resume, poll, code)
            yield
            if poll is not None:
                return


def _fits_always(_: LongPoll) -> bool:
    return True
