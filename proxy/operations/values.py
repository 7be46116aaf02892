"""Base types of the replies and request bodies of operations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

_Item = TypeVar("_Item")
# Functions that merge the values of a field, by its name.
Rules = Mapping[str, Callable[[list[Any]], Any]]


class Answer(BaseModel):
    """Any part of a reply. Fields with a default are left out of the reply unless they are set."""

    model_config = ConfigDict(frozen=True)


class Reply(Answer):
    """A reply for which several workers may be asked."""

    missing_workers: list[int] | None = Field(
        None, description="workers that did not answer; their part of the answer is missing"
    )
    missing_replicas: list[str] | None = Field(
        None,
        description="replicas (admin.peers) that did not answer, and workers of replicas, as in `gantry-1 (worker 1)`; "
        "their part of the answer is missing",
    )


class WorkerOwned(Answer):
    """Something that belongs to one worker of one replica."""

    worker: int | None = Field(None, description="the worker that it belongs to", examples=[1])
    replica: str | None = Field(None, description="the replica that it belongs to", examples=["gantry-0"])


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a boolean is no integer")
    return value


# For integers of a request's body: as in JSON Schema, 4.0 is one, and true is not.
NO_BOOLEAN = BeforeValidator(_no_boolean)


class RequestBody(BaseModel):
    """The body of a request; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(Reply, Generic[_Item]):
    """A page of a list; `next` is the cursor of the next page, if there is one."""

    items: list[_Item]
    total: int = Field(description="number of items that match the filter, on all pages")
    next: str | None = Field(description="`cursor` of the next page", examples=[None])


class ItemList(Reply, Generic[_Item]):
    """A whole list."""

    items: list[_Item]


class Mergeable(Reply):
    """A reply about something that several workers know under the same key."""

    # Names of the fields that identify it.
    MERGE_KEY: ClassVar[tuple[str, ...]] = ()
    # How to merge fields; the others have the first value that is not null.
    MERGE_RULES: ClassVar[Rules] = {}

    @classmethod
    def merge(cls, items: Sequence[tuple[int, Self]]) -> Self:
        """Merge the replies of several workers. items: worker number and reply, in the order of numbers."""
        _, base = items[0]
        rules = cls.MERGE_RULES
        values = {name: [getattr(item, name) for _, item in items] for name in base.model_fields_set}
        return base.model_copy(update={name: rules.get(name, first)(value) for name, value in values.items()})


class WorkerDetail(BaseModel):
    """The reply of one worker, with the fields of the merged reply."""

    model_config = ConfigDict(extra="allow")

    worker: int


class Comparable(Mergeable):
    """A mergeable reply that lists each worker's values where they differ."""

    workers: list[WorkerDetail] | None = Field(None, description="each worker's values, where they differ")

    @property
    def compared(self) -> object:
        """The values that count as a difference."""
        return self

    @classmethod
    def merge(cls, items: Sequence[tuple[int, Self]]) -> Self:
        """Merge the fields; keep the single values where they differ."""
        merged = super().merge(items)
        if all(item.compared == items[0][1].compared for _, item in items):
            return merged
        return merged.model_copy(update={"workers": [item.detail(worker) for worker, item in items]})

    def detail(self, worker: int, *fields: str) -> WorkerDetail:
        """Return the given fields, or all, as one worker's."""
        values = self.model_dump(include=set(fields) or None, exclude_unset=True)
        return WorkerDetail(worker=worker, **values)


# Rules.


def first(values: list[Any]) -> Any:
    """Return the first value that is not null."""
    return next((value for value in values if value is not None), None)


def total(values: list[Any]) -> Any:
    """Return the sum of the values that are not null."""
    return sum(value for value in values if value is not None)


def largest(values: list[Any]) -> Any:
    """Return the largest value that is not null."""
    return max((value for value in values if value is not None), default=None)


def smallest(values: list[Any]) -> Any:
    """Return the smallest value that is not null."""
    return min((value for value in values if value is not None), default=None)


def either(values: list[Any]) -> Any:
    """Return whether any value is true; null if all are null."""
    known = [value for value in values if value is not None]
    return any(known) if known else None


def union(values: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the distinct items of all lists, sorted."""
    return sorted({item for value in values for item in value})


def concatenation(values: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the items of all lists, in their order."""
    return [item for value in values for item in value]


def _written(time: datetime) -> str:
    """Return a time in UTC with six digits of the second, also if they are zero: every time has the same length."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# A time in a reply.
Timestamp = Annotated[
    datetime,
    PlainSerializer(_written, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T08:00:00.000000Z"]}),
]
# RocketMQ's rule for names, and the characters of its own topics and groups.
Name = Annotated[str, Field(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$")]
Text = Annotated[str, Field(min_length=1, max_length=512)]


def at(seconds: float) -> datetime:
    """Return the time that is `seconds` after 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def at_milliseconds(milliseconds: int) -> datetime | None:
    """Return the time that is `milliseconds` after 1970; None for 0, and for a time beyond the calendar."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds) if milliseconds > 0 else None
    except OverflowError:
        return None
