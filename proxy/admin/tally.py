"""Counts by request code and by broker: an observer that costs a request two look-ups and a few sums."""

from dataclasses import dataclass

from proxy.observation import POLLS, Observation

# Weight of the newest answer in the moving average.
_NEW = 0.05
# Codes and brokers remembered; there are far fewer of both.
_MOST = 1_000


@dataclass(slots=True)
class CodeTally:
    """Of one request code or rpc: how many were answered, how many of these by an error, and how long all took (s)."""

    answered: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class BrokerTally:
    """Of one broker: how many answers but to polls, the moving average and the longest since the start, in seconds."""

    answers: int = 0
    average: float = 0.0
    longest: float = 0.0


class Tally:
    """Codes by protocol and name, brokers by name. `observe` is an observer of the core."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, str], CodeTally] = {}
        self.brokers: dict[str, BrokerTally] = {}

    def observe(self, seen: Observation) -> None:
        """A request has been answered."""
        key = (seen.protocol, seen.code)
        code = self.codes.get(key)
        if code is None:
            code = self.codes[key] = CodeTally()
        code.answered += 1
        code.seconds += seen.seconds
        if not seen.ok:
            code.failed += 1
        seconds = seen.broker_seconds
        if seconds is not None and seen.broker is not None and seen.code not in POLLS:
            self._observe_broker(seen.broker, seconds)

    def _observe_broker(self, name: str, seconds: float) -> None:
        broker = self.brokers.get(name)
        if broker is None:
            # Clients name brokers, and may make names up.
            if len(self.brokers) >= _MOST:
                return
            broker = self.brokers[name] = BrokerTally(average=seconds)
        broker.answers += 1
        broker.average += _NEW * (seconds - broker.average)
        if seconds > broker.longest:
            broker.longest = seconds
