"""The tap of one worker, without HTTP."""

import pytest

from proxy.core.events import Observer
from proxy.operations.failures import OperationFailed
from proxy.operations.request_tap import EventKind, RequestTap, TapEvent, TapFilter, events
from tests.proxy.operations.observations import observation

pytestmark = pytest.mark.anyio


async def test_slow_watcher_receives_the_number_of_dropped_requests() -> None:
    observers: list[Observer] = []
    tap = RequestTap(observers, 1)
    watcher = tap.open(TapFilter(topic="t"))
    with pytest.raises(OperationFailed):
        tap.open(TapFilter())
    (observe,) = observers
    for _ in range(1_003):
        observe(observation(topic="t"))
        observe(observation(topic="other"))
    tap.close()
    received = [event async for event in events(watcher)]
    assert sum(event.kind is EventKind.REQUEST for event in received) == 1_000
    assert received[-1] == TapEvent(EventKind.DROPPED, {"requests": 3})
    assert tap.dropped == 3
    tap.remove(watcher)
    assert observers == []
    with pytest.raises(OperationFailed):
        tap.open(TapFilter())


async def test_closed_stream_removes_its_watcher() -> None:
    observers: list[Observer] = []
    tap = RequestTap(observers, 1)
    stream = tap.stream(TapFilter(), seconds=3_600)
    assert await anext(stream) == TapEvent(EventKind.WATCHING)
    assert len(tap.watchers) == len(observers) == 1
    await stream.aclose()
    assert (tap.watchers, observers) == (set(), [])
    assert [event.kind async for event in tap.stream(TapFilter(), seconds=0.01)] == [EventKind.WATCHING]
    assert tap.watchers == set()


@pytest.mark.parametrize(
    ("tap_filter", "matches"),
    [
        (TapFilter(), True),
        (TapFilter(code="SEND_MESSAGE_V2", protocol="remoting", ok=True, topic="t", group="g"), True),
        (TapFilter(ok=False), False),
        (TapFilter(protocol="grpc"), False),
        (TapFilter(code="POP_MESSAGE"), False),
        (TapFilter(group="other"), False),
        (TapFilter(client_id="c1"), False),
    ],
)
def test_filter_matches_only_requests_with_all_of_its_values(tap_filter: TapFilter, matches: bool) -> None:
    assert tap_filter.matches(observation(topic="t", group="g")) is matches
