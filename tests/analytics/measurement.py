"""Time and peak memory of a command with all its processes."""

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Measurement(NamedTuple):
    """peak: resident bytes of all processes of the command. error: the reason if it failed."""

    seconds: float
    peak: int
    output: str
    error: str

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return not self.error


def measure(command: Sequence[str], limit: float) -> Measurement:
    """Run a command in a session of its own, for at most `limit` seconds."""
    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, _resident(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        output, errors = process.communicate(timeout=limit)
        lines = errors.strip().splitlines()
        error = "" if process.returncode == 0 else lines[-1] if lines else f"exit {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, error = "", f"longer than {limit:.0f} s"
        process.communicate()
    finally:
        done.set()
        watcher.join()
    return Measurement(time.monotonic() - begin, peak, output, error)


def _resident(session: int) -> int:
    """Return the resident bytes of a session's processes."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            total += int(fields[21]) * resource.getpagesize()
    return total
