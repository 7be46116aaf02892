"""Starts `server` and looks at the process: its ports, its memory, what it had to say."""

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
# What the certificate is for; clients are told to expect it.
SERVER_NAME = "interop.gantry.test"
_STOP_SECONDS = 60.0


class ServerFailed(AssertionError):
    """The server did not start, end, or keep quiet; the message holds the end of its log."""


@dataclass(frozen=True)
class Server:
    """A running server on 127.0.0.1. `plain` and `tls` are ports, `authority` the PEM file to trust."""

    transport: str
    plain: int
    tls: int
    authority: Path
    log: Path
    process: "subprocess.Popen[str]"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def work(self) -> float:
        """Seconds of processor time that it has had (clock_getcpuclockid(3): the process' clock is made of its pid)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def memory(self) -> int:
        """Resident bytes."""
        return self._status("VmRSS")

    def peak_memory(self) -> int:
        """The most resident bytes since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """proc(5): writing 5 to clear_refs resets the peak."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def serving(transport: str, directory: Path, *, largest: int | None = None, quiet: bool = True) -> Iterator[Server]:
    """A server process with a certificate of its own in `directory`. Raises ServerFailed also when it ends badly.

    `largest`: bytes of a message that is received, else the transport's default. `quiet`: no client may make our
    transport log a traceback; False where servicers raise on purpose.
    """
    certificate, key, authority = _issue(directory)
    log = directory / f"{transport}.log"
    words = ["--transport", transport, "--certificate", str(certificate), "--key", str(key)]
    words += ["--largest", str(largest)] if largest is not None else []
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.server", *words],
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
        raise ServerFailed(f"{transport} did not end after SIGTERM:\n{_tail(log)}") from None
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
    authority.write_bytes(ca.cert_pem.bytes())
    return certificate, key, authority
