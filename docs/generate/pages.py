"""The generated files by path, and the two operations on them: write and compare."""

import asyncio
from pathlib import Path

from docs.generate import (
    admin_api,
    command_line,
    configuration,
    metrics,
    request_table,
    settings_file,
    traffic_records,
    traffic_rules,
)

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m docs.generate"


def render() -> dict[str, str]:
    """Return the text of every generated file by path in the repository."""
    return {
        "docs/reference/admin-api.md": asyncio.run(admin_api.page()),
        "docs/reference/cli.md": command_line.page(),
        "docs/reference/configuration.md": configuration.page(),
        "docs/reference/metrics.md": asyncio.run(metrics.page()),
        "docs/reference/requests.md": request_table.page(),
        "docs/reference/traffic-records.md": traffic_records.page(),
        "docs/reference/traffic-rules.md": traffic_rules.page(),
        "deploy/gantry.toml": settings_file.page(),
    }


def stale(root: Path = ROOT) -> list[str]:
    """Return the paths of generated files that are missing or differ from the code."""
    return [name for name, text in render().items() if _read(root / name) != text]


def write(root: Path = ROOT) -> list[str]:
    """Write every file that differs and return their paths."""
    pages = render()
    changed = [name for name, text in pages.items() if _read(root / name) != text]
    for name in changed:
        (root / name).write_text(pages[name])
    return changed


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None
