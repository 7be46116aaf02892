from proxy.auth.failures import FailureDelays
from tests.proxy.fakes import Clock

HOST, OTHER = "192.0.2.66", "192.0.2.1"


def test_failures_one_after_the_other_are_delayed_up_to_three_seconds() -> None:
    clock = Clock()
    failures = FailureDelays(clock)
    delays = []
    for _ in range(12):
        delays.append(failures.fail(HOST))
        clock.now += delays[-1]
    assert delays[:4] == [0.0, 0.0, 0.0, 0.1]
    assert sorted(delays) == delays
    assert delays[-1] == 3.0


def test_many_failures_at_once_are_delayed_longer_up_to_a_minute() -> None:
    clock = Clock()
    failures = FailureDelays(clock)
    delays = [failures.fail(HOST) for _ in range(3000)]
    assert delays[20] < 8.0
    assert delays[100] > 30.0
    assert max(delays) == 63.0
    assert failures.fail(OTHER) == 0.0
    # The backlog is over, and the failures count half.
    clock.now += 70.0
    assert failures.fail(HOST) == 3.0
