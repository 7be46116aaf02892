"""Scatter-gather: an operation runs at every worker of the replica, and their snapshots are merged into one."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from proxy.operations.failures import Failure, FailureKind, OperationFailed, WorkerOutcome, failure_of
from proxy.operations.operation import MergeableSnapshot, Operation
from proxy.operations.values import Answer
from proxy.operations.work_pace import WorkPace
from proxy.workers.worker_rpc import SendPart, WorkerRpc, WorkerUnavailable

_log = logging.getLogger("gantry.admin")

_OPERATION = "operation"
# The first byte of a reply.
_SNAPSHOT, _FAILURE = b"S", b"F"
_FAILURES = TypeAdapter(Failure)
_Parameters = TypeVar("_Parameters")
_Snapshot = TypeVar("_Snapshot")
_Answer = TypeVar("_Answer", bound=Answer)


@dataclass(frozen=True, slots=True)
class Merged(Generic[_Snapshot]):
    """The merged snapshot of all workers, and replicas, but the missing ones, which did not reply."""

    value: _Snapshot
    missing: tuple[int, ...] = ()
    missing_replicas: tuple[str, ...] = ()

    def mark(self, answer: _Answer) -> _Answer:
        """Return the answer with the missing workers and replicas, where there are some."""
        update: dict[str, Any] = {}
        if self.missing:
            update["missing_workers"] = list(self.missing)
        if self.missing_replicas:
            update["missing_replicas"] = list(self.missing_replicas)
        return answer.model_copy(update=update) if update else answer


class _NoReply:
    """The outcome of a call that the other worker did not answer."""


class Workers:
    """The replica's workers: this one alone, or several that call each other.

    outcomes: calls to other workers, by `answered`, `gone` or `late`.
    """

    def __init__(self, outcomes: Counter[str]) -> None:
        self._outcomes = outcomes
        self.rpc: WorkerRpc | None = None
        self._prepare: Callable[[], Awaitable[None]] | None = None
        self._served: dict[str, tuple[Operation[Any, Any, Any], Any]] = {}
        # Of the operations that other workers request.
        self._pace = WorkPace()
        # Workers that did not reply to their last call: each silence is logged once.
        self._silent: set[int] = set()

    @property
    def number(self) -> int:
        """This worker's number, from 0."""
        return 0 if self.rpc is None else self.rpc.number

    @property
    def numbers(self) -> range:
        """The numbers of all workers."""
        return range(1) if self.rpc is None else self.rpc.numbers

    @property
    def several(self) -> bool:
        """Whether there are other workers."""
        return self.rpc is not None

    def join(self, rpc: WorkerRpc, prepare: Callable[[], Awaitable[None]]) -> None:
        """Call other workers, and serve theirs. prepare: awaited before each served call; it registers operations."""
        self.rpc = rpc
        self._prepare = prepare
        rpc.handlers[_OPERATION] = lambda content, send: self._pace.run(self._reply(content, send))

    def serve(self, context: Any, operations: Iterable[Operation[Any, Any, Any]]) -> None:
        """Run these operations with this context."""
        for operation in operations:
            self._served[operation.name] = operation, context

    @property
    def operations(self) -> list[Operation[Any, Any, Any]]:
        """All registered operations."""
        return [operation for operation, _ in self._served.values()]

    # Calling.

    async def run(
        self,
        operation: Operation[Any, _Parameters, _Snapshot],
        parameters: _Parameters,
        worker: int | None = None,
    ) -> _Snapshot:
        """Run an operation at one worker, by default here. Raises OperationFailed and, here, the operation's errors."""
        if worker in (None, self.number):
            return await self._run_here(operation, parameters)
        assert worker is not None
        reply = await self._run_there(operation, parameters, worker)
        if isinstance(reply, _NoReply):
            raise OperationFailed(_unavailable(worker), [worker])
        if isinstance(reply, Failure):
            raise OperationFailed(reply)
        return reply

    async def gather(
        self,
        operation: Operation[Any, _Parameters, MergeableSnapshot],
        parameters: _Parameters | Callable[[int], _Parameters],
        worker: int | None = None,
    ) -> Merged[MergeableSnapshot]:
        """Run an operation at every worker, or at the given one, and merge the snapshots.

        parameters: for all, or a function of the worker's number. NOT_FOUND at some workers does not matter where
        others succeed. A read leaves out workers that fail; a write that did not succeed at every worker has failed.
        Raises OperationFailed.
        """
        make: Callable[[int], _Parameters] = parameters if callable(parameters) else lambda _: parameters
        if not self.several:
            return Merged(await self._run_here(operation, make(0)))
        workers = self.numbers if worker is None else (worker,)
        results = await asyncio.gather(*(self._try(operation, make(number), number) for number in workers))
        replies = dict(zip(workers, results, strict=True))
        snapshots = {number: reply for number, reply in replies.items() if not isinstance(reply, _NoReply | Failure)}
        failures = {number: reply for number, reply in replies.items() if isinstance(reply, Failure)}
        missing = [number for number, reply in replies.items() if isinstance(reply, _NoReply)]
        if snapshots:
            failures = {
                number: failure for number, failure in failures.items() if failure.kind is not FailureKind.NOT_FOUND
            }
        if not snapshots or (operation.writes and (failures or missing)):
            raise _combined(replies, failures, missing)
        first, *_ = snapshots.values()
        merged = type(first).merge(list(snapshots.values()))
        return Merged(merged, tuple(sorted((*missing, *failures))))

    async def _run_here(self, operation: Operation[Any, _Parameters, _Snapshot], parameters: _Parameters) -> _Snapshot:
        _, context = self._served[operation.name]
        return await operation.run(context, parameters)

    async def _try(self, operation: Operation[Any, Any, Any], parameters: Any, worker: int) -> Any:
        """Run an operation at any worker; return its snapshot, or why there is none."""
        if worker != self.number:
            return await self._run_there(operation, parameters, worker)
        try:
            return await self._run_here(operation, parameters)
        except Exception as error:
            return _logged(operation.name, error)

    async def _run_there(
        self, operation: Operation[Any, _Parameters, _Snapshot], parameters: _Parameters, worker: int
    ) -> "_Snapshot | Failure | _NoReply":
        """Run an operation at another worker."""
        assert self.rpc is not None
        content = operation.name.encode() + b"\n" + operation.parameters.dump_json(parameters)
        try:
            (reply,) = await self.rpc.request(worker, _OPERATION, content, operation.timeout)
        except (WorkerUnavailable, TimeoutError) as error:
            self.missed(worker, error)
            return _NoReply()
        self.answered(worker)
        if reply[:1] == _FAILURE:
            return _FAILURES.validate_json(reply[1:])
        return operation.snapshot.validate_json(reply[1:])

    def answered(self, worker: int) -> None:
        """Count a reply."""
        self._outcomes["answered"] += 1
        self._silent.discard(worker)

    def missed(self, worker: int, error: WorkerUnavailable | TimeoutError) -> None:
        """Count a missing reply, and log the first one."""
        outcome = "late" if isinstance(error, TimeoutError) else "gone"
        self._outcomes[outcome] += 1
        if worker not in self._silent:
            self._silent.add(worker)
            _log.warning("worker %d does not answer what the admin API asks it (%s)", worker, outcome)

    # Serving.

    async def _reply(self, content: bytes, send: SendPart) -> None:
        assert self._prepare is not None
        await self._prepare()
        name, _, parameters = content.partition(b"\n")
        operation, context = self._served[name.decode()]
        try:
            snapshot = await operation.run(context, operation.parameters.validate_json(parameters))
        except Exception as error:
            await send(_FAILURE + _FAILURES.dump_json(_logged(operation.name, error)))
        else:
            await send(_SNAPSHOT + operation.snapshot.dump_json(snapshot, exclude_unset=True))


def _logged(name: str, error: Exception) -> Failure:
    """Return the failure; an unexpected error is logged, because the failure does not describe it."""
    failure = failure_of(error)
    if failure.kind is FailureKind.INTERNAL:
        _log.error("%s failed", name, exc_info=error)
    return failure


def _unavailable(worker: int) -> Failure:
    return Failure(FailureKind.UNAVAILABLE, f"worker {worker} does not answer")


def _combined(
    replies: Mapping[int, object], failures: Mapping[int, Failure], missing: Sequence[int]
) -> OperationFailed:
    """Return the error for an operation that some workers have not run."""
    received = {number: reply for number, reply in replies.items() if not isinstance(reply, _NoReply)}
    outcomes = [
        WorkerOutcome(number, reply if isinstance(reply, Failure) else None) for number, reply in received.items()
    ]
    differ = len({None if outcome.failure is None else outcome.failure.kind for outcome in outcomes}) > 1
    if not (received and missing) and not differ:
        outcomes = []
    if failures:
        failure = max(failures.values(), key=lambda failure: failure.kind)
    elif received:
        numbers = ", ".join(map(str, missing))
        failure = Failure(FailureKind.UNAVAILABLE, f"not every worker was reached: {numbers} did not answer")
    else:
        numbers = ", ".join(map(str, missing))
        failure = Failure(FailureKind.UNAVAILABLE, f"worker {numbers} does not answer")
    return OperationFailed(failure, missing, outcomes)
