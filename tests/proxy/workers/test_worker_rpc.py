"""Remote calls between workers, over a fake supervisor."""

import asyncio

import pytest

from proxy.workers import worker_rpc as module
from proxy.workers.frames import Frame, Kind
from proxy.workers.worker_rpc import SendPart, WorkerRpc, WorkerUnavailable
from tests.proxy.workers.fakes import FakeSupervisor
from tests.waiting import until

pytestmark = pytest.mark.anyio


async def echo(content: bytes, send: SendPart) -> None:
    for byte in content:
        await send(bytes([byte]))


async def test_request_returns_all_parts_of_the_reply() -> None:
    supervisor = FakeSupervisor(3)
    supervisor.workers[2].handlers["echo"] = echo
    assert await supervisor.workers[0].request(2, "echo", b"abc", 30) == [b"a", b"b", b"c"]
    assert await supervisor.workers[1].request(2, "echo", b"", 30) == []
    # A newline also separates the name from the content.
    assert await supervisor.workers[0].request(2, "echo", b"a\nb", 30) == [b"a", b"\n", b"b"]
    assert supervisor.workers[2]._served == {}
    assert supervisor.workers[0]._calls == {}


async def test_reply_is_ahead_of_its_reader_by_one_window_at_most() -> None:
    supervisor = FakeSupervisor(2)
    sent = 0

    async def endless(_: bytes, send: SendPart) -> None:
        nonlocal sent
        while True:
            await send(b".")
            sent += 1

    supervisor.workers[1].handlers["endless"] = endless
    async with supervisor.workers[0].call(1, "endless", b"") as call:
        await until(lambda: sent == module._WINDOW)
        for _ in range(20):
            await asyncio.sleep(0)
        assert sent == module._WINDOW
        for _ in range(3 * module._WINDOW):
            assert await anext(call) == b"."
        assert sent <= 4 * module._WINDOW
    # Leaving the context cancels the call.
    await until(lambda: not supervisor.workers[1]._served)
    assert supervisor.kinds(0)[-1] is Kind.CANCEL


@pytest.mark.parametrize("name", ["unknown", "failing", ""])
async def test_request_that_cannot_be_served_raises(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(_: bytes, send: SendPart) -> None:
        await send(b"first part")
        raise RuntimeError("a bug")

    supervisor = FakeSupervisor(2)
    supervisor.workers[1].handlers["failing"] = failing
    with pytest.raises(WorkerUnavailable):
        await supervisor.workers[0].request(1, name, b"", 30)
    assert ("a bug" in caplog.text) == (name == "failing")
    with pytest.raises(WorkerUnavailable):
        await supervisor.workers[0].request(7, "failing", b"", 30)


async def test_request_times_out_and_is_cancelled() -> None:
    async def silent(_: bytes, send: SendPart) -> None:
        await asyncio.Event().wait()

    supervisor = FakeSupervisor(2)
    supervisor.workers[1].handlers["silent"] = silent
    with pytest.raises(TimeoutError):
        await supervisor.workers[0].request(1, "silent", b"", 0.01)
    await until(lambda: not supervisor.workers[1]._served)


async def test_death_of_a_worker_ends_its_calls_in_both_directions() -> None:
    async def endless(_: bytes, send: SendPart) -> None:
        await send(b"first")
        await asyncio.Event().wait()

    supervisor = FakeSupervisor(3)
    for worker in supervisor.workers.values():
        worker.handlers["endless"] = endless
    dying = supervisor.workers[1]
    async with dying.call(0, "endless", b"") as theirs, supervisor.workers[0].call(1, "endless", b"") as ours:
        assert [await anext(theirs), await anext(ours)] == [b"first", b"first"]
        async with supervisor.workers[0].call(2, "endless", b"") as other:
            assert await anext(other) == b"first"
            supervisor.kill(1)
            with pytest.raises(WorkerUnavailable):
                await anext(ours)
            await until(lambda: not supervisor.workers[0]._served)
            assert not other.ended
    dying.close()
    await until(lambda: not dying._served)


async def test_frames_of_unknown_calls_are_ignored() -> None:
    supervisor = FakeSupervisor(2)
    supervisor.workers[1].handlers["echo"] = echo
    caller = supervisor.workers[0]
    async with caller.call(1, "echo", b"a") as call:
        for kind in Kind:
            if kind is not Kind.REQUEST:
                # An unknown call, and this call's number from the wrong worker.
                caller.receive(Frame(kind, 1, call.number + 1, b"x"))
                caller.receive(Frame(kind, 0, call.number, b"x"))
        assert [part async for part in call] == [b"a"]


async def test_restarted_worker_uses_other_call_numbers() -> None:
    numbers = set()
    for _ in range(3):
        sent: list[Frame] = []
        async with WorkerRpc(0, 2, sent.append).call(1, "echo", b""):
            numbers.add(sent[0].call)
    assert len(numbers) == 3
