"""The generated pages by path, and the two operations on them: write and compare."""

import asyncio
from pathlib import Path

from docs.generate import admin_api, command_line, configuration, metrics, request_table, traffic_records, traffic_rules

FOLDER = Path(__file__).resolve().parents[1] / "reference"
COMMAND = "python -m docs.generate"


def render() -> dict[str, str]:
    """Return the text of every generated page by file name."""
    return {
        "admin-api.md": asyncio.run(admin_api.page()),
        "cli.md": command_line.page(),
        "configuration.md": configuration.page(),
        "metrics.md": asyncio.run(metrics.page()),
        "requests.md": request_table.page(),
        "traffic-records.md": traffic_records.page(),
        "traffic-rules.md": traffic_rules.page(),
    }


def stale(folder: Path = FOLDER) -> list[str]:
    """Return the names of generated pages that are missing or differ from the code."""
    return [name for name, text in render().items() if _read(folder / name) != text]


def write(folder: Path = FOLDER) -> list[str]:
    """Write every page that differs and return the names of those pages."""
    pages = render()
    changed = [name for name, text in pages.items() if _read(folder / name) != text]
    for name in changed:
        (folder / name).write_text(pages[name])
    return changed


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None
