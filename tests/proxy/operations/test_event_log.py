"""The tap, the rings and the log levels, without HTTP."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from protocol_negotiation.peer import HostPort, Peer
from proxy.core.events import Observation, Observer
from proxy.operations.audit import Audit, Write
from proxy.operations.event_log import Ring
from proxy.operations.log_levels import LogLevels
from proxy.operations.request_tap import RequestTap, Wanted, events

pytestmark = pytest.mark.anyio
_SOMEWHERE = HostPort("192.0.2.7", 50000)


def observation(code: str = "SEND_MESSAGE_V2", ok: bool = True, **more: Any) -> Observation:
    seen = Observation("remoting", code, 0 if ok else 1, ok, Peer(_SOMEWHERE, _SOMEWHERE), None, 0.0, 0.002)
    for name, value in more.items():
        setattr(seen, name, value)
    return seen


async def test_a_watcher_who_does_not_keep_up_is_told_what_was_dropped() -> None:
    observers: list[Observer] = []
    tap = RequestTap(observers, 1)
    watcher = tap.open(Wanted(topic="t"))
    assert watcher is not None
    assert tap.open(Wanted()) is None
    (observe,) = observers
    for _ in range(1_003):
        observe(observation(topic="t"))
        observe(observation(topic="other"))
    tap.close()
    told = [chunk async for chunk in events(watcher)]
    assert sum(chunk.startswith(b"event: request\n") for chunk in told) == 1_000
    assert told[-1] == b'event: dropped\ndata: {"requests":3}\n\n'
    assert tap.dropped == 3
    tap.leave(watcher)
    assert observers == []
    assert tap.open(Wanted()) is None


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Wanted(), True),
        (Wanted(code="SEND_MESSAGE_V2", protocol="remoting", ok=True, topic="t", group="g"), True),
        (Wanted(ok=False), False),
        (Wanted(protocol="grpc"), False),
        (Wanted(code="POP_MESSAGE"), False),
        (Wanted(group="other"), False),
        (Wanted(client_id="c1"), False),
    ],
)
def test_only_what_is_wanted_fits(wanted: Wanted, fits: bool) -> None:
    assert wanted.fits(observation(topic="t", group="g")) is fits


def test_a_ring_keeps_the_newest() -> None:
    ring: Ring[str] = Ring(2)
    for item in "abc":
        ring.add(item)
    assert list(ring.newest()) == [(3, "c"), (2, "b")]
    assert ring.total == 3


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("gantry.admin.test")
    logger.setLevel(logging.WARNING)
    yield logger
    logger.setLevel(logging.NOTSET)


async def test_a_level_comes_back_by_itself(logger: logging.Logger) -> None:
    levels = LogLevels()
    levels.set(logger.name, "error", None)
    # The second change does not make the first one the level to come back to.
    levels.set(logger.name, "debug", 0.01)
    assert logger.level == logging.DEBUG
    assert levels.one(logger.name).changed
    async with asyncio.timeout(30):
        while levels.one(logger.name).changed:
            await asyncio.sleep(0.005)
    assert logger.level == logging.WARNING


async def test_at_the_end_every_level_is_as_before(logger: logging.Logger) -> None:
    levels = LogLevels()
    levels.set(logger.name, "debug", 600)
    levels.close()
    assert logger.level == logging.WARNING


def test_strangers_do_not_push_out_who_wrote(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gantry.audit")
    now = 0.0
    audit = Audit(5, lambda: now)

    def write(at: float, caller: str, status: int) -> Write:
        return Write(at, caller, "192.0.2.7", "POST", "/v1/drain", "", None, status)

    audit.note(write(0.0, "operator", 200))
    for number in range(1_000):
        audit.note(write(1.0 + number / 1_000, "nobody", 401), stranger=True)
    assert len(caplog.messages) == 11
    now = 60.0
    audit.note(write(60.0, "nobody", 401), stranger=True)
    assert orjson.loads(caplog.messages[-1])["unlogged"] == 990
    newest = audit.newest()
    assert [one.caller for one in newest] == ["nobody"] * 5 + ["operator"]
    assert [one.at for one in newest] == sorted((one.at for one in newest), reverse=True)
