"""The memory that a process may use: the setting, or a share of the tightest limit of its environment."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

# Share of the environment's limit; the rest is for the kernel's socket buffers and the page cache.
_DEFAULT_SHARE = 0.8
# Shares of the ceiling at which reads pause, and at which load is shed.
_SOFT_SHARE = 0.75
_HARD_SHARE = 0.875
# Share of the ceiling for requests that have not arrived in full, and for requests in flight.
_REQUEST_SHARE = 0.25
# Memory that the supervisor of several workers takes.
_SUPERVISOR = 48 * 2**20
# Least memory for clients, above that of the started process: a few requests of the maximum size.
_MIN_ROOM = 64 * 2**20
# cgroup v1 writes a number near 2^63 for "no limit".
_UNLIMITED = 2**60
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The memory of one process in bytes, and the bounds that follow from it.

    soft: reads pause. hard: load is shed. request_bytes: bytes of requests that have not arrived in
    full, and of requests in flight, each. raised: the ceiling is higher than the environment or the setting asks for,
    because the started process needs that much.
    """

    memory: int
    raised: bool = False

    @property
    def soft(self) -> int:
        return int(self.memory * _SOFT_SHARE)

    @property
    def hard(self) -> int:
        return int(self.memory * _HARD_SHARE)

    @property
    def request_bytes(self) -> int:
        return int(self.memory * _REQUEST_SHARE)


def ceiling(setting: int | None, workers: int, memory: int, limit: int | None = None) -> Ceiling:
    """Return the ceiling of one of `workers` processes.

    setting: `limits.memory`, for all workers together; None: a share of the environment's limit. memory: bytes that
    this process takes now. limit: the environment's limit for all workers; default: looked up.
    """
    if setting is None:
        setting = int((shared_limit() if limit is None else limit) * _DEFAULT_SHARE)
    share = setting if workers == 1 else (setting - _SUPERVISOR) // workers
    own = own_limit()
    if own is not None:
        share = min(share, own)
    least = memory + _MIN_ROOM
    return Ceiling(max(share, least), raised=share < least)


def shared_limit(root: Path = Path("/")) -> int:
    """Return the limit of all processes of this container in bytes: of its control groups, or the physical memory."""
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE, *_control_group_limits(root)]
    return min(limits)


def _control_group_limits(root: Path) -> list[int]:
    """Return the memory limits of this process's control groups and their parents (cgroups(7))."""
    limits = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        base, names = root / "sys/fs/cgroup", ["memory.max", "memory.high"]
        if "memory" in controllers.split(","):
            base, names = base / "memory", ["memory.limit_in_bytes"]
        elif controllers:
            continue
        group = Path(path.lstrip("/"))
        # In a container, the group may be mounted as the root of the hierarchy.
        for directory in (group, *group.parents):
            for name in names:
                text = _read(base / directory / name).strip()
                if text.isdecimal() and int(text) < _UNLIMITED:
                    limits.append(int(text))
    return limits


def own_limit() -> int | None:
    """Return the limit of this process's resident memory by setrlimit(2), in bytes; None without one.

    RLIMIT_AS and RLIMIT_DATA limit mappings, of which a started process has more than resident memory.
    """
    limits = []
    fields = [int(word) * _PAGE for word in _read(Path("/proc/self/statm")).split()]
    for kind, index in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY and fields:
            limits.append(soft - max(fields[index] - fields[1], 0))
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
