"""Groups of tests: for pytest-xdist, and for `make unit`.

Tests of one group run in one process, one after another. A group is a file, unless a directory's tests share servers
that are expensive to start.
"""

from dataclasses import dataclass
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
    "tests/proxy/embedded/contract",
)
_SHARED = {path: Group(path, external=True, rank=rank) for rank, path in enumerate(_DIRECTORIES)}


def group(file: PurePath) -> Group:
    """Return the group of a test file, given relative to the root of the checkout."""
    for path, shared in _SHARED.items():
        if file.is_relative_to(path):
            return shared
    return Group(file.as_posix(), external=False, rank=len(_SHARED))
