"""System calls of a process and all its threads, counted by strace."""

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmark.processes import tree

_ATTACH_SECONDS, _DETACH_SECONDS = 0.5, 20.0
_TOTAL = re.compile(r"^\s*100\.00\s+[\d.]+\s+(?:\d+\s+)?(\d+)\s+(?:\d+\s+)?total", re.MULTILINE)


def available() -> bool:
    """Return whether strace is installed."""
    return shutil.which("strace") is not None


@contextmanager
def counting(pid: int) -> Iterator[Callable[[], int]]:
    """Count the system calls of a process and its descendants; the function ends it and returns their number."""
    with tempfile.NamedTemporaryFile() as output:
        words = ["strace", "-c", "-f", "-q", "-o", output.name]
        words += [word for member in tree(pid) for word in ("-p", str(member))]
        tracer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(_ATTACH_SECONDS)

        def stop() -> int:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
            tracer.wait(_DETACH_SECONDS)
            return total(Path(output.name).read_text())

        try:
            yield stop
        finally:
            if tracer.poll() is None:
                tracer.send_signal(signal.SIGINT)
                tracer.wait(_DETACH_SECONDS)


def total(summary: str) -> int:
    """Return the number of calls in a summary of strace; 0 without one."""
    match = _TOTAL.search(summary)
    return int(match[1]) if match else 0
