"""Known vulnerabilities from a copy of PyPA's advisory database, for hosts that reach no database.

The copy is a clone of https://github.com/pypa/advisory-database: files `vulns/PACKAGE/ID.yaml` in the OSV format. Its
last commit dates it.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


class AuditImpossible(Exception):
    """A part of the audit could not run; the message says why."""


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """A known vulnerability of a locked dependency."""

    package: str
    version: str
    id: str
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.package} {self.version}: {self.id}, fixed in {', '.join(self.fixed) or 'no version'}"


def locked(text: str) -> dict[str, str]:
    """Return the versions in a lock file by the names of their packages."""
    return {canonicalize_name(name): version for name, version in _PINNED.findall(text)}


@dataclass(frozen=True, slots=True)
class Advisories:
    """A copy of the database. date: of its last commit."""

    directory: Path
    date: datetime

    @classmethod
    def open(cls, directory: Path) -> "Advisories":
        """Open a clone. Raises AuditImpossible."""
        command = ["git", "-C", str(directory), "log", "-1", "--format=%cI"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not (directory / "vulns").is_dir():
            raise AuditImpossible(f"{directory} is not a clone of PyPA's advisory database")
        return cls(directory, datetime.fromisoformat(done.stdout.strip()).astimezone(UTC))

    def days_old(self, now: datetime) -> int:
        """Return the age in days."""
        return (now - self.date).days

    def find(self, packages: dict[str, str]) -> list[Vulnerability]:
        """Return the vulnerabilities of these packages. Raises AuditImpossible if an advisory cannot be read."""
        return [flaw for name, version in packages.items() for flaw in self._of(name, version)]

    def _of(self, name: str, version: str) -> Iterator[Vulnerability]:
        for file in sorted((self.directory / "vulns" / name).glob("*.yaml")):
            try:
                advisory = yaml.load(file.read_text(), yaml.CSafeLoader)
                if "withdrawn" in advisory:
                    continue
                for affected in advisory["affected"]:
                    if canonicalize_name(affected["package"]["name"]) == name and is_affected(affected, version):
                        yield Vulnerability(name, version, str(advisory["id"]), _fixed(affected))
            except (OSError, yaml.YAMLError, InvalidVersion, LookupError, TypeError, ValueError) as error:
                raise AuditImpossible(f"{file} cannot be read: {error}") from None


def is_affected(affected: dict[str, Any], version: str) -> bool:
    """Return whether an entry of `affected` in the OSV format covers a version. Raises InvalidVersion."""
    if version in affected.get("versions", ()):
        return True
    ranges = [item for item in affected.get("ranges", ()) if item["type"] == "ECOSYSTEM"]
    return any(_in_range(item["events"], Version(version)) for item in ranges)


def _in_range(events: Iterable[dict[str, str]], version: Version) -> bool:
    """Evaluate the events of a range in the order of their versions, as OSV's schema describes."""
    inside = False
    pairs = ((kind, _version(text)) for event in events for kind, text in event.items())
    for kind, at in sorted(pairs, key=lambda pair: (pair[1], pair[0] != "introduced")):
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def _version(text: str) -> Version:
    return Version(str(text))


def _fixed(affected: dict[str, Any]) -> tuple[str, ...]:
    ranges = [item for item in affected.get("ranges", ()) if item["type"] == "ECOSYSTEM"]
    return tuple(str(event["fixed"]) for item in ranges for event in item["events"] if "fixed" in event)
