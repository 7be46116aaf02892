"""Operations: named requests with typed parameters and typed snapshots, which every worker of a replica can run."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar, get_type_hints

from pydantic import TypeAdapter

# Seconds for another worker to reply: from its own state, after requests to brokers or clients, and after many of them.
LOCAL_TIMEOUT = 5.0
REMOTE_TIMEOUT = 15.0
BULK_TIMEOUT = 120.0

_Context = TypeVar("_Context")
_Parameters = TypeVar("_Parameters")
_Snapshot = TypeVar("_Snapshot")
# Unlike the others, of a type that is the same for a caller's argument and its result.
MergeableSnapshot = TypeVar("MergeableSnapshot", bound="Mergeable")


class Mergeable(Protocol):
    """A snapshot that several workers take, each of its own state."""

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Return the snapshot of the whole replica; `snapshots` are in the order of worker numbers."""


class Operation(Generic[_Context, _Parameters, _Snapshot]):
    """A function `run(context, parameters)` that other workers can call by name.

    writes: whether it changes something: then it fails unless every worker has done it. timeout: seconds that another
    worker has to reply. merged: whether all workers take part; otherwise one worker's reply is the whole reply.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[_Context, _Parameters], Awaitable[_Snapshot]],
        timeout: float,
        writes: bool,
        merged: bool,
    ) -> None:
        self.name = name
        self.run = run
        self.timeout = timeout
        self.writes = writes
        self.merged = merged

    def __call__(self, context: _Context, parameters: _Parameters) -> Awaitable[_Snapshot]:
        """Run it in this process."""
        return self.run(context, parameters)

    @cached_property
    def parameters(self) -> TypeAdapter[_Parameters]:
        """The JSON codec of the parameters."""
        hints = get_type_hints(self.run)
        del hints["return"]
        _, kind = hints.values()
        return TypeAdapter(kind)

    @cached_property
    def snapshot_type(self) -> Any:
        """The type that `run` returns."""
        return get_type_hints(self.run)["return"]

    @cached_property
    def snapshot(self) -> TypeAdapter[_Snapshot]:
        """The JSON codec of the snapshot."""
        return TypeAdapter(self.snapshot_type)


_Run = Callable[[_Context, _Parameters], Awaitable[_Snapshot]]


def operation(
    name: str, *, timeout: float = LOCAL_TIMEOUT, writes: bool = False, merged: bool = True
) -> Callable[[_Run[_Context, _Parameters, _Snapshot]], Operation[_Context, _Parameters, _Snapshot]]:
    """Make an operation of a function; its annotations are the types that travel between workers."""

    def decorate(run: _Run[_Context, _Parameters, _Snapshot]) -> Operation[_Context, _Parameters, _Snapshot]:
        return Operation(name, run, timeout, writes, merged)

    return decorate
