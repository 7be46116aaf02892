"""The metrics reference: every metric with its kind, labels and HELP text, from the families of live replicas."""

import tempfile
from pathlib import Path
from typing import Any

from docs.generate import markdown
from docs.generate.markdown import code, codes, table
from proxy.app import App
from proxy.observability.metrics.envoy import FAMILIES, REQUEST_TIME, STATS, TIME_FAMILY
from proxy.observability.metrics.family import Family
from proxy.settings.model import Settings
from proxy.workers.supervisor import EXITS, WORKERS

_INTRODUCTION = """
The metrics of a replica, of either backend, and of the parent process of several workers.
[Metrics](../operating/metrics.md) describes the endpoints, the label limits and the most useful queries.
"""
_ENVOY_TEXT = """
Statistics under the names of Envoy's RocketMQ filter, `rocketmq.<stat_prefix>.<name>` at `/stats`, and the same values
under Prometheus names.
"""
_ENVOY = {family.series_name for family in FAMILIES.values()} | {TIME_FAMILY.series_name}
_KINDS = {"gantry": "Gantry", "rocketmq": "RIP-46", "process": "Process"}


async def families() -> dict[str, Family]:
    """Return every metric by name: of replicas with every feature on, of either backend, and of the parent."""
    found = {family.series_name: family for family in (WORKERS, EXITS)}
    with tempfile.TemporaryDirectory() as folder:
        everything: dict[str, Any] = {
            "auth": {"users": _empty_file(folder), "audit_topic": "audit"},
            "embedded": {"directory": folder},
            "traffic": {"directory": f"{folder}/traffic"},
            "admin": {"grpc": "127.0.0.1:0"},
            "grpc": {"message_trace": True},
            "tracing": {"endpoint": "http://127.0.0.1:4318/v1/traces"},
        }
        signing = {"cluster": {"access_key": "gantry", "secret_key": "not used"}}
        choices: tuple[dict[str, Any], ...] = ({}, signing, everything)
        for more in choices:
            app = App(Settings(**more))
            found |= {family.series_name: family for family, _ in app.metrics.snapshot()}
            app.backend.close()
            if app.tracing is not None:
                app.tracing.close()
    return found


def _empty_file(folder: str) -> Path:
    file = Path(folder, "users.toml")
    file.touch(0o600)
    return file


async def page() -> str:
    """Return the page."""
    found = await families()
    sections = []
    for prefix, title in _KINDS.items():
        rows = [
            (code(name), family.kind.value, codes(family.labels), family.help)
            for name, family in sorted(found.items())
            if name.startswith(f"{prefix}_") and name not in _ENVOY
        ]
        sections.append(f"## {title}\n\n{table(('metric', 'type', 'labels', 'description'), rows)}")
    envoy = [(code(stat.name), code(FAMILIES[stat.name].series_name), stat.help) for stat in STATS]
    envoy.append((code(REQUEST_TIME), code(TIME_FAMILY.series_name), TIME_FAMILY.help.partition(". ")[2]))
    head = ("Envoy's name", "Prometheus name", "description")
    sections.append(f"## Envoy\n{_ENVOY_TEXT}\n{table(head, envoy)}")
    return markdown.page("Metrics reference", _INTRODUCTION, *sections)
