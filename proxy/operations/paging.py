"""Pages of long lists: sorted, cut where a cursor says.

A cursor holds the place of a page's last item in the order, so that what comes and goes meanwhile shifts nothing.
"""

import base64
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import orjson

from proxy.operations import worker_extras
from proxy.operations.cooperative_yield import Turns

# Items of a page, unless the request says.
DEFAULT_LIMIT = 100

_Item = TypeVar("_Item")
_Description = TypeVar("_Description")


class BadCursor(Exception):
    """A cursor that no page of this list has."""


class Order(NamedTuple):
    """How to sort: the key's name, and whether the greatest comes first."""

    key: str
    descending: bool

    @classmethod
    def parse(cls, text: str) -> "Order":
        """`age`, or `-age` for the greatest first."""
        return cls(text.removeprefix("-"), text.startswith("-"))


class Cut(NamedTuple):
    """A page: its items, how many there are in all, the cursor of the next page."""

    items: list[Any]
    total: int
    next: str | None


async def cut(
    items: Iterable[_Item],
    wanted: Callable[[_Item], bool],
    place: Callable[[_Item], tuple[Any, str]],
    order: Order,
    limit: int,
    cursor: str | None,
) -> Cut:
    """One page. place: what an item is sorted by, all of one type, and its id. Raises BadCursor."""
    found = []
    turns = Turns()
    for item in items:
        if wanted(item):
            found.append((place(item), item))
        await turns.take()
    # Items themselves need not be comparable.
    found.sort(key=lambda pair: pair[0], reverse=order.descending)
    start = 0
    if cursor is not None:
        after = read(cursor, order)
        try:
            start = sum(1 for key, _ in found if (key >= after if order.descending else key <= after))
        except TypeError:
            raise BadCursor from None
    part = found[start : start + limit]
    more = start + limit < len(found)
    worker_extras.tell("places", lambda: [key for key, _ in part])
    worker_extras.tell("ids", lambda: [key[1] for key, _ in found])
    return Cut([item for _, item in part], len(found), write(part[-1][0], order) if more and part else None)


async def described(items: Iterable[_Item], describe: Callable[[_Item], _Description]) -> list[_Description]:
    """A page's items as they are told."""
    turns = Turns()
    found = []
    for item in items:
        found.append(describe(item))
        await turns.take()
    return found


def write(place: tuple[Any, str], order: Order) -> str:
    """The cursor of the page behind this place."""
    return base64.urlsafe_b64encode(orjson.dumps([*order, *place])).rstrip(b"=").decode()


def read(cursor: str, order: Order) -> tuple[Any, str]:
    """The place. Raises BadCursor."""
    try:
        key, descending, value, number = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError):
        raise BadCursor from None
    if (key, descending) != order or not isinstance(number, str):
        raise BadCursor
    return value, number


# Of a worker's number.
MAX_DIGITS = 5
# Greater than every id.
_LAST = chr(0x10FFFF)


def of_worker(cursor: str, order: Order, worker: int) -> str:
    """The cursor of one worker for the page that follows in the list of all. Raises BadCursor.

    In the list of all, the ids of items are those that `joined` gives; of what has the same place, the items of the
    worker with the lower number come first, or, with the greatest first, last.
    """
    value, number = read(cursor, order)
    last, colon, own = number.partition(":")
    if not (colon and last.isdecimal() and len(last) <= MAX_DIGITS):
        raise BadCursor
    if worker != int(last):
        own = _LAST if worker < int(last) else ""
    return write((value, own), order)


def joined(worker: int, number: object) -> str:
    """The id that an item of a worker's has in the list of all, of its own one."""
    return f"{worker}:{number}"
