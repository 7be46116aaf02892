"""Cost of the metrics: one observed request, and one scrape.

    python -m tests.benchmark.metrics_cost [--seconds 2] [--topics 1000]

The hot path is measured in turns with metrics and with an observer that does nothing, so the difference holds on a busy
machine.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

from prometheus_client import generate_latest

from protocol_negotiation.peer import HostPort, Peer
from proxy.core.events import Observation
from proxy.observability.metrics import Metrics
from proxy.observability.metrics.snapshot import decode, encode
from proxy.settings.metrics import MetricsSettings

_TURNS = 20
_PEER = Peer(HostPort("10.0.0.1", 50000), HostPort("10.0.0.2", 8080))


def _observations(topics: int, count: int) -> list[Observation]:
    """Return sends and receives of both protocols, over some topics, with brokers' answers."""
    dice = random.Random(1)
    found = []
    for _ in range(count):
        code, protocol = dice.choice(
            (("SEND_MESSAGE_V2", "remoting"), ("PULL_MESSAGE", "remoting"), ("SendMessage", "grpc"))
        )
        seen = Observation(protocol, code, 0, True, _PEER, None, 0.0, dice.expovariate(200))  # type: ignore[arg-type]
        seen.topic = f"topic-{dice.randrange(topics)}"
        seen.group = "a-group"
        seen.broker = "broker-a"
        seen.broker_seconds = seen.seconds * 0.9
        seen.messages, seen.bytes_in, seen.bytes_out = 1, 300, 0
        found.append(seen)
    return found


def _nothing(_: Observation) -> None:
    """The observer of a replica without metrics."""


def _per_request(observe: Callable[[Observation], None], seen: list[Observation], seconds: float) -> float:
    """Return CPU time in µs."""
    count, begin = 0, time.process_time()
    while time.process_time() - begin < seconds:
        for one in seen:
            observe(one)
        count += len(seen)
    return (time.process_time() - begin) / count * 1e6


def _milliseconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1e3


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--topics", type=int, default=1000)
    options = parser.parse_args()
    metrics = Metrics(MetricsSettings())
    seen = _observations(options.topics, 20_000)
    each = options.seconds / 2 / _TURNS
    pairs = [(_per_request(metrics.observe, seen, each), _per_request(_nothing, seen, each)) for _ in range(_TURNS)]
    costs = [counted - empty for counted, empty in pairs]
    print(f"a request: {statistics.median(costs):.2f} µs ({min(costs):.2f} to {max(costs):.2f})")
    snapshot = metrics.snapshot()
    data = encode(snapshot)
    print(f"a scrape, {options.topics} topics, {metrics.settings.top} shown:")
    print(f"  in the event loop {_milliseconds(metrics.snapshot):.1f} ms")
    print(f"  in a thread       {_milliseconds(lambda: generate_latest(metrics)):.1f} ms")
    print(f"  by a worker       {_milliseconds(lambda: encode(snapshot)):.1f} ms for {len(data) / 1024:.0f} KiB")
    print(f"  by its parent     {_milliseconds(lambda: decode(data)):.1f} ms")


if __name__ == "__main__":
    main()
