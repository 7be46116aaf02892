"""h2spec: cases for all sections of RFC 9113 and RFC 7541, read from its JUnit report."""

import re
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.programs import Result
from tests.conformance.server_process import Server

# Number of cases without --strict, which adds one. A lower number would mean that h2spec ended early.
CASES = 145
_TIME_LIMIT = 900.0
_CLOSING_LINE = re.compile(r"^(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed$", re.MULTILINE)


class H2specFailed(Exception):
    """h2spec itself failed."""


def run(programs: Path, server: Server, *, tls: bool) -> tuple[list[Result], str]:
    """Run all cases; return their results and h2spec's closing line. Raises H2specFailed. A skipped case has failed."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        arguments = ["-p", str(server.tls if tls else server.plain), "--strict", "-j", report.name]
        arguments += ["--tls", "--insecure"] if tls else []
        process = subprocess.run([programs / "h2spec", *arguments], capture_output=True, text=True, timeout=_TIME_LIMIT)
        closing = _CLOSING_LINE.search(process.stdout)
        if closing is None:
            raise H2specFailed(
                f"h2spec ended with {process.returncode}:\n{process.stdout[-2000:]}{process.stderr[-2000:]}"
            )
        results = _read(Path(report.name), "tls" if tls else "plain")
    total, passed = int(closing[1]), int(closing[2])
    if (len(results), sum(result.passed for result in results)) != (total, passed):
        raise H2specFailed(f"h2spec's report does not agree with its closing line: {closing[0]}")
    return results, closing[0]


def _read(report: Path, connection: str) -> list[Result]:
    results = []
    for suite in ElementTree.parse(report).getroot():
        for number, case in enumerate(suite, 1):
            failure = next(iter(case), None)
            name = f"h2spec {connection} {suite.get('package')}/{number}: {case.get('classname')}"
            results.append(Result(name, failure is None, _note(failure)))
    return results


def _note(failure: ElementTree.Element | None) -> str:
    if failure is None:
        return ""
    # The last line of a failure is the actual event.
    lines = (failure.text or "").splitlines()
    return f"{failure.tag}: {lines[-1]}" if lines else failure.tag
