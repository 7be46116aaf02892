"""The effects of incidents on traffic, which `traffic.py` applies. Times are minutes since the world's begin."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.analytics.field.world import Array


@dataclass(frozen=True, slots=True)
class Fault:
    """Requests fail or are slow. where: column of the rows → accepted values. amount: probability of a failure, or
    factor of the latency, at a minute.
    """

    start: float
    end: float
    where: dict[str, tuple[int, ...]]
    amount: Callable[[Array], Array]
    # Response codes in remoting and gRPC; None: slow.
    codes: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A group takes this share of the messages, of all queues or of some; then it catches up. Open: it never does."""

    group: int
    start: float
    end: float
    rate: float
    queues: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Retries:
    """A share of a group's deliveries fails and is repeated; of the last attempts a share become dead letters."""

    group: int
    start: float
    end: float
    share: float
    dead: float


@dataclass(frozen=True, slots=True)
class Span:
    """Something of one subject between two times."""

    subject: int
    start: float
    end: float
    value: float = 0.0


@dataclass(slots=True)
class Scenario:
    faults: list[Fault] = field(default_factory=list)
    slowdowns: list[Slowdown] = field(default_factory=list)
    retries: list[Retries] = field(default_factory=list)
    # Group, minute of the reset, minutes that are delivered again.
    rewinds: list[Span] = field(default_factory=list)
    # Group and queue whose offset is not committed.
    commits: list[tuple[Span, int]] = field(default_factory=list)
    # Topic and share of its messages with one key.
    hot: list[Span] = field(default_factory=list)
    # Client and the delay in ms of its scheduled messages: wrong clocks.
    clocks: list[Span] = field(default_factory=list)
    # Client and connections per minute: one for every request.
    churn: list[Span] = field(default_factory=list)
    # Address prefixes whose connections are reset, as a client's number; value: resets per client and hour.
    resets: list[tuple[Span, tuple[int, ...]]] = field(default_factory=list)
    # A replica that begins in the middle: number and minute.
    joining: Span | None = None
    # A replica that is drained for a deployment: number and minute.
    drained: Span | None = None


def step(value: float) -> Callable[[Array], Array]:
    """Return the same amount at all times."""
    return lambda minutes: np.full(minutes.shape, value)


def line(start: float, end: float, last: float) -> Callable[[Array], Array]:
    """Return an amount that grows from nothing to `last` in a straight line."""
    return lambda minutes: last * np.clip((minutes - start) / (end - start), 0, 1)


def ramp(start: float, end: float, first: float, last: float) -> Callable[[Array], Array]:
    """Return an amount that grows exponentially from `first` to `last`."""
    return lambda minutes: first * (last / first) ** np.clip((minutes - start) / (end - start), 0, 1)
