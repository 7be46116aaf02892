"""deploy/gantry.toml lists every setting with its default."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate.configuration import settings
from proxy.settings.loading import load
from tests.paths import ROOT

FILE = ROOT / "deploy" / "gantry.toml"
# A setting or a table that is commented out.
_COMMENTED = re.compile(r"# (\[.*\]|\w+ = \S.*|\[\[.*\]\] .*)")
# Lists of tables in the model; in the file their keys are settings of their own.
_LISTS = ("listen.advertise_rules", "tls.certificates")
DEFAULTS: dict[str, Any] = {item.key: item.default for item in settings() if item.key not in _LISTS}
# The short form of a listener is its address.
DEFAULTS["listen"] = [item["address"] for item in DEFAULTS["listen"]]


def test_settings_include_nested_tables_and_their_defaults() -> None:
    assert {"listen", "listen.tls", "listen.advertise_rules.networks", "cluster.namesrv", "replica"} <= DEFAULTS.keys()
    assert DEFAULTS["limits.frame"] == 2**24
    assert DEFAULTS["tls.mode"] == "permissive"


def uncommented(*, listener_tables: bool) -> str:
    """Return the file with all commented settings enabled; listeners as a list of addresses or as tables."""
    lines = []
    for line in FILE.read_text().splitlines():
        match = _COMMENTED.fullmatch(line)
        lines.append(match[1] if match else line)
    before, start, after = "\n".join(lines).partition("[[listen]]")
    if not listener_tables:
        return before
    return re.sub(r"^listen = .*$", "", before, flags=re.MULTILINE) + start + after


def flatten(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield key and value of every setting of a parsed file."""
    for name, value in data.items():
        key = prefix + name
        if isinstance(value, dict):
            yield from flatten(value, f"{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                yield from flatten(item, f"{key}.")
        else:
            yield key, value


def file_settings() -> dict[str, Any]:
    """Return the settings of the file by key. Of several listeners, the first one with a key counts."""
    addresses, tables = (tomllib.loads(uncommented(listener_tables=value)) for value in (False, True))
    return {**dict(reversed(list(flatten(tables)))), **dict(flatten(addresses))}


def test_file_has_exactly_the_settings_of_the_models() -> None:
    assert file_settings().keys() == DEFAULTS.keys()


@pytest.mark.parametrize("key", sorted(key for key, value in DEFAULTS.items() if value not in (None, [])))
def test_file_has_the_default_of_each_setting(key: str) -> None:
    value, default = file_settings()[key], DEFAULTS[key]
    assert (value, type(value)) == (default, type(default))


@pytest.fixture
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("GANTRY_"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_environment")
def test_file_without_changes_only_sets_the_name_servers() -> None:
    assert load(FILE, {}) == load(None, {"cluster": {"namesrv": ["127.0.0.1:9876"]}})


@pytest.mark.usefixtures("_no_environment")
@pytest.mark.parametrize(("listener_tables", "listeners"), [(False, [":8080"]), (True, [":8080", ":8081"])])
def test_file_with_all_settings_enabled_is_valid(tmp_path: Path, listener_tables: bool, listeners: list[str]) -> None:
    file = tmp_path / "gantry.toml"
    file.write_text(uncommented(listener_tables=listener_tables))
    loaded = load(file, {})
    assert [item.address for item in loaded.listen] == listeners
    assert loaded.tls.files is not None
    assert loaded.metrics_listen is not None
