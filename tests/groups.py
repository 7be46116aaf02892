"""Groups of tests: for pytest-xdist, and for `make unit`.

Tests of one group run in one process, one after another. A group is a file, unless a directory's tests share servers
that are expensive to start; scenarios on an embedded broker are a group by directory and backend.
"""

from dataclasses import dataclass, replace
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Group:
    """A group of tests.

    name: of the xdist group. external: the tests need programs outside the Python environment. rank: place of the group
    in the order in which groups start.
    """

    name: str
    external: bool
    rank: int


# Longest first, so that no long group is left for the end.
_DIRECTORIES = (
    "tests/cluster",
    "tests/faults",
    "tests/analytics",
    "tests/conformance",
    "tests/deploy",
)
_SHARED = {path: Group(path, external=True, rank=rank) for rank, path in enumerate(_DIRECTORIES)}


def group(file: PurePath, embedded: str = "") -> Group:
    """Return the group of a test file, given relative to the root of the checkout.

    embedded: the embedded backend that its scenarios run on, if any.
    """
    for path, shared in _SHARED.items():
        if file.is_relative_to(path):
            return replace(shared, name=f"{file.parent.as_posix()}[{embedded}]") if embedded else shared
    return Group(file.as_posix(), external=False, rank=len(_SHARED))
