"""Names in the prose of the documentation exist: files, settings, metrics, make targets, links."""

import re
import textwrap
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest

from analytics.command import command_parser as analytics_parser
from docs.build import ROOT_PAGES, check_root_pages, markdown_links
from docs.generate.admin_api import openapi
from docs.generate.command_line import subcommands
from docs.generate.configuration import models, settings
from docs.generate.metrics import families
from protocol_negotiation.negotiation import Outcome
from proxy.__main__ import command_parser
from proxy.settings.loading import check_access, load
from proxy.settings.model import Settings
from proxy.tools.demo import SAMPLES
from proxy.traffic_rules.parsing import parse
from tests.paths import ROOT
from tests.style.prose import Text

DOCS = ROOT / "docs"
PAGES = sorted(
    [path for path in DOCS.rglob("*.md") if path.parent.name not in ("reference", "decisions")]
    + [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
)
_NAMES = {path: str(path.relative_to(ROOT)) for path in PAGES}
# Folders of the repository with which a path in inline code begins.
_FOLDERS = "analytics|deploy|docs|grpc_gateway|protocol_negotiation|protos|proxy|remoting|tests"
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./*-]*)`")
_CODE = re.compile(r"`([^`\n]+)`")
# Files, Python modules and keys of other formats that look like settings.
_NOT_SETTINGS = {"grpc.aio", "rules.toml", "tls.enable"}
_METRIC = re.compile(r"\bgantry_[a-z0-9_]+")
_QUERY = re.compile(r"^(?:    |\|[^|`]*\| `)((?:sum|histogram_quantile)\b[^`\n]*)", re.MULTILINE)
_SERIES = re.compile(r"_(?:bucket|count|sum)$")
_TARGET = re.compile(r"\bmake ([a-z][a-z0-9-]*)")
# A class, constant or attribute in inline code.
_IDENTIFIER = re.compile(r"`(_?[A-Z]\w{2,}(?:\.(?!md`)\w+)*)`")
_PAGES_ABOUT_CODE = {"ARCHITECTURE.md", "docs/contributing/index.md"}
_SOURCES = ("grpc_gateway", "protocol_negotiation", "proxy", "remoting", "tests/cluster")
_LOGGER = re.compile(r"`(gantry\.[a-z.]+)`")
_API_PATH = re.compile(r"(/v1/[\w/-]+)(?![\w/:…-])")
# A path of OTLP.
_OTHER_PATHS = {"/v1/traces"}
_COMMAND = re.compile(r"^(?:    |    \$ |[^`\n]*`)(?:\.venv/bin/)?(gantry [a-z][^`\n#|>]*)", re.MULTILINE)
_MODULE = re.compile(r"python -m ((?:analytics|docs|protos|tests)[\w.]*)")


def pages(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield page and match of a pattern in all pages."""
    for path in PAGES:
        for match in pattern.finditer(path.read_text()):
            yield _NAMES[path], match[1] if pattern.groups else match[0]


def test_paths_in_code_exist() -> None:
    missing = [(page, path) for page, path in pages(_PATH) if not any(ROOT.glob(path.rstrip("/")))]
    assert missing == []


def test_settings_in_code_exist() -> None:
    keys = {item.key for item in settings()}
    tables = {name for name, info in Settings.model_fields.items() if list(models(info.annotation))}
    mentioned = [(page, text) for page, text in pages(_CODE) if re.fullmatch(r"[a-z]+\.[a-z_]+", text)]
    unknown = [
        (page, text)
        for page, text in mentioned
        if text.partition(".")[0] in tables and text not in keys | _NOT_SETTINGS
    ]
    assert unknown == []


@pytest.mark.anyio
async def test_metrics_exist() -> None:
    known = await families()
    unknown = [
        (page, name) for page, name in pages(_METRIC) if name not in known and _SERIES.sub("", name) not in known
    ]
    assert unknown == []


def test_prometheus_queries_are_valid() -> None:
    queries = [query for _, query in pages(_QUERY)]
    assert len(queries) > 5
    for query in queries:
        promql_parser.parse(query)


def test_troubleshooting_explains_every_outcome_of_a_negotiation() -> None:
    text = (DOCS / "operating" / "troubleshooting.md").read_text()
    assert [outcome.value for outcome in Outcome if f"`{outcome.value}`" not in text] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    words = {"it", "of", "the"}
    assert [(page, name) for page, name in pages(_TARGET) if name not in targets | words] == []


def test_modules_to_run_exist() -> None:
    def exists(module: str) -> bool:
        path = ROOT.joinpath(*module.split("."))
        return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()

    assert [(page, module) for page, module in pages(_MODULE) if not exists(module)] == []


def test_identifiers_in_pages_about_the_code_exist() -> None:
    sources = [path.read_text() for folder in _SOURCES for path in (ROOT / folder).rglob("*.py")]

    def exists(name: str) -> bool:
        owner, _, member = name.rpartition(".")
        if not owner:
            return any(re.search(rf"\b{name}\b", source) for source in sources)
        # A member, in the file of its class.
        pattern = rf"^class {owner}\b.*\bdef {member}\b"
        return any(re.search(pattern, source, re.MULTILINE | re.DOTALL) for source in sources)

    mentioned = {(page, name) for page, name in pages(_IDENTIFIER) if page in _PAGES_ABOUT_CODE}
    assert [(page, name) for page, name in sorted(mentioned) if not exists(name)] == []


def test_loggers_exist() -> None:
    source = "\n".join(path.read_text() for folder in _SOURCES for path in (ROOT / folder).rglob("*.py"))
    loggers = set(re.findall(r'"(gantry\.[\w.]+)"', source))
    files = {path.name for path in (ROOT / "deploy").rglob("gantry.*")}
    others = {"gantry.commands", "gantry.schema"}
    assert [(page, name) for page, name in pages(_LOGGER) if name not in loggers | files | others] == []


@pytest.mark.anyio
async def test_paths_of_the_admin_api_exist() -> None:
    known = [re.sub(r"\{\w+\}", "[^/]+", path) for path in (await openapi())["paths"]]
    unknown = [
        (page, path)
        for page, path in pages(_API_PATH)
        if not any(re.fullmatch(pattern, path.rstrip("/")) for pattern in known) and path not in _OTHER_PATHS
    ]
    assert unknown == []


def _commands(prefix: str, parser: ArgumentParser) -> Iterator[tuple[str, ArgumentParser]]:
    """Yield the commands of a parser, and their actions, by name."""
    for name, command in subcommands(parser):
        yield f"{prefix} {name}", command
        yield from _commands(f"{prefix} {name}", command)


def test_commands_and_their_options_exist() -> None:
    commands = dict(_commands("gantry", command_parser())) | dict(_commands("gantry analytics", analytics_parser()))
    unknown = []
    for page, line in pages(_COMMAND):
        words = line.split()
        name = next((name for name in (" ".join(words[:3]), " ".join(words[:2])) if name in commands), "")
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        known = set(commands[name]._option_string_actions) if name else set()
        # The generator has a parser of its own, which is built when it runs.
        if not name or (name != "gantry analytics generate" and not options <= known):
            unknown.append((page, line))
    assert unknown == []


_PAGES_WITH_SETTINGS = (
    *("configuration.md", "tls.md", "clients.md", "traffic-rules.md", "broker-acl.md", "deployment.md"),
    "operating/admin-api.md",
)


@pytest.mark.parametrize("name", _PAGES_WITH_SETTINGS)
def test_toml_examples_are_valid(name: str, tmp_path: Path) -> None:
    """An example with name servers is complete: Gantry starts with it."""
    text = (DOCS / name).read_text()
    fenced = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = [block for block in [*_indented_blocks(text), *fenced] if re.match(r"\[|\w+ = ", block)]
    assert blocks
    for block in blocks:
        if "[[rule]]" in block:
            parse(block)
        else:
            file = tmp_path / "gantry.toml"
            file.write_text(block)
            found = load(file, {})
            if found.cluster.namesrv:
                check_access(found)


def _indented_blocks(text: str) -> list[str]:
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    return [textwrap.dedent(block).strip() for block in found]


def test_links_of_the_pages_at_the_root_lead_to_files() -> None:
    assert list(check_root_pages()) == []


def test_links_in_code_are_not_links() -> None:
    assert markdown_links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n![g](h.png)") == ["b.md", "h.png"]


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_pages_at_the_root_have_at_most_200_lines(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= 200


def test_every_decision_is_listed() -> None:
    index = (DOCS / "decisions" / "index.md").read_text()
    files = {path.name for path in (DOCS / "decisions").glob("*.md")} - {"index.md"}
    assert files == set(markdown_links(index))


def test_pages_have_no_vague_words() -> None:
    # The style page quotes some.
    lines = [
        Text(path, number, line)
        for path in [*DOCS.rglob("*.md"), *(ROOT / name for name in ROOT_PAGES)]
        if path.name != "style.md"
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]
    assert [f"{text.file}:{text.line}: {text.text}" for text in lines if "vague" in text.kinds] == []


def test_images_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}
    assert {name: size for name, size in sizes.items() if size > 100_000} == {}


def test_pages_have_one_title() -> None:
    for path in DOCS.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        titles = re.findall(r"^# ", text, re.MULTILINE)
        assert len(titles) == 1, path


def test_every_sample_program_is_on_a_page() -> None:
    text = "".join(path.read_text() for path in (DOCS / "quickstart").glob("*.md"))
    assert set(re.findall(r'^--8<-- "proxy/tools/samples/([\w.-]+)"$', text, re.MULTILINE)) == set(SAMPLES.values())
