"""The documents say what the code says."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from proxy.settings.loading import load
from proxy.settings.model import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
FILE = ROOT / "deploy" / "gantry.toml"
_UNITS = {"MiB": 2**20, "GiB": 2**30}
# A setting, or a table of them, that is commented out.
_SETTING = re.compile(r"# (\[.*\]|\w+ = \S.*|\[\[.*\]\] .*)")


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """The tables that a field of this type holds."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from models(part)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting below this table that is not a table itself, and its default as TOML would have it."""
    for name, info in model.model_fields.items():
        tables = list(models(info.annotation))
        if not tables or name == "listen":
            default = None if info.is_required() else info.get_default(call_default_factory=True)
            yield prefix + name, to_jsonable_python(default)
        for table in tables:
            yield from keys(table, f"{prefix}{name}.")


DEFAULTS = dict(keys(Settings))
# In its short form.
DEFAULTS["listen"] = [item["address"] for item in DEFAULTS["listen"]]


def test_the_walk_over_the_settings_finds_them() -> None:
    assert {"listen", "listen.tls", "listen.advertise_rules.networks", "cluster.namesrv", "replica"} <= DEFAULTS.keys()
    assert DEFAULTS["limits.frame"] == 2**24
    assert DEFAULTS["tls.mode"] == "permissive"


# The README.


def rows() -> Iterator[tuple[str, str, str]]:
    """Key, default and meaning of each setting in the README's table."""
    table = README.partition("| setting | default | meaning |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        names, defaults, meaning = (cell.strip() for cell in line.strip("| ").split(" | ", 2))
        found = re.findall(r"`([\w.]+)`", names)
        values = defaults.split(", ")
        assert len(values) in (1, len(found)), line
        for name, value in zip(found, values if len(values) > 1 else values * len(found), strict=True):
            yield name, value, meaning


def test_the_readme_has_every_setting() -> None:
    named = [name for name, _, _ in rows()]
    assert sorted(named) == sorted(set(named))
    meanings = {name: meaning for name, _, meaning in rows()}
    # What is in a rule is told with the rules.
    inner = {f"listen.advertise_rules.{name}" for name in ("networks", "address")}
    assert all(f"`{key.rpartition('.')[2]}`" in meanings["listen.advertise_rules"] for key in inner)
    tables = {"listen.advertise_rules"}
    assert set(named) == (DEFAULTS.keys() | tables) - inner


def test_the_readmes_defaults_are_the_codes() -> None:
    for name, text, _ in rows():
        # `listen.address` shares the row of `listen`.
        default = DEFAULTS["listen" if name == "listen.address" else name] if name in DEFAULTS else []
        number, _, unit = text.partition(" ")
        if text.startswith("`"):
            assert text.strip("`") == _written(default), name
        elif unit in _UNITS:
            assert int(number) * _UNITS[unit] == default, name
        else:
            # Words for what stands in where nothing is set.
            assert default in (None, "", []), name


def _written(value: object) -> str:
    """A default as it stands in the table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return str(value).replace("'", '"')
    return str(value)


# deploy/gantry.toml.


def settings_of(*, tables: bool) -> str:
    """The file with everything in it that is commented out; listeners either as texts or as tables."""
    lines = []
    for line in FILE.read_text().splitlines():
        found = _SETTING.fullmatch(line)
        lines.append(found[1] if found else line)
    text = "\n".join(lines)
    before, start, after = text.partition("[[listen]]")
    return re.sub(r"^listen = .*$", "", before, flags=re.MULTILINE) + start + after if tables else before


def flat(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a parsed file by its key."""
    for name, value in data.items():
        key = prefix + name
        if isinstance(value, dict):
            yield from flat(value, f"{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                yield from flat(item, f"{key}.")
        else:
            yield key, value


def written() -> dict[str, Any]:
    """What the file shows, of later listeners only what the first has not."""
    texts, tables = (tomllib.loads(settings_of(tables=tables)) for tables in (False, True))
    return {**dict(reversed(list(flat(tables)))), **dict(flat(texts))}


def test_the_file_has_every_setting_and_no_other() -> None:
    assert written().keys() == DEFAULTS.keys()


@pytest.mark.parametrize("key", sorted(key for key, value in DEFAULTS.items() if value not in (None, [])))
def test_the_file_shows_the_default(key: str) -> None:
    shown, default = written()[key], DEFAULTS[key]
    assert (shown, type(shown)) == (default, type(default))


@pytest.fixture
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("GANTRY_"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_environment")
def test_the_file_as_it_is_only_names_the_cluster() -> None:
    assert load(FILE, {}) == load(None, {"cluster": {"namesrv": ["127.0.0.1:9876"]}})


@pytest.mark.usefixtures("_no_environment")
@pytest.mark.parametrize(("tables", "listeners"), [(False, [":8080"]), (True, [":8080", ":8081"])])
def test_the_file_uncommented_is_valid(tmp_path: Path, tables: bool, listeners: list[str]) -> None:
    file = tmp_path / "gantry.toml"
    file.write_text(settings_of(tables=tables))
    settings = load(file, {})
    assert [item.address for item in settings.listen] == listeners
    assert settings.tls.files is not None
    assert settings.metrics_listen is not None
