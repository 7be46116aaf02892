"""The configuration reference: every setting with type, default and description, from the pydantic models."""

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from docs.generate import markdown
from docs.generate.markdown import code, sentence, table
from proxy.settings.model import Settings

_INTRODUCTION = """
Every setting of `gantry serve` and `gantry demo`. [Configuration](../configuration.md) describes the sources and their
order; `deploy/gantry.toml` is a file with every setting at its default.

A key `grpc.max_body` is `max_body` in the table `[grpc]` of the TOML file and `GANTRY_GRPC__MAX_BODY` in the
environment. Durations are in seconds and sizes in bytes. A default of *none* means that the setting is not set.
"""
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "path"}
# Binary units of sizes, largest first.
_UNITS = ((2**30, "GiB"), (2**20, "MiB"))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, or a list of tables such as `listen`."""

    key: str
    kind: str
    default: object
    required: bool
    description: str


def page_sections() -> Iterator[tuple[str, str, list[Setting]]]:
    """Yield the heading, the introduction and the settings of each section: first the top level, then each table."""
    tables = [(name, info) for name, info in Settings.model_fields.items() if list(models(info.annotation))]
    top = [setting for name, info in Settings.model_fields.items() for setting in _settings(name, info, nested=False)]
    yield "Top level", "", top
    for name, info in tables:
        model = next(models(info.annotation))
        yield name, _introduction(model), list(_walk(model, f"{name}."))


def settings() -> Iterator[Setting]:
    """Yield every setting once."""
    for _, _, found in page_sections():
        yield from found


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field of this type holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def _settings_table(found: list[Setting]) -> str:
    """Return the table of a section."""
    head = ("key", "type", "default", "description")
    return table(head, ((code(item.key), item.kind, default_text(item), sentence(item.description)) for item in found))


def page() -> str:
    sections = (
        "\n\n".join(filter(None, (f"## {_heading(name)}", text, _settings_table(found))))
        for name, text, found in page_sections()
    )
    return markdown.page("Configuration reference", _INTRODUCTION, *sections)


def default_text(setting: Setting) -> str:
    """Return a default as the table shows it."""
    if setting.required:
        return "required"
    value = setting.default
    if value in (None, "", []):
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int):
        return next(
            (f"{code(value)} ({value // size} {unit})" for size, unit in _UNITS if not value % size), code(value)
        )
    if isinstance(value, list):
        return code(str([item["address"] if isinstance(item, dict) else item for item in value]).replace("'", '"'))
    return code(value)


def _heading(name: str) -> str:
    return name if name == "Top level" else f"`{name}`"


def _introduction(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    for name, info in model.model_fields.items():
        yield from _settings(prefix + name, info)


def _settings(key: str, info: FieldInfo, *, nested: bool = True) -> Iterator[Setting]:
    """Yield a field as a setting unless it is a single table, and with `nested` the settings of its tables."""
    tables = list(models(info.annotation))
    if not tables or get_origin(info.annotation) is list:
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        jsonable = None if default is PydanticUndefined else to_jsonable_python(default)
        yield Setting(key, _kind(info.annotation, info.metadata), jsonable, info.is_required(), info.description or "")
    if nested:
        for model in tables:
            yield from _walk(model, f"{key}.")


def _kind(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    """Return a type in words, with its bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    bounds = _bounds(metadata)
    if origin is Annotated:
        return _kind(arguments[0], (*arguments[1:], *metadata))
    if origin in (Union, types.UnionType):
        parts = list(dict.fromkeys(_kind(part, metadata) for part in arguments if part is not type(None)))
        return " or ".join(parts)
    if origin is Literal:
        return "one of " + ", ".join(code(value) for value in arguments)
    if origin in (list, tuple):
        return f"list of {_plural(_kind(arguments[0]))}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "one of " + ", ".join(code(member.value) for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    name = _NAMES.get(annotation, "network" if "Network" in str(annotation) else str(annotation))
    return f"{name}, {bounds}" if bounds else name


def _plural(kind: str) -> str:
    return kind if kind.startswith("one of") else f"{kind}s"


def _bounds(metadata: Iterable[Any]) -> str:
    attributes = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
    return ", ".join(
        f"{sign} {_number(getattr(item, name))}"
        for item in metadata
        for name, sign in attributes
        if hasattr(item, name)
    )


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
