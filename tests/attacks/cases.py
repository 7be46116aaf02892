"""Cases of parametrised attacks."""

from collections.abc import Iterable
from typing import Any

import pytest


def cases(names: Iterable[str], *quick: str) -> list[Any]:
    """Return the parameters of an attack by name; those that are not quick run in `make attacks` only."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.complete) for name in names]
