"""Requests of the commands to the admin API of a replica."""

import argparse
import asyncio
import base64
import http.client
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import orjson

from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.client_certificates import ClientTlsError, client_context
from proxy.tools.credentials import CredentialsError
from proxy.tools.credentials import read as read_credentials

DEFAULT_ADMIN = "http://127.0.0.1:8090"
ADMIN, TOKEN = "GANTRY_ADMIN", "GANTRY_ADMIN_TOKEN"  # names of variables


class Absent(CommandError):
    """The API says that there is no such thing."""


class AdminClient:
    """Calls of the admin API, one connection per call. The constructor raises UsageError."""

    def __init__(self, options: argparse.Namespace) -> None:
        try:
            credentials = read_credentials(options)
        except CredentialsError as error:
            raise UsageError(str(error)) from None
        self.url: str = options.admin or os.environ.get(ADMIN) or DEFAULT_ADMIN
        parts = urlsplit(self.url if "://" in self.url else f"http://{self.url}")
        try:
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            raise UsageError(f"not the URL of an admin API: {self.url!r}; write http://HOST:PORT") from None
        self._timeout: float = options.timeout
        self._tls = _context(options) if parts.scheme == "https" else None
        token = _token(getattr(options, "token", None) or os.environ.get(TOKEN) or "")
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif credentials is not None:
            pair = f"{credentials.access_key}:{credentials.secret_key}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of a GET; values of None are left out. Raises CommandError."""
        return await self._call("GET", path, query)

    async def write(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the JSON of a write. Raises CommandError."""
        return await self._call(method, path, query, body)

    async def items(self, path: str, limit: int | None = None, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of all pages of a list, up to a limit. Raises CommandError."""
        async for page in self.pages(path, limit, **query):
            for item in page["items"]:
                yield item

    async def pages(
        self, path: str, limit: int | None = None, size: int = 200, cursor: str | None = None, **query: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the pages of a list from a cursor on, up to a number of items. Raises CommandError.

        size: items of a page.
        """
        left = limit
        while left is None or left > 0:
            page = await self.get(path, **query, limit=size if left is None else min(left, size), cursor=cursor)
            yield page
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next")
            if cursor is None:
                return

    async def _call(self, method: str, path: str, query: dict[str, Any], body: Any = None) -> Any:
        given = {name: _text(value) for name, value in query.items() if value is not None}
        target = path + (f"?{urlencode(given)}" if given else "")
        status, content = await asyncio.to_thread(self._exchange, method, target, body)
        if status >= 300:
            raise (Absent if status == 404 else CommandError)(_problem(self.url, status, content))
        try:
            return orjson.loads(content) if content else None
        except orjson.JSONDecodeError:
            raise CommandError(f"{self.url} is not an admin API: it does not answer with JSON") from None

    def _exchange(self, method: str, target: str, body: Any) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        headers, content = self._headers, None
        if body is not None:
            headers, content = {**headers, "Content-Type": "application/json"}, orjson.dumps(body)
        try:
            connection.request(method, target, content, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except ssl.SSLCertVerificationError as error:
            raise CommandError(
                f"the certificate of {self.url} is not trusted ({error.verify_message}); see --ca"
            ) from None
        except ssl.SSLError:
            raise CommandError(f"{self.url} serves no TLS: write http://") from None
        except (http.client.HTTPException, ConnectionResetError) as error:
            hint = "it wants TLS (https://), or speaks no HTTP: the admin API has a port of its own (admin.listen)"
            raise CommandError(
                f"{self.url} closed the connection or answered no HTTP ({_name(error)}): {hint}"
            ) from None
        except TimeoutError:
            raise CommandError(f"{self.url} did not answer within {self._timeout:g} s") from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise CommandError(f"cannot connect to the admin API at {self.url}: {reason}; see --admin") from None
        finally:
            connection.close()


def path(*parts: str) -> str:
    """Return a path of the API from its parts, with names quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _token(text: str) -> str:
    """Return a bearer token without space around it, as files end with a line break. Raises UsageError."""
    token = text.strip()
    if not all("!" <= char <= "~" for char in token):
        raise UsageError(f"the bearer token has a character that tokens cannot have; see --token and ${TOKEN}")
    return token


def _name(error: Exception) -> str:
    return type(error).__name__


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(url: str, status: int, content: bytes) -> str:
    try:
        problem = orjson.loads(content)
        faults = problem.get("faults") or ()
        text = "; ".join(f"{fault['where']}: {fault['detail']}" for fault in faults) or str(problem["detail"])
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return f"{url} answered {status}: is it an admin API?"
    hint = f"; see --token and ${TOKEN}" if status in (401, 403) else ""
    return f"{text}{hint}"


def _context(options: argparse.Namespace) -> ssl.SSLContext:
    try:
        return client_context(options)
    except ClientTlsError as error:
        raise UsageError(str(error)) from None
