"""The planted incidents: kind, span, subject."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

NAME = "field-truth.json"


@dataclass(frozen=True, slots=True)
class Planted:
    """One incident. about: its subject, by the names of a finding's attributes. kinds: accepted names of its kind."""

    kind: str
    kinds: tuple[str, ...]
    start: datetime
    end: datetime
    about: dict[str, str]
    text: str


def save(root: Path, planted: list[Planted], facts: dict[str, Any]) -> None:
    content = {**facts, "incidents": [asdict(each) for each in planted]}
    (root / NAME).write_text(json.dumps(content, indent=1, default=datetime.isoformat) + "\n", encoding="utf-8")


def load(root: Path) -> list[Planted]:
    content = json.loads((root / NAME).read_text(encoding="utf-8"))
    return [
        Planted(
            each["kind"],
            tuple(each["kinds"]),
            datetime.fromisoformat(each["start"]),
            datetime.fromisoformat(each["end"]),
            each["about"],
            each["text"],
        )
        for each in content["incidents"]
    ]
