"""The ceiling of the memory: the setting, or a share of the tightest limit of the environment."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.overload.ceiling import Ceiling, ceiling, own_limit, shared_limit

MIB = 2**20


def control_group(root: Path, membership: str, files: dict[str, str]) -> Path:
    """Write a control group's files under `root`, and the process's membership."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/pod/main\n", {"pod/main/memory.max": "max\n", "pod/memory.max": f"{600 * MIB}\n"}),
        ("0::/pod\n", {"pod/memory.max": f"{900 * MIB}\n", "pod/memory.high": f"{600 * MIB}\n"}),
        # A container sees its own group as the root.
        ("0::/../../pod\n", {"memory.max": f"{600 * MIB}\n"}),
        ("4:cpu,memory:/docker/1\n", {"memory/docker/1/memory.limit_in_bytes": f"{600 * MIB}"}),
        (
            "7:cpu:/x\n4:memory:/docker/1\n0::/\n",
            {
                "memory/memory.limit_in_bytes": f"{600 * MIB}",
                "memory/docker/1/memory.limit_in_bytes": f"{2**63 - 4096}",
            },
        ),
    ],
    ids=["v2 of the parent", "v2 high", "v2 in a container", "v1", "v1 of the parent"],
)
def test_the_limit_of_a_control_group_is_found(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    assert shared_limit(control_group(tmp_path, membership, files)) == 600 * MIB


@pytest.mark.parametrize("membership", ["", "0::/pod\n", "1:cpu:/\n"])
def test_without_a_control_group_the_physical_memory_is_the_limit(tmp_path: Path, membership: str) -> None:
    assert shared_limit(control_group(tmp_path, membership, {"pod/memory.max": "max\n"})) > 512 * MIB


def test_the_default_is_a_share_of_the_limit() -> None:
    assert ceiling(None, 1, 80 * MIB, limit=1000 * MIB) == Ceiling(800 * MIB)


def test_workers_and_their_supervisor_share_the_setting() -> None:
    shares = [ceiling(848 * MIB, 4, 80 * MIB).memory for _ in range(4)]
    assert shares == [200 * MIB] * 4


def test_a_ceiling_below_the_started_process_is_raised() -> None:
    assert ceiling(128 * MIB, 1, 100 * MIB) == Ceiling(164 * MIB, raised=True)


def test_bounds_are_shares_of_the_ceiling() -> None:
    bounds = Ceiling(512 * MIB)
    assert (bounds.soft, bounds.hard, bounds.request_bytes) == (384 * MIB, 448 * MIB, 128 * MIB)


def test_a_resource_limit_lowers_the_ceiling() -> None:
    """RLIMIT_AS counts mappings, of which a process has more than resident memory from the start."""
    program = (
        "import resource\n"
        "from proxy.overload.ceiling import ceiling, own_limit\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "print(own_limit(), ceiling(2**31, 1, 0).memory)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    limit, memory = map(int, ended.stdout.split())
    assert 0 < limit < 2**30
    assert 0 < memory < 2**30


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY, reason="has a limit")
def test_without_a_resource_limit_there_is_none() -> None:
    assert own_limit() is None
