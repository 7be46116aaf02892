"""The alert rules and the dashboard: checked by promtool, and against the existing metrics."""

import asyncio
import importlib
import json
import pkgutil
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import proxy
from proxy.app import App
from proxy.observability.metrics.family import Family
from remoting.requests import REQUESTS
from tests.deploy import queries
from tests.deploy.files import DEPLOY, ROOT, run
from tests.deploy.queries import Use
from tests.ports import free_port
from tests.proxy.backends.cluster.servers import running
from tests.proxy.messages import complete
from tests.proxy.replica import Client, serving
from tests.proxy.tools.doctor.servers import create_topic, replica, run_doctor
from tests.tools import promtool

# The first test that needs the tools builds them.
pytestmark = pytest.mark.timeout(900)

RULES = sorted((DEPLOY / "prometheus").glob("*.yaml"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "gantry.json").read_text())
# Labels that Prometheus adds.
TARGET = frozenset(("job", "instance"))
EXTERNAL = {"up": TARGET}


def rules() -> Iterator[dict[str, Any]]:
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Return every query with its place."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]


# Promtool.


def test_promtool_accepts_the_rules() -> None:
    said = run(promtool(), "check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert said.count("SUCCESS") == len(RULES)


def test_alerts_fire_in_their_scenarios() -> None:
    assert "SUCCESS" in run(promtool(), "test", "rules", "alerts.test.yaml", cwd=ROOT / "tests" / "deploy")


# Alerts whose silence is tested too: their metrics always exist or always change.
QUIET = {
    "GantryDown",
    "GantryEventLoopLag",
    "GantryCertificateExpires",
    "GantryCertificatesOutdated",
    "GantryRulesOutdated",
    "GantryEmbeddedStoreFull",
    "GantryEmbeddedStoreFailed",
    "GantryEmbeddedStoreCorrupt",
    "GantryBrokersUnreachable",
    "GantryNotReady",
    "GantryBrokerSilent",
    "GantryConsumersStuck",
    "GantryDeadLetters",
    "GantryRetriesUnconsumed",
    "GantryConsumerGroupsLeftOut",
}


def test_every_alert_has_a_scenario() -> None:
    played = yaml.safe_load((ROOT / "tests" / "deploy" / "alerts.test.yaml").read_text())["tests"]
    cases = [(case["alertname"], bool(case.get("exp_alerts"))) for test in played for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert {name for name, fires in cases if fires} == alerts
    assert {name for name, fires in cases if not fires} == QUIET


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    text = (DEPLOY / "compose" / "prometheus.yml").read_text()
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/etc/prometheus/rules", str(DEPLOY / "prometheus")))
    assert "2 rule files found" in run(promtool(), "check", "config", file)


def test_every_alert_has_severity_and_remedy() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_every_alert_has_a_section_of_the_runbook_and_every_section_an_alert() -> None:
    page = "docs/operating/alerts.md"
    sections = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    alerts = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules() if "alert" in rule}
    assert sorted(sections) == sorted(alerts)
    # The site's anchor of a title that is one word.
    assert alerts == {name: f"{page}#{name.lower()}" for name in alerts}


# Existing metrics.


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    """Scrape live replicas after traffic, one before a cluster and one embedded; return labels by metric."""
    return asyncio.run(_scrape(tmp_path_factory.mktemp("store")))


async def _scrape(directory: Path) -> dict[str, frozenset[str]]:
    one, two = free_port(), free_port()
    async with replica(directory, metrics_listen=f"127.0.0.1:{one}") as app:
        create_topic(app, "half", 4)
        await run_doctor(app, topic="orders", group="workers", write=True)
        await run_doctor(app, topic="half", write=True)
        await app.admin_services.survey.refresh(0.0)
        embedded = await _metrics(one)
    async with running() as cluster:
        await cluster.broker("broker-a")
        cluster.topics["orders"] = ["broker-a"]
        async with serving(cluster, metrics_listen=f"127.0.0.1:{two}") as app:
            await _send(app)
            before = await _metrics(two)
    return {name: embedded.get(name, frozenset()) | before.get(name, frozenset()) for name in embedded | before}


async def _send(app: App) -> None:
    client = await Client.connect(app)
    await client.ask(complete(REQUESTS[310]))
    await client.close()


async def _metrics(port: int) -> dict[str, frozenset[str]]:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    found: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(await asyncio.to_thread(get)):
        # A family without series has a name, and unknown labels.
        found.setdefault(family.name + ("_total" if family.type == "counter" else ""), frozenset())
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, frozenset()) | sample.labels.keys()
    return found


def declared() -> dict[str, frozenset[str]]:
    """Return the declared labels of every family."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(proxy.__path__, "proxy.")
        if "samples" not in found.name and not found.name.endswith("__main__")
    ]
    values = [value for module in modules for value in vars(module).values()]
    return {value.series_name: frozenset(value.labels) for value in values if isinstance(value, Family)}


def recorded() -> dict[str, frozenset[str]]:
    return {rule["record"]: queries.labels(queries.parse(rule["expr"])) for rule in rules() if "record" in rule}


def test_queries_use_existing_metrics_and_labels(shown: dict[str, frozenset[str]]) -> None:
    families = declared()
    known = {
        **{name: labels | families.get(name, frozenset()) | TARGET for name, labels in shown.items()},
        **recorded(),
        **EXTERNAL,
    }
    wrong = []
    for where, expression in expressions():
        for use in queries.uses(queries.parse(expression)):
            if use.metric not in known:
                wrong.append(f"{where}: there is no {use.metric}")
            elif missing := use.labels - known[use.metric]:
                wrong.append(f"{where}: {use.metric} has no label {', '.join(sorted(missing))}")
    assert wrong == []


def test_annotations_and_the_runbook_name_existing_metrics(shown: dict[str, frozenset[str]]) -> None:
    texts = [*(text for rule in rules() for text in rule.get("annotations", {}).values())]
    texts.append((ROOT / "docs" / "operating" / "alerts.md").read_text())
    named = {name for text in texts for name in re.findall(r"\b(?:gantry|rocketmq|process)_[a-z0-9_]+", text)}
    assert named - shown.keys() == set()


def test_query_check_detects_wrong_queries() -> None:
    """The check itself fails for wrong queries."""
    expression = 'sum by (broker) (rate(gantry_requests_total{topic="a"}[$__rate_interval])) / nothing_at_all'
    assert list(queries.uses(queries.parse(expression))) == [
        Use("gantry_requests_total", frozenset(("broker", "topic"))),
        Use("nothing_at_all", frozenset()),
    ]
    assert queries.labels(queries.parse("histogram_quantile(0.9, sum by (a, le) (rate(b[5m])))")) == {"a"}


def test_annotations_name_labels_that_alerts_have() -> None:
    for rule in rules():
        if "alert" not in rule:
            continue
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        tree = queries.parse(rule["expr"])
        have = set().union(*(recorded().get(use.metric, use.labels | TARGET) for use in queries.uses(tree)))
        assert named <= have, rule["alert"]


# Form of the dashboard.


def test_panels_have_descriptions_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert all(panel["title"] and panel["description"] for panel in panels())
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))


def test_panels_use_the_chosen_data_source_and_replicas() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "instance", "topic", "group"}
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert 'instance=~"$instance"' in target["expr"]


def test_legends_name_labels_that_the_query_keeps() -> None:
    for panel in panels():
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = set().union(*(use.labels for use in queries.uses(queries.parse(target["expr"])))) | TARGET
            assert named <= kept, panel["title"]


def test_variables_use_existing_metrics(shown: dict[str, frozenset[str]]) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert found is not None
            assert found[2] in shown[found[1]] | declared().get(found[1], frozenset()) | TARGET
