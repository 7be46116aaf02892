"""The API's documentation as one HTML page, rendered from the OpenAPI document without scripts."""

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any
from urllib.parse import quote

from proxy.admin.http.problems import MEDIA_TYPE

_Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/"
_JSON = "application/json"
# Properties of nested objects in an example, so that schemas which refer to themselves end.
_MAX_DEPTH = 4
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="/ui/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/ui/page.css">
<link rel="stylesheet" href="/ui/docs.css">
</head>
<body class="docs">
<header>
<h1>{title}</h1>
<p><a href="/">Live page</a> · <a href="/openapi.json">OpenAPI document</a> · <a href="/metrics">metrics</a></p>
</header>
<nav aria-label="Parts">{index}</nav>
<main>{content}</main>
</body>
</html>
"""


def render(document: _Schema, address: str) -> str:
    """Return the page of an OpenAPI document. address: of the API, for examples."""
    sections, index = [], []
    for tag in document["tags"]:
        name = tag["name"]
        operations = "".join(
            _operation(document, address, *found) for found in _operations(document) if found[2]["tags"][0] == name
        )
        if operations:
            index.append(f'<a href="#{escape(name)}">{escape(name.capitalize())}</a>')
            heading = f'<h2 id="{escape(name)}">{escape(name.capitalize())}</h2><p>{_text(tag["description"])}</p>'
            sections.append(f"<section>{heading}{operations}</section>")
    schemas = sorted(document["components"]["schemas"].items())
    described = "".join(_named_schema(name, schema) for name, schema in schemas)
    sections.append(f'<section><h2 id="schemas">Schemas</h2>{described}</section>')
    index.append('<a href="#schemas">Schemas</a>')
    introduction = f"<section><p>{_text(document['info']['description'])}</p></section>"
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return _PAGE.format(title=title, index=" ".join(index), content=introduction + "".join(sections))


def _operations(document: _Schema) -> Iterator[tuple[str, str, _Schema]]:
    """Yield method, path and operation."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def _operation(document: _Schema, address: str, method: str, path: str, operation: _Schema) -> str:
    heading = (
        f'<summary><code class="method {method.lower()}">{method}</code> <code>{escape(path)}</code> '
        f"<span>{_text(operation['summary'])}</span></summary>"
    )
    # A link to an element inside of closed details opens them.
    parts = [f'<div id="{escape(operation["operationId"])}">']
    if description := operation.get("description"):
        parts.append(f"<p>{_text(description)}</p>")
    parts.append(f"<p>Role: {_role(operation)}</p>")
    parts.append(_table("Parameters", ("name", "in", "type", "description"), map(_parameter, _parameters(operation))))
    body = _json_schema(operation.get("requestBody", {}))
    if body is not None:
        parts.append(f"<p>Body: {_type(body)}</p>")
    rows = (
        (code, _text(response["description"]), _content(response.get("content", {})))
        for code, response in operation["responses"].items()
    )
    parts.append(_table("Responses", ("status", "meaning", "body"), rows))
    parts.append(f"<h3>Example</h3><pre>{escape(_curl(document, address, method, path, operation))}</pre></div>")
    return f"<details>{heading}{''.join(parts)}</details>"


def _role(operation: _Schema) -> str:
    security = operation.get("security", [])
    if not security:
        return "none"
    return "read" if {} in security else "write"


def _parameters(operation: _Schema) -> list[_Schema]:
    found: list[_Schema] = operation.get("parameters", [])
    return found


def _parameter(item: _Schema) -> tuple[str, str, str, str]:
    schema = item["schema"]
    text = _text(str(item.get("description") or schema.get("description") or ""))
    if item.get("required"):
        text += " required"
    elif schema.get("default") is not None:
        text += f" default: <code>{escape(json.dumps(schema['default']))}</code>"
    return f"<code>{escape(item['name'])}</code>", escape(item["in"]), _type(schema), text.strip()


def _content(content: _Schema) -> str:
    if MEDIA_TYPE in content:
        return _type(content[MEDIA_TYPE]["schema"])
    return " or ".join(
        _type(body["schema"]) if media == _JSON and body.get("schema") else f"<code>{escape(media)}</code>"
        for media, body in content.items()
    )


def _json_schema(body: _Schema) -> _Schema | None:
    found: _Schema | None = body.get("content", {}).get(_JSON, {}).get("schema")
    return found


# Schemas.


def _named_schema(name: str, schema: _Schema) -> str:
    parts = [f'<div id="schema-{escape(name)}">']
    if description := schema.get("description"):
        parts.append(f"<p>{_text(description)}</p>")
    required = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(field)}</code>",
            _type(kind),
            _text(kind.get("description", "")) + ("" if field in required else " <i>optional</i>"),
        )
        for field, kind in schema.get("properties", {}).items()
    )
    parts.append(_table("", ("field", "type", "description"), rows) or f"<p>{_type(schema)}</p>")
    return f"<details><summary><code>{escape(name)}</code></summary>{''.join(parts)}</div></details>"


def _type(schema: _Schema) -> str:
    """Return a schema's type in words, with links to named schemas."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REFERENCE))
        return f'<a href="#schema-{name}">{name}</a>'
    for key, word in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            return word.join(dict.fromkeys(_type(part) for part in schema[key]))
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "any")))


# Examples.


def _curl(document: _Schema, address: str, method: str, path: str, operation: _Schema) -> str:
    """Return a request with the examples of its parameters and body."""
    words = ["curl"] if method == "GET" else ["curl", "-X", method]
    if _role(operation) != "none":
        words += ["-H", '"Authorization: Bearer $TOKEN"']
    query = []
    for item in _parameters(operation):
        value = quote(str(_example(document, item["schema"])), safe=":")
        if item["in"] == "path":
            path = path.replace(f"{{{item['name']}}}", value)
        elif item.get("required"):
            query.append(f"{item['name']}={value}")
    path += f"?{'&'.join(query)}" if query else ""
    schema = _json_schema(operation.get("requestBody", {}))
    if schema is not None:
        body = json.dumps(_example(document, schema), ensure_ascii=False, separators=(",", ":"))
        words += ["-H", "'Content-Type: application/json'", "-d", f"'{body}'"]
    return " ".join((*words, f"'{address}{path}'"))


def _example(document: _Schema, schema: _Schema, depth: int = 0) -> Any:
    """Return a value of a schema: its example, or the required properties of an object."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].removeprefix(_REFERENCE)]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _example(document, schema[key][0], depth)
    if schema.get("type") == "object" and depth < _MAX_DEPTH:
        properties = schema.get("properties", {})
        return {name: _example(document, properties[name], depth + 1) for name in schema.get("required", ())}
    return {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}.get(schema.get("type", ""), "…")


# HTML.


def _table(caption: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of HTML cells; nothing without rows."""
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not lines:
        return ""
    heads = "".join(f'<th scope="col">{column}</th>' for column in columns)
    title = f"<caption>{caption}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _text(text: str) -> str:
    """Return text with the code and emphasis of Markdown as HTML."""
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text.strip()))
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escaped)
