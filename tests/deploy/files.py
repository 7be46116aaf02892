"""Paths and helpers for tests of deployment files."""

import os
import subprocess
from pathlib import Path

from proxy.settings.loading import load
from proxy.settings.model import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def run(*command: object, cwd: Path = DEPLOY, **environment: str) -> str:
    """Run a program and return its output; fail unless it succeeds."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def settings(file: Path) -> Settings:
    """Load a configuration file as Gantry does."""
    return load(file, {})


def drain_seconds(found: Settings) -> float:
    """Return the maximum seconds that a replica with these settings needs to stop, farewells included."""
    return found.drain_delay + 1 + found.drain_timeout + 2
