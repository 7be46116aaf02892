"""The keys of a traffic rules file, from the pydantic models."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel

from docs.generate import markdown
from docs.generate.markdown import code, sentence, table
from proxy.traffic_rules.match_criteria import Match
from proxy.traffic_rules.model import RuleFile

_INTRODUCTION = """
The keys of the TOML file that `rules.file` names. [Traffic rules](../traffic-rules.md) explains what the rules do, and
`deploy/rules.toml` has an example of every kind.
"""
_RULE_TEXT = """
A rule is a table `[[rule]]` with `name`, `kind`, optionally `dry_run` and `match`, and the keys of its kind.
"""
_MATCH_TEXT = """
Every given key must fit, and one of a key's values is enough. Texts are globs. A key that is left out fits everything.
"""


def page() -> str:
    """Return the page."""
    rules = list(_rule_models())
    common = {"name", "dry_run"}
    sections = [
        f"## The file\n\n{_keys(RuleFile, set(RuleFile.model_fields) - {'rule'})}",
        f"## Every rule\n{_RULE_TEXT}\n{_keys(rules[0][1], common)}",
        f"## `match`\n{_MATCH_TEXT}\n{_keys(Match, set(Match.model_fields))}",
    ]
    for kind, model in rules:
        own = set(model.model_fields) - common - {"kind", "match"}
        keys = _keys(model, own) if own else "No further keys."
        sections.append(f"## `{kind}`\n\n{sentence(model.__doc__ or '')}\n\n{keys}")
    return markdown.page("Traffic rules reference", _INTRODUCTION, *sections)


def kinds() -> list[str]:
    """Return the kinds of rules in the order of the model."""
    return [kind for kind, _ in _rule_models()]


def _rule_models() -> Iterator[tuple[str, type[BaseModel]]]:
    def leaves(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        for part in get_args(annotation):
            yield from leaves(part)

    for model in leaves(RuleFile.model_fields["rule"].annotation):
        yield get_args(model.model_fields["kind"].annotation)[0], model


def _keys(model: type[BaseModel], names: set[str]) -> str:
    schema = model.model_json_schema()
    rows = []
    for name, info in model.model_fields.items():
        if name in names:
            default = "required" if info.is_required() else _default(info.get_default())
            found = schema["properties"][name]
            rows.append((code(name), _kind(found, schema), default, sentence(info.description or "")))
    return table(("key", "type", "default", "description"), rows)


def _default(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, Enum):
        return code(value.value)
    return code(f"{value:g}" if isinstance(value, float) else value)


def _kind(found: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return a JSON schema's type in words."""
    if "$ref" in found:
        return _kind(schema["$defs"][found["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in found:
        parts = [_kind(part, schema) for part in found["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    if "enum" in found:
        if found.get("type") == "integer":
            return "name of a request code"
        return "one of " + ", ".join(code(value) for value in found["enum"])
    if found.get("type") == "array":
        return f"list of {_kind(found['items'], schema)}"
    return str(found.get("type", "value"))
