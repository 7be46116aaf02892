"""Measurements of the running attack, as pytest's report and the table of `make attacks` show them."""

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Figures:
    """Measurements of one attack; those that it does not measure are None.

    deployment: of Gantry, or "transport": the gRPC transport with a service of tests, whose delays are CPU time.
    requests, failures, longest_stall, p99: of the good client; times in seconds.
    growth: peak growth of the server's memory in MiB.
    release: seconds until memory and connections are released after the attack.
    """

    deployment: str = ""
    requests: int | None = None
    failures: int | None = None
    longest_stall: float | None = None
    p99: float | None = None
    growth: float | None = None
    release: float | None = None

    def properties(self) -> list[tuple[str, object]]:
        """Return the measurements as properties of a pytest report."""
        return [item for item in asdict(self).items() if item[1] is not None]

    @classmethod
    def of(cls, properties: list[tuple[str, Any]]) -> "Figures":
        """Return the measurements in a report's properties."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in properties if name in names})


# Of the attack that runs.
current = Figures()


def reset(deployment: str) -> None:
    """Begin the measurements of an attack."""
    vars(current).update(asdict(Figures(deployment)))


def record_good_client(latencies: list[float], failures: int, p99: float, growth: float) -> None:
    """Add a good client's measurements; of several good clients the worst counts."""
    current.requests = (current.requests or 0) + len(latencies)
    current.failures = (current.failures or 0) + failures
    current.longest_stall = max(current.longest_stall or 0.0, *latencies, 0.0)
    current.p99 = max(current.p99 or 0.0, p99)
    current.growth = max(current.growth or 0.0, growth)


def record_release(seconds: float) -> None:
    """Add the time of a release."""
    current.release = max(current.release or 0.0, seconds)
