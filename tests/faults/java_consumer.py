"""A Java push consumer process that reports its assigned queues."""

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.cluster.servers import PEERS, Failed


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The number of queues that a consumer reported, and the time of the report."""

    at: float
    queues: int


class JavaConsumer:
    """A Java push consumer process, as a context manager; it reports each change of its assigned queues."""

    def __init__(self, endpoint: str, topic: str, group: str, client: str = "java-remoting") -> None:
        words = ("hold", "1", "--endpoint", endpoint, "--topic", topic, "--group", group)
        self.reports: list[QueueReport] = []
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, str(PEERS), "client", client, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    @property
    def owned(self) -> int:
        """The number of queues last reported."""
        return self.reports[-1].queues if self.reports else 0

    def kill(self) -> float:
        """Kill the process with SIGKILL and return the time."""
        at = time.monotonic()
        self._process.kill()
        self._process.wait()
        self._thread.join(5)
        return at

    def leave(self) -> float:
        """Shut the consumer down and return the time at which that began."""
        at = time.monotonic()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return at

    def wait(self, queues: int, timeout: float) -> float:
        """Wait until it reports this number of queues and return the time of the report."""
        deadline = time.monotonic() + timeout
        while self.owned != queues:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise Failed(f"owned {[(o.queues) for o in self.reports]} instead of {queues} after {timeout} s")
            time.sleep(0.01)
        return self.reports[-1].at

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                self.reports.append(QueueReport(time.monotonic(), said["queues"]))
