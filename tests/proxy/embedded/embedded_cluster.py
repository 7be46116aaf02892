"""An embedded broker with the interface of a real cluster, for the scenarios of tests/cluster."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.cluster import coverage
from tests.cluster.servers import HOST, PEERS, ROOT, START_TIMEOUT, Failed, accepts
from tests.ports import free_port


@dataclass(frozen=True)
class InProcess:
    """A Gantry in the broker's own process."""

    port: int

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{HOST}:{self.port}"


class EmbeddedCluster:
    """The process of `serve.py`, with the interface of `Cluster`. It runs inside the context.

    config: TOML of the Gantry in its process.
    """

    def __init__(self, directory: Path, *, durable: bool = False, proxy: bool = False, config: str = "") -> None:
        self.port = free_port()
        self.proxy = InProcess(free_port()) if proxy else None
        self.log = directory / "embedded.log"
        self._command = [sys.executable, "-m", "tests.proxy.embedded.serve", str(self.port)]
        if self.proxy is not None:
            coverage.add_proxy(self.proxy.address)
            file = directory / "gantry.toml"
            file.write_text(config)
            self._command += ["--listen", str(self.proxy.port), "--config", str(file)]
        if durable:
            self._command += ["--directory", str(directory / "store")]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def broker(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def namesrv(self) -> str:
        return self.broker

    @property
    def addresses(self) -> dict[str, str]:
        return {"namesrv": self.broker, "broker": self.broker}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if "Traceback" in self.log.read_text():
            raise Failed(f"the embedded broker logged a traceback:\n{self.log.read_text()[-6000:]}")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT
        ports = [self.port, *([self.proxy.port] if self.proxy is not None else [])]
        while not all(map(accepts, ports)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Failed(f"the embedded broker did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def admin(self, *words: str) -> str:
        """Return the output of mqadmin."""
        command = [sys.executable, str(PEERS), "admin", *words, "-n", self.namesrv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr
