"""Counts by key, which are kept only for the keys that occur."""

from collections.abc import Hashable
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)


def count_down(counts: dict[_Key, int], key: _Key) -> None:
    """Count down; forget a key that no longer occurs."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
