"""CPU time and memory of a process and its children, from /proc."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """Return the process and its living descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found.extend(int(word) for word in _text(task).split())
    return found


def cpu_seconds(pid: int) -> float:
    """Return user and system time of the process, its living descendants and its ended children."""
    # utime, stime, cutime and cstime are the fields 14 to 17 of the line.
    return sum(int(field) for member in tree(pid) for field in _stat(member)[11:15]) / TICKS


def cpu_wait_seconds(pid: int) -> list[float]:
    """Return how long the main thread of the process and of each living descendant was ready, but had no processor."""
    # The second field of /proc/PID/schedstat, in nanoseconds.
    texts = (_text(Path(f"/proc/{member}/schedstat")) for member in tree(pid))
    return [int(text.split()[1]) / 1e9 for text in texts if text]


def machine_cpu_seconds() -> tuple[float, float]:
    """Return the machine's used and its total CPU time since boot; time taken by other machines of the host is used."""
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / TICKS for word in _machine()[1:9])
    used = user + nice + system + irq + softirq + steal
    return used, used + idle + iowait


def rss_mb(pid: int) -> float:
    """Return resident memory of the process and its living descendants in MB."""
    pages = sum(int(fields[21]) for member in tree(pid) if (fields := _stat(member)))
    return round(pages * PAGE / 1e6, 1)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command name; none for an ended process."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _machine() -> list[str]:
    """Return the words of the first line of /proc/stat."""
    return _text(Path("/proc/stat")).partition("\n")[0].split()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
