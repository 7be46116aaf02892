"""Run the command line as a user does, against a server in another process.

Commands that end by themselves run in this process: a new process costs more than most of them take.
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

from proxy.__main__ import main
from tests.cluster.servers import ROOT, Failed

COMMAND = (sys.executable, "-m", "proxy")
# Seconds in which every command here must finish.
LIMIT = 100.0
# Variables with the super user of a server that authenticates.
ADMIN = {"GANTRY_ACCESS_KEY": "admin", "GANTRY_SECRET_KEY": "admin-secret"}


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Stdout as JSON objects, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        """The only JSON object of stdout."""
        [found] = self.objects
        return found


def environment(endpoint: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment without variables that change output or settings, with the endpoint."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GANTRY_") and key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    return {**kept, "GANTRY_ENDPOINT": endpoint, "TERM": "xterm-256color", **(more or {})}


class Shell:
    """Runs commands against an endpoint, given by the environment."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def run(self, *words: object, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end; fail on a traceback."""
        out, err = (TextIOWrapper(BytesIO(), write_through=True) for _ in range(2))
        with (
            TemporaryFile("w+") as file,
            mock.patch.dict(os.environ, environment(self.endpoint, env), clear=True),
            mock.patch.multiple(sys, stdin=file, stdout=out, stderr=err),
        ):
            file.buffer.write(stdin)
            file.seek(0)
            try:
                status: object = main([*map(str, words)])
            except SystemExit as end:
                # argparse's exit.
                status = end.code
        assert isinstance(status, int)
        return Done(status, *(_content(stream) for stream in (out, err)))

    def ok(self, *words: object, stdin: bytes = b"") -> Done:
        """Run a command that must succeed without a complaint."""
        done = self.run(*words, stdin=stdin)
        if done.status or done.err:
            raise Failed(f"gantry {' '.join(map(str, words))}: {done.status}\n{done.out[-2000:]}\n{done.err[-2000:]}")
        return done

    def refused(self, *words: object, status: int = 1, stdin: bytes = b"") -> str:
        """Run a command that must fail with this status and without output; return its one sentence."""
        done = self.run(*words, stdin=stdin)
        assert (done.status, done.out) == (status, ""), done
        [line] = done.err.splitlines()
        assert line.startswith("gantry: "), line
        return line.removeprefix("gantry: ")

    def topic(self, name: str, kind: str = "NORMAL", queues: int = 4) -> str:
        """Create a topic of this name."""
        self.ok("topics", "create", name, "--type", kind, "--queues", queues)
        return name

    @contextmanager
    def following(self, *words: object) -> Iterator["Following"]:
        """Run a command that continues; kill it if the test leaves it running."""
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(self.endpoint, {"PYTHONUNBUFFERED": "1"}),
        )
        try:
            yield Following(process)
        finally:
            process.kill()
            process.communicate()

    def on_terminal(self, *words: object, typed: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        """Run a command on a terminal with typed input; `out` has all that it shows."""
        main, other = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=ROOT,
            env=environment(self.endpoint, {"COLUMNS": "120", **(env or {})}),
        )
        os.close(other)
        os.write(main, typed)
        shown = bytearray()
        deadline = time.monotonic() + LIMIT
        try:
            while time.monotonic() < deadline:
                if not select.select([main], [], [], 1.0)[0]:
                    continue
                try:
                    shown += os.read(main, 65536)
                except OSError:
                    # The other end has closed.
                    break
            status = process.wait(LIMIT)
        finally:
            process.kill()
            process.wait()
            os.close(main)
        return Done(status, shown.decode(), "")


def _content(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


class Following:
    """A running command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def line(self) -> str:
        """Return the next line of output."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LIMIT)[0]:
            raise Failed("nothing was shown")
        # Lines are written and read one at a time: no buffer delays them.
        return os.read(self._process.stdout.fileno(), 65536).decode()

    def interrupt(self) -> Done:
        """Press Ctrl-C; wait for the end."""
        self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=LIMIT)
        assert b"Traceback" not in err, err.decode()
        return Done(self._process.returncode, out.decode(), err.decode())

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait()


def messages_of(shell: Shell, topic: str) -> list[dict[str, Any]]:
    """Return all messages of a topic, by queue and offset."""
    found = shell.ok("tail", topic, "--from", "earliest", "--json").objects
    return sorted(found, key=lambda message: (message["broker"], message["queue"], message["offset"]))


def embedded(directory: Path) -> str:
    """Return the configuration of a server on its own embedded broker."""
    return f'[embedded]\ndirectory = "{directory}"\nsync = "os"\n'
