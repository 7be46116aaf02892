"""The truth: a record of the planted incidents."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

NAME = "truth.json"


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident: the kind of the finding that should name it, and the finding's subject."""

    id: int
    kind: str
    start: datetime
    end: datetime
    text: str
    tenant: str | None = None
    topic: str | None = None
    group: str | None = None
    broker: str | None = None
    client_id: str | None = None
    replica: str | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """The contents of a generated directory. records: rows by table."""

    seed: int
    start: datetime
    end: datetime
    records: Mapping[str, int]
    incidents: tuple[Incident, ...] = field(default_factory=tuple)

    def save(self, root: Path) -> None:
        text = json.dumps(asdict(self), default=_text, indent=1)
        (root / NAME).write_text(text + "\n", encoding="utf-8")


def load(root: Path) -> Truth:
    """Return the truth of a generated directory. Raises FileNotFoundError if it was not generated."""
    content = json.loads((root / NAME).read_text(encoding="utf-8"))
    incidents = tuple(Incident(**_times(each)) for each in content.pop("incidents"))
    return Truth(**_times(content), incidents=incidents)


def _text(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()


def _times(content: dict[str, Any]) -> dict[str, Any]:
    return content | {name: datetime.fromisoformat(content[name]) for name in ("start", "end")}
