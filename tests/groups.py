"""Groups of tests: for pytest-xdist, and for `make unit`.

Tests of one group run in one process, one after another. A group is a file, unless a directory's tests share servers
that are expensive to start; scenarios on an embedded broker are a group by directory and backend.
"""

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Group:
    """A group of tests.

    name: of the xdist group. external: the tests need programs outside the Python environment. rank: place of the group
    in the order in which groups start.
    """

    name: str
    external: bool
    rank: int


# Longest first, so that no long group is left for the end. All tests before real brokers are one group: more than a few
# Java servers at a time would starve everything else.
_DIRECTORIES = {
    "tests/cluster": "java-servers",
    "tests/faults": "java-servers",
    "tests/analytics": "spark",
    "tests/conformance": "conformance",
    "tests/deploy": "deploy",
}
_SHARED = {path: Group(name, external=True, rank=rank) for rank, (path, name) in enumerate(_DIRECTORIES.items())}


# Tests that start many processes of Gantry or kill them, or that compute for long: `make unit` leaves them out.
SLOW = (
    "tests/attacks/",
    "tests/docs/test_site.py",
    "tests/proxy/admin/http/test_schema.py",
    "tests/proxy/embedded/store/test_damage.py",
    "tests/proxy/embedded/store/test_kill.py",
    "tests/proxy/embedded/test_kill.py",
    "tests/proxy/observability/records/test_kill.py",
    "tests/proxy/tools/",
    "tests/proxy/workers/",
)
# Scenarios of tests/cluster on an embedded broker need no Java servers.
_EMBEDDED = re.compile(r"\bembedded-(in-process|socket)\b")


def group(nodeid: str) -> Group:
    """Return the group of a test by its node id, such as `tests/cluster/test_send.py::test_send[cluster]`."""
    file = nodeid.partition("::")[0]
    for path, shared in _SHARED.items():
        if file.startswith(f"{path}/"):
            embedded = _EMBEDDED.search(nodeid)
            return replace(shared, name=f"{file.rpartition('/')[0]} {embedded[0]}") if embedded else shared
    return Group(file, external=False, rank=len(_SHARED))
