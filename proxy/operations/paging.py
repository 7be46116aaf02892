"""Pages of long lists.

A cursor holds the place of a page's last item in the order, so that items that come and go shift no page.
"""

import base64
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar

import orjson

from proxy.operations.cooperative_yield import CooperativeYield
from proxy.operations.failures import Failure, FailureKind, OperationFailed

# Items of a page, unless the request says otherwise.
DEFAULT_LIMIT = 100

_Item = TypeVar("_Item")
_Description = TypeVar("_Description")


class BadCursor(OperationFailed):
    """A cursor that is not of this list."""

    def __init__(self) -> None:
        super().__init__(Failure(FailureKind.NOT_FOUND, "this list has no page with that cursor"))


class Order(NamedTuple):
    """A sort key's name, and whether the greatest value comes first."""

    key: str
    descending: bool


class Place(NamedTuple):
    """The place of an item in an order. value: the sort key's; items with the same value are sorted by the rest."""

    value: Any
    worker: int
    id: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page of a list. after: the place of the last item of the page before."""

    order: Order
    limit: int
    after: Place | None = None

    @classmethod
    def parse(cls, sort: str, limit: int, cursor: str | None = None) -> Self:
        """Read a request. sort: `age`, or `-age` for the greatest first. Raises BadCursor."""
        order = Order(sort.removeprefix("-"), sort.startswith("-"))
        return cls(order, limit, None if cursor is None else _place(cursor, order))

    @property
    def whole_list(self) -> Self:
        """A request for all items."""
        return replace(self, limit=sys.maxsize, after=None)


@dataclass(frozen=True, slots=True)
class Cut:
    """The items of a page with their places, the number of items from there to the end, and of all."""

    places: list[Place]
    items: list[Any]
    rest: int
    total: int


async def cut(
    items: Iterable[_Item], matches: Callable[[_Item], bool], place: Callable[[_Item], Place], request: PageRequest
) -> Cut:
    """Return one page of the items that match. Values of places are all of one type. Raises BadCursor."""
    descending, after = request.order.descending, request.after
    found = []
    pause = CooperativeYield()
    for item in items:
        if matches(item):
            found.append((place(item), item))
        await pause.checkpoint()
    # Items themselves need not be comparable.
    found.sort(key=lambda pair: pair[0], reverse=descending)
    start = 0
    if after is not None:
        try:
            start = sum(1 for key, _ in found if (key >= after if descending else key <= after))
        except TypeError:
            raise BadCursor from None
    page = found[start : start + request.limit]
    return Cut([key for key, _ in page], [item for _, item in page], len(found) - start, len(found))


async def described(items: Iterable[_Item], describe: Callable[[_Item], _Description]) -> list[_Description]:
    """Return the descriptions of items."""
    pause = CooperativeYield()
    found = []
    for item in items:
        found.append(describe(item))
        await pause.checkpoint()
    return found


def cursor_of(place: Place, order: Order) -> str:
    """Return the cursor of the page after this place."""
    return base64.urlsafe_b64encode(orjson.dumps([*order, *place])).rstrip(b"=").decode()


def _place(cursor: str, order: Order) -> Place:
    try:
        key, descending, value, worker, item_id = orjson.loads(
            base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        )
    except (ValueError, TypeError):
        raise BadCursor from None
    if (key, descending) != order or not isinstance(item_id, str) or type(worker) is not int:
        raise BadCursor
    return Place(value, worker, item_id)
