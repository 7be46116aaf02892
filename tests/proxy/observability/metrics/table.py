"""The README's table of metrics, made from the metrics that there are.

python -m tests.proxy.observability.metrics.table        writes it
"""

import asyncio
import tempfile
from typing import Any

from proxy.app import App
from proxy.observability.metrics.envoy import FAMILIES, REQUEST_TIME, STATS, TIME_FAMILY
from proxy.observability.metrics.family import Family
from proxy.settings.model import Settings
from proxy.workers.supervisor import EXITS, WORKERS
from tests.paths import README

BEGIN, END = "<!-- metrics -->\n", "<!-- /metrics -->\n"
_ENVOY = {family.shown_name for family in FAMILIES.values()} | {TIME_FAMILY.shown_name}


async def families() -> dict[str, Family]:
    """Every metric by its name: of a replica with everything on, of either backend, and of the parent of several."""
    found = {family.shown_name: family for family in (WORKERS, EXITS)}
    with tempfile.TemporaryDirectory() as folder:
        everything: dict[str, Any] = {
            "embedded": {"directory": folder},
            "traffic": {"directory": f"{folder}/traffic"},
            "admin": {"grpc": "127.0.0.1:0"},
            "tracing": {"endpoint": "http://127.0.0.1:4318/v1/traces"},
        }
        choices: tuple[dict[str, Any], ...] = ({}, everything)
        for more in choices:
            app = App(Settings(**more))
            found |= {family.shown_name: family for family, _ in app.metrics.snapshot()}
            app.backend.close()
            if app.tracing is not None:
                app.tracing.close()
    return found


def table(found: dict[str, Family]) -> str:
    """The table, Envoy's statistics in one of their own."""
    lines = ["| metric | labels | |", "| --- | --- | --- |"]
    for name, family in sorted(found.items()):
        if name not in _ENVOY:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            lines.append(f"| `{name}` | {labels} | {family.text} |")
    lines += ["", "| Envoy's | in Prometheus | |", "| --- | --- | --- |"]
    for stat in STATS:
        lines.append(f"| `{stat.name}` | `{FAMILIES[stat.name].shown_name}` | {stat.text} |")
    lines.append(f"| `{REQUEST_TIME}` | `{TIME_FAMILY.shown_name}` | {TIME_FAMILY.text.partition('. ')[2]} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The table that the README has."""
    return README.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(before + BEGIN + table(asyncio.run(families())) + END + after)


if __name__ == "__main__":
    main()
