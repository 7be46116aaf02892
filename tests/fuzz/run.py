"""Fuzz each target for some time, and print executions, coverage and findings.

    python -m tests.fuzz.run [--seconds N] [TARGET…]

Seconds per target: the option, or the variable FUZZ_SECONDS, or 600. An input that breaks a target is kept in
build/fuzz/TARGET, and belongs into `tests/fuzz/findings.py` with its correction. Writes build/fuzz.json. The exit
status is 1 if there is a finding.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.paths import ROOT

_BUILD = ROOT / "build"
_DEFAULT_SECONDS = 600
# Seconds and MiB at which libFuzzer counts an input as a finding by itself.
_TIMEOUT, _MEMORY = 20, 2048
_PROGRESS = re.compile(rb"^#(\d+)\t.*?cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)


@dataclass
class Outcome:
    """The search of one target.

    edges: reached edges of the instrumented code. finding: error and file of the input; empty if there is none.
    """

    target: str
    executions: int
    edges: int
    features: int
    corpus: int
    finding: str


def fuzz(target: str, seconds: int) -> Outcome:
    """Search for findings; print nothing."""
    directory = _BUILD / "fuzz" / target
    directory.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-timeout={_TIMEOUT}", f"-rss_limit_mb={_MEMORY}"]
    command = [sys.executable, "-m", "tests.fuzz.worker", target, str(directory), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    output = done.stdout + done.stderr
    (directory / "log.txt").write_bytes(output)
    progress = [tuple(map(int, match.groups())) for match in _PROGRESS.finditer(output)]
    executions, edges, features, corpus = progress[-1] if progress else (0, 0, 0, 0)
    return Outcome(target, executions, edges, features, corpus, _finding(output) if done.returncode else "")


def _finding(output: bytes) -> str:
    """Return the error and the input's file in the output of a search."""
    lines = output.decode(errors="replace").splitlines()
    error = next((line for line in lines if "Error" in line or "ERROR" in line or "Exception:" in line), "failed")
    file = next((line.partition("Test unit written to ")[2] for line in lines if "Test unit written to" in line), "")
    return f"{error.strip()[:300]} {Path(file).name}"


def main() -> int:
    """Run the command; return the exit status."""
    # Each needs its own process with instrumented imports; this one needs the names only.
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("FUZZ_SECONDS", _DEFAULT_SECONDS)))
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="default: all")
    arguments = parser.parse_args()
    outcomes = []
    print(f"{'target':18} {'executions':>11} {'edges':>6} {'features':>8} {'corpus':>6}  finding", flush=True)
    for target in arguments.targets or TARGETS:
        outcome = fuzz(target, arguments.seconds)
        outcomes.append(outcome)
        print(
            f"{target:18} {outcome.executions:>11,} {outcome.edges:>6} {outcome.features:>8} {outcome.corpus:>6} "
            f" {outcome.finding or 'none'}",
            flush=True,
        )
    (_BUILD / "fuzz.json").write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    failed = sum(1 for outcome in outcomes if outcome.finding)
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
