"""What one worker tells another beside an answer, so that theirs can be joined exactly; nobody else is told it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_LISTENER: ContextVar[tuple[frozenset[str], dict[str, Any]] | None] = ContextVar("aside", default=None)


@contextmanager
def listening(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What is told under these names while this lasts."""
    told: dict[str, Any] = {}
    token = _LISTENER.set((frozenset(names), told))
    try:
        yield told
    finally:
        _LISTENER.reset(token)


def wanted(name: str) -> bool:
    """Whether somebody listens to this."""
    listener = _LISTENER.get()
    return listener is not None and name in listener[0]


def tell(name: str, make: Callable[[], Any]) -> None:
    """Tell what `make` gives, in JSON's types, where somebody listens."""
    listener = _LISTENER.get()
    if listener is not None and name in listener[0]:
        listener[1][name] = make()
