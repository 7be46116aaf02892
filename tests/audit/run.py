"""Audit of the dependencies and the product's code; `make audit` runs it.

- pip-audit looks up every locked dependency in the OSV database, or, if that cannot be reached, in that of the package
  index. `--advisories DIR` names a clone of PyPA's advisory database instead.
- CycloneDX bills of materials of the wheel and of the image go to `build/sbom`.
- ruff's rules S (flake8-bandit) check the product's code; each exception has its reason in its line.

Exit status: 0 if nothing was found, 1 if something was, 2 if a part could not run. Databases that cannot be reached,
and a clone older than `MAX_AGE` days, count as the latter. Then the packages are named that have a newer release: for
the others no correction has been published.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.audit.advisories import Advisories, AuditImpossible, Vulnerability, locked
from tests.paths import ROOT

LOCKS = ("requirements.lock", "deploy/requirements.lock", "deploy/build.lock")
PRODUCT = ("analytics", "docs", "grpc_gateway", "protocol_negotiation", "protos", "proxy", "remoting")
SERVICES = ("osv", "pypi")
# Days after which a clone of the advisories is too old to be the only source.
MAX_AGE = 30
_SBOM = Path("build/sbom")
# Assertions narrow types for mypy; none is a check of input.
_ASSERTIONS = "S101"
_EXPLAINED = re.compile(r"# noqa: [^#]*\bS\d{3}\b[^#]*  # \S")

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a module of this environment in the project's directory."""
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)


def find_vulnerabilities(lock: str, execute: Run = run, service: str = SERVICES[0]) -> tuple[int, list[Vulnerability]]:
    """Return the number of packages in a lock file and their vulnerabilities. Raises AuditImpossible."""
    done = execute(
        [
            *("pip_audit", "--requirement", lock, "--require-hashes", "--disable-pip", "--strict"),
            *("--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"),
        ]
    )
    try:
        report = json.loads(done.stdout)
        packages = report["dependencies"]
        skipped = [item["name"] for item in packages if "skip_reason" in item]
    except (ValueError, KeyError, TypeError):
        raise AuditImpossible(
            f"{lock}: the database {service} cannot be reached, or pip-audit failed: {_last_line(done.stderr)}"
        ) from None
    if skipped or not packages:
        raise AuditImpossible(f"{lock}: not audited by {service}: {_some(skipped) or 'no package was found'}")
    found = [_vulnerability(item, flaw) for item in packages for flaw in item["vulns"]]
    if done.returncode and not found:
        raise AuditImpossible(f"{lock}: pip-audit failed: {_last_line(done.stderr)}")
    return len(packages), found


def _vulnerability(package: dict[str, Any], flaw: dict[str, Any]) -> Vulnerability:
    return Vulnerability(package["name"], package["version"], flaw["id"], tuple(flaw["fix_versions"]))


def releases(execute: Run = run) -> str:
    """Return a sentence about the newest releases of the locked packages. Raises AuditImpossible.

    It is about those that are installed here: the lock has packages of other systems, too.
    """
    packages = locked("".join((ROOT / lock).read_text() for lock in LOCKS))
    installed, behind = (
        {item["name"]: item for item in _pip_list(execute, *options) if packages.get(item["name"]) == item["version"]}
        for options in ((), ("--outdated",))
    )
    newer = [f"{item['name']} {item['version']} ({item['latest_version']})" for item in behind.values()]
    return (
        f"no correction has been published of {len(installed) - len(behind)} of {len(packages)} packages, which are at "
        f"their newest release; {len(packages) - len(installed)} are not installed here; a newer release have "
        f"{', '.join(newer) or 'none'}"
    )


def _pip_list(execute: Run, *options: str) -> list[dict[str, str]]:
    done = execute(["uv", "pip", "list", *options, "--format", "json"])
    _succeed(done)
    try:
        entries: list[dict[str, str]] = json.loads(done.stdout)
    except ValueError:
        raise AuditImpossible(f"uv failed: {_last_line(done.stderr)}") from None
    return entries


def write_sboms(execute: Run = run) -> dict[str, int]:
    """Write the bills of materials; return the number of components by file. Raises AuditImpossible."""
    directory = ROOT / _SBOM
    directory.mkdir(parents=True, exist_ok=True)
    # The image has the extra `tracing`; the wheel alone does not.
    wheel = _SBOM / "wheel.lock"
    _succeed(
        execute(
            [
                *("uv", "pip", "compile", "--quiet", "--generate-hashes", "--universal", "--python-version", "3.11"),
                *("--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"),
                *("--constraint", "requirements.lock", "pyproject.toml", "--output-file", str(wheel)),
            ]
        )
    )
    sources = {"wheel": str(wheel), "image": "deploy/requirements.lock"}
    return {f"{name}.cdx.json": _write_sbom(name, lock, execute) for name, lock in sources.items()}


def _write_sbom(name: str, lock: str, execute: Run) -> int:
    file = _SBOM / f"{name}.cdx.json"
    _succeed(
        execute(
            [
                *("cyclonedx_py", "requirements", "--pyproject", "pyproject.toml", "--output-reproducible"),
                *("--mc-type", "library" if name == "wheel" else "application", "--output-file", str(file), lock),
            ]
        )
    )
    return len(json.loads((ROOT / file).read_text())["components"])


def check_code(execute: Run = run) -> tuple[list[str], int]:
    """Return the findings of ruff's security rules, and the number of explained exceptions. Raises AuditImpossible."""
    done = execute(["ruff", "check", "--select", "S", "--ignore", _ASSERTIONS, "--output-format", "concise", *PRODUCT])
    if done.returncode not in (0, 1):
        raise AuditImpossible(f"ruff failed: {_last_line(done.stderr)}")
    findings = [line for line in done.stdout.splitlines() if re.search(r":\d+:\d+: S\d{3} ", line)]
    files = (path for name in PRODUCT for path in (ROOT / name).rglob("*.py"))
    lines = [line for path in files for line in path.read_text().splitlines() if re.search(r"# noqa: .*\bS\d{3}", line)]
    findings += [f"exception without a reason: {line.strip()}" for line in lines if not _EXPLAINED.search(line)]
    return findings, len(lines)


def _succeed(done: "subprocess.CompletedProcess[str]") -> None:
    if done.returncode:
        raise AuditImpossible(f"{' '.join(done.args[2:5])} failed: {_last_line(done.stderr)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def main(execute: Run = run, advisories: Path | None = None) -> int:
    """Run all parts, print their results and a line of figures, and return the exit status.

    advisories: a clone of PyPA's advisory database, in place of the databases on the network.
    """
    findings: list[str] = []
    impossible: list[str] = []
    figures: list[str] = []

    def vulnerabilities() -> str:
        if advisories is not None:
            return from_clone(Advisories.open(advisories))
        reasons = []
        for service in SERVICES:
            try:
                results = [find_vulnerabilities(lock, execute, service) for lock in LOCKS]
            except AuditImpossible as error:
                reasons.append(str(error))
                continue
            return report(service, max(count for count, _ in results), [flaw for _, flaws in results for flaw in flaws])
        raise AuditImpossible("; ".join([*reasons, releases(execute)]))

    def from_clone(database: Advisories) -> str:
        packages = [locked((ROOT / lock).read_text()) for lock in LOCKS]
        found = [flaw for versions in packages for flaw in database.find(versions)]
        text = report(f"PyPA of {database.date:%Y-%m-%d}", max(map(len, packages)), found)
        age = database.days_old(datetime.now(UTC))
        if age > MAX_AGE:
            impossible.append(f"the advisories are {age} days old, and newer ones unknown; {releases(execute)}")
        return text

    def report(source: str, count: int, found: Sequence[Vulnerability]) -> str:
        texts = list(dict.fromkeys(map(str, found)))
        findings.extend(texts)
        return f"{count} packages, {len(texts)} vulnerabilities ({source})"

    def sboms() -> str:
        counts = write_sboms(execute)
        return f"SBOMs in {_SBOM}: " + ", ".join(f"{name} {count} components" for name, count in counts.items())

    def code() -> str:
        found, exceptions = check_code(execute)
        findings.extend(found)
        return f"ruff S: {len(found)} findings, {exceptions} explained exceptions"

    for part in (vulnerabilities, sboms, code):
        try:
            figures.append(part())
        except AuditImpossible as error:
            impossible.append(str(error))
    for text in findings:
        print(text)
    for text in impossible:
        print(f"could not run: {text}")
    print(f"audit: {'; '.join([*figures, f'{len(impossible)} parts could not run'])}")
    return 2 if impossible else 1 if findings else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Audit of the dependencies and the product's code.")
    parser.add_argument("--advisories", type=Path, metavar="DIR", help="a clone of PyPA's advisory database")
    sys.exit(main(advisories=parser.parse_args().advisories))
