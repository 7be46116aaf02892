"""Run every attack of this folder against each deployment, and print one table of what it did to a good client.

    python -m tests.attacks.run [--on embedded,workers,cluster] [--only EXPRESSION]

The attacks are the tests of this folder; each has its bounds. Writes build/attacks.json. The exit status is 1 if a
bound is missed.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.attacks.deployments import DEPLOYMENTS_VARIABLE, Deployment
from tests.attacks.figures import Figures
from tests.paths import ROOT

REPORT = ROOT / "build" / "attacks.json"
_FOLDER = Path("tests/attacks")
_FIGURES = ("requests", "failures", "longest stall", "p99", "growth", "release")
_HEADER = ("attack", "deployment", *_FIGURES, "")


@dataclass
class Outcome:
    """One attack on one deployment. error: the reason why a bound was missed; empty if all held."""

    attack: str
    figures: Figures
    seconds: float
    error: str = ""

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        figures = self.figures
        return (
            self.attack,
            figures.deployment,
            _number(figures.requests, "d"),
            _number(figures.failures, "d"),
            _number(figures.longest_stall, ".3f", " s"),
            _number(figures.p99, ".3f", " s"),
            _number(figures.growth, "+.0f", " MiB"),
            _number(figures.release, ".1f", " s"),
            "MISSED" if self.error else "held",
        )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


class Recorder:
    """Collects the outcome of each test from pytest's reports."""

    outcomes: ClassVar[dict[str, Outcome]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = self.outcomes.setdefault(report.nodeid, Outcome(_attack(report.nodeid), Figures(), 0.0))
        outcome.seconds += report.duration
        if report.failed:
            outcome.error += report.longreprtext
        if report.when == "teardown":
            outcome.figures = Figures.of(report.user_properties)


def _attack(nodeid: str) -> str:
    """Return the name of an attack: the test's words, and its parameters without the deployment."""
    name, bracket, parameters = nodeid.partition("::")[2].removeprefix("test_").partition("[")
    if not bracket:
        return name.replace("_", " ")
    values = "-".join(part for part in parameters[:-1].split("-") if part not in tuple(Deployment))
    return name.replace("_", " ") + (f" ({values})" if values else "")


def _print_table(outcomes: list[Outcome]) -> None:
    rows = [_HEADER, *(outcome.row() for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        cells = [
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells))


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default=",".join(Deployment), help="deployments, separated by commas (default: all)")
    parser.add_argument("--only", default="", help="run the attacks whose names match this expression of pytest -k")
    arguments = parser.parse_args()
    os.environ |= {DEPLOYMENTS_VARIABLE: arguments.on, "ATTACKS_COMPLETE": "1"}
    start = time.monotonic()
    options = ["-q", "-r", "N", "--no-header", "--tb=short", "-p", "no:cacheprovider", str(ROOT / _FOLDER)]
    options += ["-k", arguments.only] if arguments.only else []
    status: int = pytest.ExitCode.INTERRUPTED
    try:
        status = pytest.main(options, plugins=[Recorder()])
    finally:
        # Also of an interrupted run.
        missed = _report(list(Recorder.outcomes.values()), time.monotonic() - start)
    return 1 if missed or status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else 0


def _report(outcomes: list[Outcome], seconds: float) -> bool:
    """Write and print the outcomes; return whether a bound was missed, or nothing ran."""
    outcomes.sort(key=lambda outcome: (outcome.figures.deployment, outcome.attack))
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    print()
    _print_table(outcomes)
    missed = [outcome for outcome in outcomes if outcome.error]
    for outcome in missed:
        print(f"\nMISSED {outcome.attack} ({outcome.figures.deployment}):", outcome.error.splitlines()[-1])
    print(f"\n{REPORT.relative_to(ROOT)} has all figures; {seconds:.0f} s")
    print(f"{len(outcomes) - len(missed)} passed, {len(missed)} failed")
    return bool(missed) or not outcomes


if __name__ == "__main__":
    sys.exit(main())
