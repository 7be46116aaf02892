"""Operations at several workers, in one process; tests/proxy/workers has real processes."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest

from proxy.operations.catalogue import OPERATIONS
from proxy.operations.failures import Failure, FailureKind, OperationFailed, WorkerOutcome, conflict, not_found
from proxy.operations.operation import Operation, operation
from proxy.operations.workers import Merged, Workers
from tests.proxy.workers.fakes import FakeSupervisor

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Count:
    """A snapshot."""

    values: list[int]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        return cls([value for snapshot in snapshots for value in snapshot.values])


Result = int | Exception | None


@dataclass
class Source:
    """The context of a worker's operations. None: it never replies."""

    result: Result
    runs: int = 0

    async def run(self, factor: int) -> Count:
        self.runs += 1
        if self.result is None:
            await asyncio.Event().wait()
        if isinstance(self.result, Exception):
            raise self.result
        assert self.result is not None
        return Count([factor * self.result])


@operation("test.read", timeout=30)
async def read(source: Source, factor: int) -> Count:
    return await source.run(factor)


@operation("test.write", timeout=30, writes=True)
async def write(source: Source, factor: int) -> Count:
    return await source.run(factor)


@operation("test.hurried", timeout=0.01)
async def hurried(source: Source, factor: int) -> Count:
    return await source.run(factor)


class Replica:
    """Three workers with these results."""

    def __init__(self, *results: Result) -> None:
        self.supervisor = FakeSupervisor(len(results))
        self.sources = [Source(result) for result in results]
        self.outcomes: Counter[str] = Counter()
        self.workers = [self._worker(number) for number in range(len(results))]

    def _worker(self, number: int) -> Workers:
        async def prepare() -> None:
            workers.serve(self.sources[number], [read, write, hurried])

        workers = Workers(self.outcomes)
        workers.serve(self.sources[number], [read, write, hurried])
        workers.join(self.supervisor.workers[number], prepare)
        return workers

    async def failure(self, of: Operation[Any, int, Count], worker: int | None = None) -> OperationFailed:
        with pytest.raises(OperationFailed) as raised:
            await self.workers[0].gather(of, 1, worker)
        return raised.value


def test_every_merged_operation_has_a_snapshot_that_merges() -> None:
    from proxy.admin.grpc.groups import find_members
    from proxy.admin.grpc.replica import read_stats
    from proxy.admin.grpc.service import forward_call
    from proxy.admin.live.figures import read_figures

    operations: list[Operation[Any, Any, Any]] = [*OPERATIONS, find_members, read_stats, forward_call, read_figures]
    assert len(operations) > 25
    assert len({one.name for one in operations}) == len(operations)
    without = [one.name for one in operations if one.merged and not hasattr(one.snapshot_type, "merge")]
    assert without == []
    for one in operations:
        # Both have a JSON codec.
        assert one.parameters.core_schema
        assert one.snapshot.core_schema


async def test_single_worker_runs_an_operation_without_a_merge() -> None:
    workers = Workers(Counter())
    workers.serve(Source(2), [read])
    assert await workers.gather(read, 3) == Merged(Count([6]))
    assert await workers.gather(read, lambda worker: 4 + worker) == Merged(Count([8]))
    assert await workers.run(read, 3) == Count([6])


@pytest.mark.parametrize("kind", [read, write])
async def test_gather_merges_the_snapshots_of_all_workers(kind: Operation[Any, int, Count]) -> None:
    replica = Replica(2, 3, 5)
    assert await replica.workers[0].gather(kind, 10) == Merged(Count([20, 30, 50]))
    assert await replica.workers[1].gather(kind, lambda worker: worker) == Merged(Count([0, 3, 10]))
    assert await replica.workers[0].gather(kind, 10, worker=1) == Merged(Count([30]))
    assert [source.runs for source in replica.sources] == [2, 3, 2]
    assert replica.outcomes == {"answered": 5}


@pytest.mark.parametrize("kind", [read, write])
async def test_not_found_at_some_workers_is_not_a_failure(kind: Operation[Any, int, Count]) -> None:
    some = Replica(not_found("no such thing"), 1, not_found("no such thing"))
    assert await some.workers[0].gather(kind, 1) == Merged(Count([1]))
    none = Replica(*(not_found("no such thing") for _ in range(3)))
    failed = await none.failure(kind)
    assert failed.failure == Failure(FailureKind.NOT_FOUND, "no such thing")
    assert (failed.missing_workers, failed.outcomes) == ([], [])


async def test_read_leaves_out_workers_that_fail() -> None:
    unavailable = OperationFailed(Failure(FailureKind.UNAVAILABLE, "not now"))
    failing = Replica(1, unavailable, 1)
    assert await failing.workers[0].gather(read, 1) == Merged(Count([1, 1]), (1,))
    dead = Replica(1, 1, 1)
    dead.supervisor.kill(2)
    assert await dead.workers[0].gather(read, 1) == Merged(Count([1, 1]), (2,))
    assert dead.outcomes == {"answered": 1, "gone": 1}
    failed = await dead.failure(read, worker=2)
    assert failed.failure == Failure(FailureKind.UNAVAILABLE, "worker 2 does not answer")
    assert failed.missing_workers == [2]


async def test_write_fails_unless_every_worker_has_done_it() -> None:
    failing = Replica(1, conflict("not valid"), 1)
    failed = await failing.failure(write)
    assert failed.failure == Failure(FailureKind.CONFLICT, "not valid")
    assert failed.outcomes == [
        WorkerOutcome(0, None),
        WorkerOutcome(1, Failure(FailureKind.CONFLICT, "not valid")),
        WorkerOutcome(2, None),
    ]
    dead = Replica(1, 1, 1)
    dead.supervisor.kill(1)
    failed = await dead.failure(write)
    detail = "not every worker was reached: 1 did not answer"
    assert failed.failure == Failure(FailureKind.UNAVAILABLE, detail)
    assert failed.missing_workers == [1]
    assert failed.outcomes == [WorkerOutcome(0, None), WorkerOutcome(2, None)]


async def test_silent_worker_is_logged_once_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(1, None)
    for _ in range(2):
        assert (await replica.workers[0].gather(hurried, 1)).missing == (1,)
    assert caplog.text.count("worker 1 does not answer what the admin API asks it (late)") == 1
    replica.sources[1].result = 1
    assert (await replica.workers[0].gather(read, 1)).missing == ()
    replica.sources[1].result = None
    assert (await replica.workers[0].gather(hurried, 1)).missing == (1,)
    assert caplog.text.count("does not answer") == 2
    assert replica.outcomes == {"late": 3, "answered": 1}


@operation("test.nothing", timeout=30, merged=False)
async def nothing(source: Source, _: int) -> None:
    source.runs += 1


async def test_operation_without_a_snapshot_runs_at_another_worker() -> None:
    replica = Replica(1, 1)
    for workers, source in zip(replica.workers, replica.sources, strict=True):
        workers.serve(source, [nothing])
    await replica.workers[0].run(nothing, 1, worker=1)
    assert [source.runs for source in replica.sources] == [0, 1]


async def test_run_uses_one_worker() -> None:
    replica = Replica(2, 3, conflict("not valid"))
    assert await replica.workers[0].run(read, 10) == Count([20])
    assert await replica.workers[0].run(read, 10, worker=1) == Count([30])
    with pytest.raises(OperationFailed, match="not valid"):
        await replica.workers[0].run(read, 10, worker=2)
    replica.supervisor.kill(1)
    with pytest.raises(OperationFailed) as raised:
        await replica.workers[0].run(read, 10, worker=1)
    assert raised.value.missing_workers == [1]
    assert [source.runs for source in replica.sources] == [1, 1, 1]


@pytest.mark.parametrize("worker", [0, 1])
async def test_unexpected_error_is_logged_and_not_described(worker: int, caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(1, 1)
    replica.sources[worker].result = RuntimeError("a bug")
    failed = await replica.failure(read, worker)
    assert failed.failure.kind is FailureKind.INTERNAL
    assert "a bug" not in failed.failure.detail
    assert "a bug" in caplog.text
