"""The last hour of traffic: of everything, of one topic, or of one group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from proxy.operations.failures import FailureKind, OperationFailed, failure_of
from proxy.operations.groups.known_groups import check_group
from proxy.operations.history.history import NAME_STEP, STEP, History
from proxy.operations.history.second import Second, Sums, add_counts, percentile
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, Reply, Timestamp, at
from remoting.errors import RemotingError

_FIGURES = ("requests", "failed", "sent", "delivered", "bytes_in", "bytes_out")


class HistoryStep(Answer):
    """The traffic of one step; figures are per second."""

    start: Timestamp
    requests: float
    grpc: float | None = Field(description="requests of gRPC clients; null for a topic or group")
    failed: float
    sent: float = Field(description="messages sent")
    delivered: float = Field(description="messages delivered")
    bytes_in: float
    bytes_out: float
    p50: float | None = Field(description="median latency in ms, without long polls; null for a topic or group")
    p99: float | None


class TrafficHistory(Reply):
    """The steps of the last hour, the newest last. The requests of a group are the messages delivered to it."""

    step_seconds: int = Field(examples=[10])
    items: list[HistoryStep]


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """One topic, or else one group; neither: all traffic."""

    topic: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sums of one step. figures: in the order of `_FIGURES`; grpc: requests of gRPC clients."""

    at: int
    seconds: int
    figures: list[int]
    grpc: int
    latencies: dict[int, int]

    def present(self, whole: bool) -> HistoryStep:
        """Return the figures per second. whole: whether the step is of all traffic."""
        rates = {name: round(figure / self.seconds, 2) for name, figure in zip(_FIGURES, self.figures, strict=True)}
        return HistoryStep(
            start=at(self.at),
            grpc=round(self.grpc / self.seconds, 2) if whole else None,
            p50=percentile(self.latencies, 0.5),
            p99=percentile(self.latencies, 0.99),
            **rates,
        )


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """The steps of one worker, or of all."""

    whole: bool
    step_seconds: int
    steps: list[StepSums]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Add the steps that begin at the same time."""
        parts: dict[int, list[StepSums]] = {}
        for snapshot in snapshots:
            for step in snapshot.steps:
                parts.setdefault(step.at, []).append(step)
        return cls(snapshots[0].whole, snapshots[0].step_seconds, [_add(parts[start]) for start in sorted(parts)])

    @property
    def quiet(self) -> bool:
        """Whether there was no traffic."""
        return not any(any(step.figures) for step in self.steps)

    def history(self) -> TrafficHistory:
        """Return the reply."""
        return TrafficHistory(step_seconds=self.step_seconds, items=[step.present(self.whole) for step in self.steps])


def _add(steps: Sequence[StepSums]) -> StepSums:
    return StepSums(
        steps[0].at,
        max(step.seconds for step in steps),
        [sum(figures) for figures in zip(*(step.figures for step in steps), strict=True)],
        sum(step.grpc for step in steps),
        add_counts(step.latencies for step in steps),
    )


@operation("traffic.history")
async def read_history(services: AdminServices, query: HistoryQuery) -> HistorySnapshot:
    """Return the last hour of traffic."""
    history = services.history
    if query.topic is None and query.group is None:
        return HistorySnapshot(True, STEP, [_total(step, history) for step in history.steps()])
    kind, name = ("topics", query.topic) if query.topic is not None else ("groups", query.group or "")
    steps = [
        StepSums(start, _covered(start, NAME_STEP, history), _figures(sums), 0, {})
        for start, sums in history.name_steps(kind, name)
    ]
    return HistorySnapshot(False, NAME_STEP, steps)


@operation("traffic.check_name", timeout=REMOTE_TIMEOUT, merged=False)
async def check_name(services: AdminServices, query: HistoryQuery) -> None:
    """Raise OperationFailed or TopicNotExist if there is no such topic or group.

    Without an answer of every broker it may exist, which is no error: histories do not need brokers.
    """
    replica = services.replica
    try:
        if query.topic is not None:
            await replica.core.backend.route(query.topic)
        elif query.group is not None:
            await check_group(replica, query.group)
    except (OperationFailed, RemotingError) as error:
        if failure_of(error).kind is FailureKind.NOT_FOUND:
            raise


def _total(step: Second, history: History) -> StepSums:
    sums = Sums()
    for of_protocol in step.protocols.values():
        sums.add(of_protocol)
    grpc = step.protocols["grpc"].requests
    return StepSums(step.at, _covered(step.at, STEP, history), _figures(sums), grpc, step.latencies)


def _covered(start: int, size: int, history: History) -> int:
    """Return the number of seconds of a step that are complete."""
    return max(min(size, history.end - start), 1)


def _figures(sums: Sums) -> list[int]:
    return [getattr(sums, name) for name in _FIGURES]
