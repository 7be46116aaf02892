"""The body and the query of a write in the audit, without secrets."""

from urllib.parse import unquote_plus

import orjson

from proxy.settings.secret_names import MASK, is_secret

# Limits on a body in the audit: bytes, and brackets, since JSON nested too deeply cannot be encoded.
_MAX_BODY = 4 * 1024
_MAX_BRACKETS = 64
# Statuses of requests whose names were not all checked, or are not those of a route: any value may be a secret.
_UNCHECKED = frozenset((400, 404, 405, 415, 422))


def audited_body(body: bytes, status: int) -> object:
    """Return the JSON value of a body, with the secrets masked; its size if it is long or not JSON.

    Of a request that was rejected as invalid all values are masked: a secret may have a misspelt name.
    """
    if not body:
        return None
    if len(body) > _MAX_BODY or body.count(b"[") + body.count(b"{") > _MAX_BRACKETS:
        return f"{len(body)} bytes"
    try:
        return _masked(orjson.loads(body), status in _UNCHECKED)
    except orjson.JSONDecodeError:
        return f"{len(body)} bytes, not JSON"


def audited_query(query: str, status: int) -> str:
    """Return a query with the values masked as in `audited_body`."""
    return "&".join(_parameter(text, status in _UNCHECKED) for text in query.split("&"))


def _masked(value: object, everything: bool) -> object:
    if isinstance(value, dict):
        return {
            name: MASK if is_secret(name) and item is not None else _masked(item, everything)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_masked(item, everything) for item in value]
    return MASK if everything and value is not None else value


def _parameter(text: str, everything: bool) -> str:
    name, equals, _ = text.partition("=")
    return f"{name}={MASK}" if equals and (everything or is_secret(unquote_plus(name))) else text
