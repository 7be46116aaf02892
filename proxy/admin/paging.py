"""Pages of long lists: sorted, cut where a cursor says.

A cursor holds the place of a page's last item in the order, so that what comes and goes meanwhile shifts nothing.
"""

import base64
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import orjson

from proxy.admin.turns import Turns

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
        after = _read(cursor, order)
        try:
            start = sum(1 for key, _ in found if (key >= after if order.descending else key <= after))
        except TypeError:
            raise BadCursor from None
    part = found[start : start + limit]
    more = start + limit < len(found)
    return Cut([item for _, item in part], len(found), _write(part[-1][0], order) if more and part else None)


async def described(items: Iterable[_Item], describe: Callable[[_Item], _Description]) -> list[_Description]:
    """A page's items as they are told."""
    turns = Turns()
    found = []
    for item in items:
        found.append(describe(item))
        await turns.take()
    return found


def _write(place: tuple[Any, str], order: Order) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([*order, *place])).rstrip(b"=").decode()


def _read(cursor: str, order: Order) -> tuple[Any, str]:
    try:
        key, descending, value, number = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError):
        raise BadCursor from None
    if (key, descending) != order or not isinstance(number, str):
        raise BadCursor
    return value, number
