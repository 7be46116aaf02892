"""Groups of tests: for pytest-xdist, and for `make unit`.

Tests of one group run in one process, one after another. A group is a file, unless a directory's tests share servers
that are expensive to start; scenarios on an embedded broker are a group by directory and backend.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """A group of tests.

    name: of the xdist group. external: the tests need programs outside the Python environment. rank: place of the group
    in the order in which groups start.
    """

    name: str
    external: bool
    rank: int


# By the beginning of a file's path. Tests before real brokers are few groups: more than a few Java servers at a time
# would starve everything else.
_GROUPS = {
    "tests/cluster/test_acl": "servers with users",
    "tests/cluster/test_access": "servers with users",
    "tests/faults/": "failing servers",
    "tests/cluster/": "servers",
    "tests/analytics/": "spark",
    "tests/deploy/": "deploy",
    "tests/conformance/": "conformance",
}
# The longest first, so that no long group is left for the end.
_RANKS = ("servers", "spark", "servers with users", "failing servers", "deploy", "conformance")


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
    for path, name in _GROUPS.items():
        if file.startswith(path):
            embedded = _EMBEDDED.search(nodeid)
            own = f"{file.rpartition('/')[0]} {embedded[0]}" if embedded else name
            return Group(own, external=True, rank=_RANKS.index(name))
    return Group(file, external=False, rank=len(_RANKS))
