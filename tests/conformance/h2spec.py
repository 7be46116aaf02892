"""h2spec: every section of RFC 9113 and RFC 7541, judged by frames. Its own report is what is read."""

import re
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.judges import Result
from tests.conformance.process import Server

# Without --strict; with it there is one more. Fewer would mean that the judge ended early.
CASES = 145
_TIME_LIMIT = 900.0
_CLOSING_LINE = re.compile(r"^(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed$", re.MULTILINE)


class JudgeFailed(Exception):
    """The judge itself gave no verdict."""


def run(programs: Path, server: Server, *, tls: bool) -> tuple[list[Result], str]:
    """Every case, and the judge's closing line. A skipped case has not passed. Raises JudgeFailed."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        words = ["-p", str(server.tls if tls else server.plain), "--strict", "-j", report.name]
        words += ["--tls", "--insecure"] if tls else []
        done = subprocess.run([programs / "h2spec", *words], capture_output=True, text=True, timeout=_TIME_LIMIT)
        closing = _CLOSING_LINE.search(done.stdout)
        if closing is None:
            raise JudgeFailed(f"h2spec ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        results = _read(Path(report.name), "tls" if tls else "plain")
    total, passed = int(closing[1]), int(closing[2])
    if (len(results), sum(result.passed for result in results)) != (total, passed):
        raise JudgeFailed(f"h2spec's report does not agree with its closing line: {closing[0]}")
    return results, closing[0]


def _read(report: Path, way: str) -> list[Result]:
    results = []
    for suite in ElementTree.parse(report).getroot():
        for number, case in enumerate(suite, 1):
            complaint = next(iter(case), None)
            name = f"h2spec {way} {suite.get('package')}/{number}: {case.get('classname')}"
            results.append(Result(name, complaint is None, _note(complaint)))
    return results


def _note(complaint: ElementTree.Element | None) -> str:
    if complaint is None:
        return ""
    # The last line of a failure says what came instead.
    lines = (complaint.text or "").splitlines()
    return f"{complaint.tag}: {lines[-1]}" if lines else complaint.tag
