"""Shares of a replica's event loop: a good client beside floods, without sockets, with CPU time as the clock."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol_negotiation.peer import HostPort, Peer
from proxy.app import App
from proxy.core.remoting_channel import RemotingChannel
from proxy.settings.loading import load
from remoting.frame import FrameDecoder
from tests.attacks.flood import FLOODS, send_frame
from tests.proxy.observability.metrics.samples import samples_of

pytestmark = pytest.mark.anyio

_READ = 1 << 18
_SECONDS = 0.3
# The flood and the good client share the loop: half of the fair share has to remain.
_SHARE = 0.25
# Requests that the good client has in flight.
_WINDOW = 8
_ATTEMPTS = 4


class Wire:
    """A transport that counts answers and reports them to `answered`."""

    def __init__(self, channel: RemotingChannel, answered: Callable[[int], None] = lambda _: None) -> None:
        self.channel, self.answered = channel, answered
        self.reading = True
        self.answers = self.position = 0
        self._decoder = FrameDecoder()
        channel.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        count = len(self._decoder.feed(data))
        self.answers += count
        self.answered(count)

    def writelines(self, buffers: list[bytes]) -> None:
        self.write(b"".join(buffers))

    def set_write_buffer_limits(self, **_: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return not self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None: ...

    def close(self) -> None: ...


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[App]:
    """Run a replica on an embedded broker without its listeners."""
    app = App(load(None, {"embedded": {"directory": str(directory), "sync": "interval"}, "listen": ":0"}))
    task = asyncio.create_task(app.backend.run())
    try:
        yield app
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        app.backend.close()


def connect(app: App, host: str, port: int, **arguments: Any) -> Wire:
    """Return a new connection from this address."""
    channel = app.remoting.accept(Peer(HostPort(host, port), HostPort("10.0.0.2", 8080)))
    return Wire(channel, **arguments)


async def send_rates(app: App, flood: bytes, connections: int) -> tuple[float, float]:
    """Return the good client's sends per CPU second, alone and beside the flood."""
    loop = asyncio.get_running_loop()
    message = send_frame("orders")
    missing, running = 0, True

    def answered(count: int) -> None:
        nonlocal missing
        if not missing:
            loop.call_soon(send)
        missing += count

    def send() -> None:
        nonlocal missing
        count, missing = missing, 0
        if running:
            good.channel.data_received(message * count)

    async def rate() -> float:
        begin, answers = time.process_time(), good.answers
        while time.process_time() - begin < _SECONDS:
            await asyncio.sleep(0)
        return (good.answers - answers) / (time.process_time() - begin)

    good = connect(app, "10.0.0.1", 1, answered=answered)
    good.channel.data_received(message * _WINDOW)
    alone = await rate()
    senders = [connect(app, "10.0.0.3", number) for number in range(1, connections + 1)]
    stream = flood * (2 * _READ // len(flood) + 2)

    def read() -> None:
        for wire in senders:
            if wire.reading:
                data = stream[wire.position : wire.position + _READ]
                wire.position = (wire.position + _READ) % len(flood)
                wire.channel.data_received(data)
        if running:
            loop.call_soon(read)

    read()
    beside = await rate()
    running = False
    assert any(wire.answers for wire in senders)
    for wire in (good, *senders):
        wire.channel.connection_lost(None)
    return alone, beside


@pytest.mark.parametrize(
    ("name", "connections"),
    [("sends", 1), ("sends", 20), ("heartbeats", 20), ("consumer lists", 20), ("unknown codes", 1)],
)
async def test_a_flood_leaves_a_good_client_half_of_its_fair_share(tmp_path: Path, name: str, connections: int) -> None:
    """The connections of the flood come from one address, and share one client's share."""
    shares = []
    async with serving(tmp_path) as app:
        for _ in range(_ATTEMPTS):
            alone, beside = await send_rates(app, FLOODS[name], connections)
            shares.append(beside / alone)
            assert samples_of(app.metrics, "gantry_fair_turns_total")["divided",] > 0
            if shares[-1] >= _SHARE:
                return
    assert max(shares) >= _SHARE, shares
