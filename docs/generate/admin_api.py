"""The admin API reference: the OpenAPI document as Markdown."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from docs.generate import markdown
from docs.generate.markdown import code, sentence, table
from proxy.admin.http.application import make
from proxy.admin.http.problems import MEDIA_TYPE
from proxy.app import App
from proxy.settings.model import Settings

_INTRODUCTION = """
The HTTP API for operators, as `/openapi.json` of a replica with one worker describes it.
[The admin API](../operating/admin-api.md)
explains roles, pages, errors and several workers.

Every request may also fail with 401 (a token is missing or not valid), 403 (the role does not permit it), 413 (the body
is too large), 421 (the Host is not one of the API's names) or 5xx. Errors have the body [Problem](#schema-problem).
"""
_Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/"


async def openapi() -> _Schema:
    """Return the OpenAPI document of a replica with default settings."""
    app = App(Settings())
    try:
        return make(app.admin_services).openapi()
    finally:
        app.backend.close()


async def page() -> str:
    """Return the page: operations by tag, then the schemas that they use."""
    document = await openapi()
    schemas = document["components"]["schemas"]
    sections: list[str] = [document["info"]["description"]]
    for tag in document["tags"]:
        operations = list(_operations(document, tag["name"]))
        if operations:
            sections.append(f"## {tag['name'].capitalize()}\n\n{tag['description']}")
            sections.extend(_operation(*operation) for operation in operations)
    sections.append("## Schemas")
    sections.extend(_schema(name, schema) for name, schema in sorted(schemas.items()))
    return markdown.page("Admin API reference", _INTRODUCTION, *sections)


def _operations(document: _Schema, tag: str) -> Iterator[tuple[str, str, _Schema]]:
    """Yield method, path and operation of a tag. An operation belongs to its first tag."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation["tags"][0] == tag:
                yield method.upper(), path, operation


def _operation(method: str, path: str, operation: _Schema) -> str:
    parts = [f"### {method} {path}", sentence(operation["summary"])]
    description = operation.get("description", "")
    if description:
        parts.append(description.strip())
    parts.append(f"Role: {_role(operation)}.")
    if operation.get("parameters"):
        rows = (
            (code(item["name"]), item["in"], _type(item["schema"]), _default(item), sentence(_text(item)))
            for item in operation["parameters"]
        )
        parts.append(table(("parameter", "in", "type", "default", "description"), rows))
    body = operation.get("requestBody")
    if body is not None:
        optional = "" if body.get("required") else " (optional)"
        parts.append(f"Body{optional}: {_content(body['content'])}.")
    parts.append(table(("status", "meaning", "body"), _responses(operation["responses"])))
    errors = [status for status, response in operation["responses"].items() if _is_problem(response)]
    parts.append(
        f"Errors: {', '.join(status for status in errors if status != 'default') or 'those of every request'}."
    )
    return "\n\n".join(parts)


def _role(operation: _Schema) -> str:
    security = operation.get("security", [])
    if not security:
        return "none"
    return "*read*" if {} in security else "*write*"


def _text(item: _Schema) -> str:
    return str(item.get("description") or item["schema"].get("description") or "")


def _default(item: _Schema) -> str:
    if item.get("required"):
        return "required"
    default = item["schema"].get("default")
    return "" if default is None else code(json.dumps(default).strip('"'))


def _responses(responses: _Schema) -> Iterator[tuple[str, str, str]]:
    for status, response in responses.items():
        if not _is_problem(response):
            text = {"Successful Response": "Success"}.get(response["description"], response["description"])
            yield status, sentence(text), _content(response.get("content", {}))


def _is_problem(response: _Schema) -> bool:
    return list(response.get("content", {})) == [MEDIA_TYPE]


def _content(content: _Schema) -> str:
    parts = []
    for media, described in content.items():
        kind = _type(described.get("schema", {}))
        parts.append(kind if media in ("application/json", "application/problem+json") else f"{code(media)} {kind}")
    return " or ".join(dict.fromkeys(part.strip() for part in parts))


def _type(schema: _Schema) -> str:
    """Return a schema's type in words, with links to named schemas."""
    if "$ref" in schema:
        return _link(schema["$ref"].removeprefix(_REFERENCE))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(part) for part in schema[key]))
    if "allOf" in schema:
        return " and ".join(_type(part) for part in schema["allOf"])
    if "const" in schema:
        return code(json.dumps(schema["const"]).strip('"'))
    if "enum" in schema:
        return "one of " + ", ".join(code(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any")) + _bounds(schema)


def _bounds(schema: _Schema) -> str:
    signs = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    found = ", ".join(f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema)
    return f", {found}" if found else ""


def _link(name: str) -> str:
    return f"[{_plain(name)}](#{_anchor(name)})"


def _plain(name: str) -> str:
    """Return a generic model's name without the decoration of pydantic: `Page_Client_` is `Page of Client`."""
    return re.sub(r"_$", "", name).replace("__", "_").replace("_", " of ", 1).replace("_", " ")


def _anchor(name: str) -> str:
    return "schema-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _schema(name: str, schema: _Schema) -> str:
    parts = [f"### {_plain(name)} {{ #{_anchor(name)} }}"]
    if schema.get("description"):
        parts.append(sentence(schema["description"]))
    if schema.get("properties"):
        parts.append(table(("field", "type", "description"), _properties(schema)))
    elif "enum" in schema:
        parts.append(f"One of {', '.join(code(value) for value in schema['enum'])}.")
    else:
        parts.append(f"Type: {_type(schema)}.")
    return "\n\n".join(parts)


def _properties(schema: _Schema) -> Iterable[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        examples = [json.dumps(value, ensure_ascii=False) for value in field.get("examples", []) if value is not None]
        example = f" Example: {code(examples[0])}" if examples and len(examples[0]) < 80 else ""
        yield code(name), _type(field), f"{sentence(field.get('description', ''))}{example}".strip()
