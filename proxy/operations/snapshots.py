"""Snapshots that workers exchange: lists of keyed items, and pages of lists."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from proxy.operations.paging import PageRequest, Place, cursor_of
from proxy.operations.values import Answer, ItemList, Mergeable, Page

_Item = TypeVar("_Item")
_Entry = TypeVar("_Entry", bound=Mergeable)
_Event = TypeVar("_Event")
_Row = TypeVar("_Row", bound=Answer)


@dataclass(frozen=True, slots=True)
class Entries(Generic[_Entry]):
    """Items with keys, of one worker or of all."""

    worker: int
    items: list[_Entry]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Merge items with the same key, in the order in which the keys first appear."""
        pairs = [(snapshot.worker, item) for snapshot in snapshots for item in snapshot.items]
        return cls(snapshots[0].worker, merge_by_key(pairs))

    @property
    def single(self) -> _Entry:
        """The only item."""
        (item,) = self.items
        return item

    @property
    def item_list(self) -> ItemList[_Entry]:
        """All items."""
        return ItemList(items=self.items)


def merge_by_key(pairs: Sequence[tuple[int, _Entry]]) -> list[_Entry]:
    """Merge items with the same key. pairs: worker number and item."""
    groups: dict[tuple[Any, ...], list[tuple[int, _Entry]]] = {}
    for worker, item in pairs:
        groups.setdefault(tuple(getattr(item, name) for name in item.MERGE_KEY), []).append((worker, item))
    return [type(group[0][1]).merge(group) for group in groups.values()]


@dataclass(frozen=True, slots=True)
class NamedPage(Generic[_Entry]):
    """A page of a list of things that several workers may know by the same name.

    names: all names that match the filter. items: the first ones after the cursor, up to the page's limit; their merge
    key is the name.
    """

    worker: int
    names: list[str]
    items: list[_Entry]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Merge items with the same name. Any name of the merged page is on the page of each worker that knows it."""
        pairs = [(snapshot.worker, item) for snapshot in snapshots for item in snapshot.items]
        names = sorted({name for snapshot in snapshots for name in snapshot.names})
        return cls(snapshots[0].worker, names, merge_by_key(pairs))

    def filter(self, matches: Callable[[_Entry], bool]) -> Self:
        """Return the page without the items that do not match; `items` must have every name."""
        items = [item for item in self.items if matches(item)]
        return replace(self, names=[getattr(item, item.MERGE_KEY[0]) for item in items], items=items)

    def page(self, request: PageRequest, present: Callable[[_Entry], _Row]) -> Page[_Row]:
        """Return the page."""
        after = request.after
        rest = len(self.names) if after is None else sum(1 for name in self.names if name > after.id)
        items = {getattr(item, item.MERGE_KEY[0]): item for item in self.items}
        names = sorted(name for name in items if after is None or name > after.id)[: request.limit]
        last = cursor_of(Place("", 0, names[-1]), request.order) if names and rest > len(names) else None
        return Page(items=[present(items[name]) for name in names], total=len(self.names), next=last)


@dataclass(frozen=True, slots=True)
class SortedPage(Generic[_Item]):
    """A page of a list of things that belong to one worker each.

    entries: the first ones after the cursor, with their places in the order. rest: number of things after the cursor.
    total: number of things that match the filter.
    """

    descending: bool
    entries: list[tuple[Place, _Item]]
    rest: int
    total: int

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Merge the entries in their order."""
        descending = snapshots[0].descending
        entries = [entry for snapshot in snapshots for entry in snapshot.entries]
        entries.sort(key=lambda entry: entry[0], reverse=descending)
        rest = sum(snapshot.rest for snapshot in snapshots)
        return cls(descending, entries, rest, sum(snapshot.total for snapshot in snapshots))

    def page(self, request: PageRequest) -> Page[_Item]:
        """Return the page."""
        chosen = self.entries[: request.limit]
        last = cursor_of(chosen[-1][0], request.order) if chosen and self.rest > len(chosen) else None
        return Page(items=[item for _, item in chosen], total=self.total, next=last)

    def first(self, limit: int) -> ItemList[_Item]:
        """Return the first items."""
        return ItemList(items=[item for _, item in self.entries[:limit]])


def newest(
    worker: int, events: Iterable[tuple[float, int, _Event]], describe: Callable[[_Event], _Row], limit: int
) -> SortedPage[_Row]:
    """Return a worker's newest events. events: time (seconds since 1970), number and event."""
    found = sorted(
        ((Place(seconds, worker, f"{number:019}"), event) for seconds, number, event in events),
        key=lambda entry: entry[0],
        reverse=True,
    )
    entries = [(place, describe(event)) for place, event in found[:limit]]
    return SortedPage(True, entries, len(found), len(found))


@dataclass(frozen=True, slots=True)
class Holders:
    """The workers at which something is, for an operation that only one of them can do."""

    workers: list[int]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Return the workers of all snapshots."""
        return cls([worker for snapshot in snapshots for worker in snapshot.workers])
