"""Model-based tests of pops, FIFO pops, and immediate, delayed and transactional sends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.embedded.broker.settings import BrokerSettings
from remoting import messages
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.ids import OffsetMessageId
from remoting.messages import SysFlag
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import Retry
from tests.proxy.embedded.broker_harness import BrokerHarness

_Result = TypeVar("_Result")
_QUEUES = 2


@dataclass
class _Out:
    """A popped message that is invisible to others."""

    popped: PoppedMessage
    visible_at: int
    times: int


class _Machine(RuleBasedStateMachine):
    """A broker with one topic, and an event loop for its futures."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.harness = self.inside(lambda: BrokerHarness(BrokerSettings()))
        self.sent = 0

    def inside(self, work: Callable[[], _Result]) -> _Result:
        async def run() -> _Result:
            return work()

        return self.loop.run_until_complete(run())

    @initialize()
    def start(self) -> None:
        self.inside(lambda: self.harness.topic("t", queues=_QUEUES))

    @rule()
    def restart(self) -> None:
        self.inside(self.harness.restart)

    def teardown(self) -> None:
        self.loop.close()


class Popping(_Machine):
    """Every message is in exactly one of the states waiting, popped, done."""

    def __init__(self) -> None:
        super().__init__()
        # Number of unacknowledged deliveries of each waiting message.
        self.waiting: dict[bytes, int] = {}
        self.out: dict[bytes, _Out] = {}
        self.void: list[PoppedMessage] = []
        self.done: set[bytes] = set()
        # The last message of each queue that was delivered for the first time.
        self.last = dict.fromkeys(range(_QUEUES), -1)

    @rule(queue=st.integers(0, _QUEUES - 1), count=st.integers(1, 5))
    def send(self, queue: int, count: int) -> None:
        for _ in range(count):
            body = b"%d" % self.sent
            self.sent += 1
            self.inside(lambda: self.harness.send("t", body, queue=queue))  # noqa: B023  # called immediately
            self.waiting[body] = 0

    @rule(count=st.integers(1, 8), invisible=st.sampled_from((300, 1000, 5000)))
    def pop(self, count: int, invisible: int) -> None:
        popped = self.inside(lambda: self.harness.pop("t", maxMsgNums=count, invisibleTime=invisible))
        assert len(popped) == min(count, len(self.waiting))
        for one in popped:
            body = one.message.body
            assert one.reconsume_times == self.waiting.pop(body)
            if one.extra_info.retry is Retry.NORMAL:
                assert one.extra_info.queue_offset == self.last[one.extra_info.queue_id] + 1
                self.last[one.extra_info.queue_id] += 1
            self.out[body] = _Out(one, self.harness.now + invisible, one.reconsume_times)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(sorted(self.out)))
        out = self.out.pop(body)
        self.inside(lambda: self.harness.ack("t", out.popped))
        self.done.add(body)
        self.void.append(out.popped)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def ack_many(self, data: st.DataObject) -> None:
        bodies = data.draw(st.lists(st.sampled_from(sorted(self.out)), unique=True, max_size=5))
        handles = [self.out[body].popped.extra_info for body in bodies]
        acks = batch_acks("t", "g", handles)
        if acks:
            body = BatchAckBody("broker-a", acks).encode()
            self.inside(lambda: self.harness.get(RequestCode.BATCH_ACK_MESSAGE, {}, body))
        for one in bodies:
            del self.out[one]
            self.done.add(one)

    @precondition(lambda self: self.void)
    @rule(data=st.data(), change=st.booleans())
    def use_a_void_handle(self, data: st.DataObject, change: bool) -> None:
        popped = data.draw(st.sampled_from(self.void))
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME if change else RequestCode.ACK_MESSAGE
        fields = self.harness.handle_fields("t", popped, invisibleTime=100)
        self.inside(lambda: self.harness.get(code, fields))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), invisible=st.sampled_from((100, 700, 3000)))
    def change(self, data: st.DataObject, invisible: int) -> None:
        out = self.out[data.draw(st.sampled_from(sorted(self.out)))]
        fields = self.harness.handle_fields("t", out.popped, invisibleTime=invisible)
        reply = self.inside(lambda: self.harness.get(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields))
        handle = out.popped.extra_info.changed(reply.fields)
        if handle != out.popped.extra_info:
            self.void.append(out.popped)
        out.popped = PoppedMessage(out.popped.message, handle, out.popped.reconsume_times, out.popped.first_pop_time)
        # A change within the millisecond of the pop gets the next pop time, and its whole invisible time from then on.
        out.visible_at = handle.pop_time + invisible

    @rule(milliseconds=st.sampled_from((1, 100, 800, 4000)))
    def pass_time(self, milliseconds: int) -> None:
        self.inside(lambda: self.harness.pass_time(milliseconds))
        for body, out in list(self.out.items()):
            if out.visible_at <= self.harness.now:
                del self.out[body]
                self.waiting[body] = out.times + 1
                self.void.append(out.popped)

    @invariant()
    def the_broker_knows_who_has_what(self) -> None:
        waiting = sum(
            len(point.offsets)
            for topic in ("t", "%RETRY%g_t")
            for point in self.harness.broker.checkpoints.of_group(topic, "g")
        )
        assert waiting == len(self.out)

    def teardown(self) -> None:
        """At the end, all messages that are not done are delivered."""
        try:
            self._finish()
        finally:
            super().teardown()

    def _finish(self) -> None:
        self.inside(lambda: self.harness.pass_time(10_000))
        left = set(self.waiting) | set(self.out)
        delivered: set[bytes] = set()
        while popped := self.inside(lambda: self.harness.pop("t", invisibleTime=10**9)):
            bodies = {one.message.body for one in popped}
            assert not bodies & delivered
            delivered |= bodies
        assert delivered == left


class Ordering(_Machine):
    """Messages of a queue are delivered in order; unacknowledged ones are redelivered before the following ones."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, list[bytes]] = {queue: [] for queue in range(_QUEUES)}
        # The unacknowledged messages of the last pop, and the end of the queue's lock.
        self.out: dict[int, list[PoppedMessage]] = {queue: [] for queue in range(_QUEUES)}
        self.acked: dict[int, set[int]] = {queue: set() for queue in range(_QUEUES)}
        self.until: dict[int, int] = dict.fromkeys(range(_QUEUES), 0)
        self.next = dict.fromkeys(range(_QUEUES), 0)

    @rule(queue=st.integers(0, _QUEUES - 1), count=st.integers(1, 4))
    def send(self, queue: int, count: int) -> None:
        for _ in range(count):
            body = b"%d" % self.sent
            self.sent += 1
            self.inside(lambda: self.harness.send("t", body, queue=queue))  # noqa: B023  # called immediately
            self.queues[queue].append(body)

    @rule(queue=st.integers(0, _QUEUES - 1), count=st.integers(1, 4), invisible=st.sampled_from((300, 2000)))
    def pop(self, queue: int, count: int, invisible: int) -> None:
        popped = self.inside(
            lambda: self.harness.pop("t", order=True, queueId=queue, maxMsgNums=count, invisibleTime=invisible)
        )
        if self.out[queue] and self.harness.now < self.until[queue]:
            assert popped == []
            return
        start = self.next[queue]
        assert [one.message.body for one in popped] == self.queues[queue][start : start + count]
        if popped:
            self.out[queue], self.acked[queue] = popped, set()
            self.until[queue] = self.harness.now + invisible

    @rule(queue=st.integers(0, _QUEUES - 1), data=st.data())
    def ack(self, queue: int, data: st.DataObject) -> None:
        if not self.out[queue]:
            return
        popped = data.draw(st.sampled_from(self.out[queue]))
        self.inside(lambda: self.harness.ack("t", popped))
        if popped.extra_info.queue_offset < self.next[queue]:
            return
        self.acked[queue].add(popped.extra_info.queue_offset)
        offsets = [one.extra_info.queue_offset for one in self.out[queue]]
        left = [offset for offset in offsets if offset not in self.acked[queue]]
        self.next[queue] = left[0] if left else offsets[-1] + 1
        if not left:
            self.out[queue] = []

    @rule(milliseconds=st.sampled_from((1, 100, 900, 3000)))
    def pass_time(self, milliseconds: int) -> None:
        self.inside(lambda: self.harness.pass_time(milliseconds))

    @invariant()
    def offsets_never_run_ahead(self) -> None:
        for queue in range(_QUEUES):
            assert self.harness.broker.offsets.get("t", "g", queue) in {-1, self.next[queue]}


class Delivering(_Machine):
    """Immediate, delayed and transactional messages are in their queue at their time, once and in order.

    Pulls return exactly these, and offsets are as committed."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, list[bytes]] = {queue: [] for queue in range(_QUEUES)}
        # Due time, number of the send, queue, body, recall handle.
        self.later: list[tuple[int, int, int, bytes, str]] = []
        self.halves: dict[bytes, tuple[int, RemotingCommand]] = {}
        self.ended: list[RemotingCommand] = []
        self.offsets: dict[int, int] = {}

    def send_one(self, queue: int, pairs: dict[str, str], **changes: object) -> tuple[bytes, RemotingCommand]:
        body = b"%d" % self.sent
        self.sent += 1
        pairs = {"UNIQ_KEY": f"K{body.decode()}", **pairs}
        reply = self.inside(lambda: self.harness.send("t", body, pairs, queue, **changes))
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        return body, reply

    @rule(queue=st.integers(0, _QUEUES - 1))
    def send(self, queue: int) -> None:
        body, _ = self.send_one(queue, {})
        self.queues[queue].append(body)

    @rule(queue=st.integers(0, _QUEUES - 1), delay=st.sampled_from((0, 1, 250, 1700, 5000)))
    def send_later(self, queue: int, delay: int) -> None:
        body, reply = self.send_one(queue, {"TIMER_DELAY_MS": str(delay)})
        if delay:
            due = self.harness.now + delay
            self.later.append((due, self.sent, queue, body, reply.fields["recallHandle"]))
        else:
            self.queues[queue].append(body)

    @precondition(lambda self: self.later)
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.later))
        fields = {"topic": "t", "recallHandle": item[-1], "producerGroup": "p"}
        reply = self.inside(lambda: self.harness.ask(RequestCode.RECALL_MESSAGE, fields))
        if reply.code == ResponseCode.SUCCESS:
            self.later.remove(item)
        else:
            # Times in handles are rounded down to seconds: a recall within the last second is too late.
            assert item[0] - self.harness.now <= 1000

    @rule(queue=st.integers(0, _QUEUES - 1))
    def prepare(self, queue: int) -> None:
        pairs = {"TRAN_MSG": "true", "PGROUP": "p"}
        prepared = int(SysFlag.TRANSACTION_PREPARED)
        body, reply = self.send_one(queue, pairs, sysFlag=prepared, producerGroup="p")
        self.halves[body] = (queue, reply)

    @precondition(lambda self: self.halves)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        body = data.draw(st.sampled_from(sorted(self.halves)))
        queue, half = self.halves.pop(body)
        self.inside(lambda: self.harness.get(RequestCode.END_TRANSACTION, _end(half, commit)))
        self.ended.append(half)
        if commit:
            self.queues[queue].append(body)

    @precondition(lambda self: self.ended)
    @rule(data=st.data(), commit=st.booleans())
    def end_again(self, data: st.DataObject, commit: bool) -> None:
        half = data.draw(st.sampled_from(self.ended))
        self.inside(lambda: self.harness.get(RequestCode.END_TRANSACTION, _end(half, commit)))

    @rule(queue=st.integers(0, _QUEUES - 1), data=st.data())
    def commit_offset(self, queue: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.queues[queue])))
        fields = {"topic": "t", "queueId": queue, "consumerGroup": "g", "commitOffset": offset}
        self.inside(lambda: self.harness.broker.groups.find("g"))
        self.inside(lambda: self.harness.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
        self.offsets[queue] = offset

    @rule(queue=st.integers(0, _QUEUES - 1), data=st.data(), count=st.integers(1, 4))
    def pull(self, queue: int, data: st.DataObject, count: int) -> None:
        held = self.queues[queue]
        offset = data.draw(st.integers(0, len(held)))
        reply = self.inside(lambda: self.harness.pull("t", "reader", queue, offset, maxMsgNums=count))
        found = messages.decode_messages(reply.body) if reply.code == ResponseCode.SUCCESS else []
        assert [message.body for message in found] == held[offset : offset + count]
        assert [message.queue_offset for message in found] == list(range(offset, offset + len(found)))
        if found:
            assert int(reply.fields["nextBeginOffset"]) == offset + len(found)

    @rule(milliseconds=st.sampled_from((1, 100, 900, 3000, 9000)))
    def pass_time(self, milliseconds: int) -> None:
        self.inside(lambda: self.harness.pass_time(milliseconds))
        for item in sorted(item for item in self.later if item[0] <= self.harness.now):
            self.queues[item[2]].append(item[3])
            self.later.remove(item)

    @invariant()
    def queues_hold_what_they_should(self) -> None:
        for queue, held in self.queues.items():
            assert self.harness.bodies("t", queue=queue) == held
            assert self.harness.broker.offsets.get("t", "g", queue) == self.offsets.get(queue, -1)
        assert self.harness.broker.pipeline.delayed == len(self.later)
        assert len(self.harness.broker.transactions) == len(self.halves)


def _end(half: RemotingCommand, commit: bool) -> dict[str, object]:
    return {
        "topic": "t",
        "producerGroup": "p",
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": OffsetMessageId.parse(half.fields["msgId"]).offset,
        "commitOrRollback": int(SysFlag.TRANSACTION_COMMIT if commit else SysFlag.TRANSACTION_ROLLBACK),
        "fromTransactionCheck": False,
    }


TestPopping = Popping.TestCase
TestPopping.settings = settings(max_examples=25, stateful_step_count=30)
TestOrdering = Ordering.TestCase
TestOrdering.settings = settings(max_examples=25, stateful_step_count=30)
TestDelivering = Delivering.TestCase
TestDelivering.settings = settings(max_examples=25, stateful_step_count=30)
