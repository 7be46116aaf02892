"""The process of `server`: start and stop, ports, CPU time, memory and log."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

ROOT = Path(__file__).resolve().parents[2]
# Name in the certificate, which clients are configured to expect.
SERVER_NAME = "interop.gantry.test"
_STOP_SECONDS = 60.0


class ServerFailed(AssertionError):
    """The server did not start or stop properly, or logged a traceback; the message has the end of its log."""


@dataclass(frozen=True)
class Server:
    """A running server on 127.0.0.1.

    plain, tls: ports.
    authority: PEM file of the CA to trust.
    """

    transport: str
    plain: int
    tls: int
    authority: Path
    log: Path
    process: "subprocess.Popen[str]"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def cpu_seconds(self) -> float:
        """Return the process's CPU time (clock_getcpuclockid(3): the clock's id is derived from the pid)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def memory(self) -> int:
        """Return the resident bytes."""
        return self._status("VmRSS")

    def peak_memory(self) -> int:
        """Return the maximum of resident bytes since `reset_peak`."""
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        """Reset `peak_memory` (proc(5): by writing 5 to clear_refs)."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def serving(transport: str, directory: Path, *, max_message: int | None = None, quiet: bool = True) -> Iterator[Server]:
    """Run a server process with a new certificate in `directory`. Raises ServerFailed if it fails to start or stop.

    max_message: limit of received messages in bytes, else the transport's default.
    quiet: fail if Gantry's transport has logged a traceback; False for servicers that raise on purpose.
    """
    certificate, key, authority = _issue(directory)
    log = directory / f"{transport}.log"
    arguments = ["--transport", transport, "--certificate", str(certificate), "--key", str(key)]
    arguments += ["--max-message", str(max_message)] if max_message is not None else []
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.server", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise ServerFailed(f"{transport} did not start:\n{_tail(log)}")
            yield Server(transport, **json.loads(line), authority=authority, log=log, process=process)
        except BaseException:
            process.kill()
            raise
        _stop(process, transport, log)
    if quiet and transport == "inprocess" and "Traceback" in log.read_text():
        raise ServerFailed(f"{transport} logged a traceback:\n{_tail(log)}")


def _stop(process: "subprocess.Popen[str]", transport: str, log: Path) -> None:
    process.terminate()
    try:
        status = process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise ServerFailed(f"{transport} did not stop after SIGTERM:\n{_tail(log)}") from None
    if status:
        raise ServerFailed(f"{transport} ended with {status}:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def _issue(directory: Path) -> tuple[Path, Path, Path]:
    certificate, key, authority = (directory / name for name in ("chain.pem", "key.pem", "authority.pem"))
    ca = trustme.CA()
    issued = ca.issue_cert(SERVER_NAME)
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    authority.write_bytes(ca.cert_pem.bytes())
    return certificate, key, authority
