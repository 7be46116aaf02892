"""Calls between workers, over a parent that is a few lines here."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.workers import worker_rpc as module
from proxy.workers.frames import Frame, Kind
from proxy.workers.worker_rpc import Gone, Tell, WorkerRpc

pytestmark = pytest.mark.anyio


class Parent:
    """Passes frames on as the supervisor does; `sent` is what workers sent, with their numbers."""

    def __init__(self, many: int) -> None:
        self.sent: list[tuple[int, Frame]] = []
        self.workers: dict[int, WorkerRpc] = {
            number: WorkerRpc(number, many, self._from(number)) for number in range(many)
        }

    def _from(self, sender: int) -> Callable[[Frame], None]:
        def send(frame: Frame) -> None:
            self.sent.append((sender, frame))
            asyncio.get_running_loop().call_soon(self._pass, sender, frame)

        return send

    def _pass(self, sender: int, frame: Frame) -> None:
        to = self.workers.get(frame.worker)
        if to is not None:
            to.receive(frame._replace(worker=sender))
        elif frame.kind is Kind.ASK:
            self.workers[sender].receive(Frame(Kind.GONE, frame.worker, frame.call))

    def bury(self, worker: int) -> None:
        """A worker has died."""
        del self.workers[worker]
        for other in self.workers.values():
            other.receive(Frame(Kind.GONE, worker))

    def kinds(self, sender: int) -> list[Kind]:
        return [frame.kind for number, frame in self.sent if number == sender]


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0)


async def echo(content: bytes, tell: Tell) -> None:
    for byte in content:
        await tell(bytes([byte]))


async def test_an_answer_comes_in_its_parts() -> None:
    parent = Parent(3)
    parent.workers[2].answers["echo"] = echo
    assert await parent.workers[0].whole(2, "echo", b"abc", 30) == [b"a", b"b", b"c"]
    assert await parent.workers[1].whole(2, "echo", b"", 30) == []
    # A newline is content like any other.
    assert await parent.workers[0].whole(2, "echo", b"a\nb", 30) == [b"a", b"\n", b"b"]
    assert parent.workers[2]._asked == {}
    assert parent.workers[0]._calls == {}


async def test_an_answer_is_ahead_of_its_reader_by_a_window_at_most() -> None:
    parent = Parent(2)
    told = 0

    async def endless(_: bytes, tell: Tell) -> None:
        nonlocal told
        while True:
            await tell(b".")
            told += 1

    parent.workers[1].answers["endless"] = endless
    async with parent.workers[0].ask(1, "endless", b"") as call:
        await until(lambda: told == module._WINDOW)
        for _ in range(20):
            await asyncio.sleep(0)
        assert told == module._WINDOW
        for _ in range(3 * module._WINDOW):
            assert await anext(call) == b"."
        assert told <= 4 * module._WINDOW
    # Nobody wants it any more.
    await until(lambda: not parent.workers[1]._asked)
    assert parent.kinds(0)[-1] is Kind.STOP


@pytest.mark.parametrize("name", ["nothing", "failing", ""])
async def test_what_cannot_be_answered_is_said(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(_: bytes, tell: Tell) -> None:
        await tell(b"so far")
        raise RuntimeError("a mistake")

    parent = Parent(2)
    parent.workers[1].answers["failing"] = failing
    with pytest.raises(Gone):
        await parent.workers[0].whole(1, name, b"", 30)
    assert ("a mistake" in caplog.text) == (name == "failing")
    with pytest.raises(Gone):
        await parent.workers[0].whole(7, "failing", b"", 30)


async def test_a_worker_that_takes_too_long_is_not_waited_for() -> None:
    async def silent(_: bytes, tell: Tell) -> None:
        await asyncio.Event().wait()

    parent = Parent(2)
    parent.workers[1].answers["silent"] = silent
    with pytest.raises(TimeoutError):
        await parent.workers[0].whole(1, "silent", b"", 0.01)
    await until(lambda: not parent.workers[1]._asked)


async def test_whoever_dies_ends_what_it_asked_and_was_asked() -> None:
    async def endless(_: bytes, tell: Tell) -> None:
        await tell(b"first")
        await asyncio.Event().wait()

    parent = Parent(3)
    for worker in parent.workers.values():
        worker.answers["endless"] = endless
    dying = parent.workers[1]
    async with dying.ask(0, "endless", b"") as theirs, parent.workers[0].ask(1, "endless", b"") as ours:
        assert [await anext(theirs), await anext(ours)] == [b"first", b"first"]
        async with parent.workers[0].ask(2, "endless", b"") as other:
            assert await anext(other) == b"first"
            parent.bury(1)
            with pytest.raises(Gone):
                await anext(ours)
            await until(lambda: not parent.workers[0]._asked)
            # Others go on.
            assert not other.over
    dying.close()
    await until(lambda: not dying._asked)


async def test_frames_of_nobodys_calls_change_nothing() -> None:
    parent = Parent(2)
    parent.workers[1].answers["echo"] = echo
    asker = parent.workers[0]
    async with asker.ask(1, "echo", b"a") as call:
        for kind in Kind:
            if kind is not Kind.ASK:
                # Another call, and this one's number from a worker that was not asked.
                asker.receive(Frame(kind, 1, call.number + 1, b"x"))
                asker.receive(Frame(kind, 0, call.number, b"x"))
        assert [part async for part in call] == [b"a"]


async def test_calls_of_a_worker_that_was_replaced_have_other_numbers() -> None:
    def first(sent: list[Any]) -> int:
        return int(sent[0].call)

    numbers = set()
    for _ in range(3):
        sent: list[Frame] = []
        async with WorkerRpc(0, 2, sent.append).ask(1, "echo", b""):
            numbers.add(first(sent))
    assert len(numbers) == 3
