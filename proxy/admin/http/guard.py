"""What every request of the API passes first: where it came to, who sent it, how large it is, how long it takes.

Nothing behind it can be reached without a role, whatever a route forgets: reads need READ, all else WRITE.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Never
from urllib.parse import urlsplit

import orjson

from protocol_negotiation.peer import HostPort
from proxy.admin.http import problems
from proxy.admin.http.access import ANONYMOUS, BadCredentials, Caller, Role
from proxy.admin.http.problems import Refused
from proxy.admin.live.pages import FILES
from proxy.core.health import PATHS
from proxy.operations import event_log
from proxy.operations.audit import Write

if TYPE_CHECKING:
    from proxy.admin.http.service import Admin

_log = logging.getLogger("gantry.admin")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
# Told to everybody: health, and the live page as long as it has no figures in it.
_OPEN = frozenset((*PATHS, *FILES))
# Streams without an end have no head that could be asked for apart.
_STREAMS = frozenset(("/v1/tap",))
# Bytes of a write's body that are kept for the audit, and brackets in it: what is nested deeper than any body of
# ours could be logged by nobody.
_MAX_AUDITED = 4 * 1024
_MAX_BRACKETS = 64
_ANY = "*"


class Guard:
    """An ASGI application around the API's."""

    def __init__(self, application: Application, admin: "Admin", names: frozenset[str]) -> None:
        self._application = application
        self._admin = admin
        self._settings = admin.settings
        # Names by which this host may be called, in lower case.
        self._names = names | {name.lower() for name in admin.settings.hosts}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        request = _Request(scope, send)
        body = b""
        caller: Caller | None = None
        try:
            # Checks of health seldom know a name, and there is nothing in it to steal.
            if request.path not in PATHS:
                self._check_host(request)
            if request.path not in _OPEN:
                caller = self._caller(request)
                self._check_role(request, caller)
                self._check_origin(request)
                body = await self._body(request, receive)
                scope.setdefault("state", {})["caller"] = caller
            await self._serve(request, body, receive)
        except Refused as refusal:
            await request.refuse(refusal)
        except _Gone:
            return
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            if not request.started:
                await request.refuse(Refused(500, problems.MISTAKE))
        finally:
            self._note(request, caller, body)

    async def _serve(self, request: "_Request", body: bytes, receive: Receive) -> None:
        scope = request.scope
        if request.method == "HEAD" and request.path not in _STREAMS:
            # The server leaves the content out.
            scope = {**scope, "method": "GET"}
        replayed = False

        async def given() -> Message:
            nonlocal replayed
            if not replayed:
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self._application(scope, given, request.send)

    # Checks.

    def _check_host(self, request: "_Request") -> None:
        """A name that is not ours is somebody's who has pointed his own at this address (DNS rebinding)."""
        host = _host_of(request.headers.get("host", ""))
        if host is None:
            self._refuse("host", Refused(400, "the request has no proper Host"))
        if not self._is_ours(host):
            self._refuse(
                "host",
                Refused(421, f"this replica is not called {host}: use its address, or name it in admin.hosts"),
            )

    def _is_ours(self, host: str) -> bool:
        return host in self._names or _ANY in self._names or HostPort(host, 0).ip is not None

    def _check_origin(self, request: "_Request") -> None:
        """A page from elsewhere, in a browser on this host, must not do what its user may."""
        if request.method in _SAFE:
            return
        origin = request.headers.get("origin")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            self._refuse("origin", Refused(403, "a page from elsewhere may not do this"))
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
            self._refuse("origin", Refused(403, "a page from elsewhere may not do this"))

    def _caller(self, request: "_Request") -> Caller:
        client = request.scope.get("client")
        subject = request.scope.get("state", {}).get("subject")
        try:
            caller = self._admin.access.caller(client[0] if client else "", request.headers, subject)
        except BadCredentials:
            self._refuse("credentials", Refused(401, "nobody has this token", {"WWW-Authenticate": _CHALLENGE_WRONG}))
        return caller

    def _check_role(self, request: "_Request", caller: Caller) -> None:
        wanted = Role.READ if request.method in _SAFE else Role.WRITE
        if caller.role < wanted:
            if caller.name in ANONYMOUS:
                detail = f"this needs a token with the role {wanted.name.lower()} (admin.{wanted.name.lower()}_token)"
                self._refuse("role", Refused(401, detail, {"WWW-Authenticate": _CHALLENGE}))
            self._refuse("role", Refused(403, f"{caller.name} has not the role {wanted.name.lower()}"))

    async def _body(self, request: "_Request", receive: Receive) -> bytes:
        """The whole body, within its bounds; a caller cannot make a route wait for it."""
        limit = self._settings.max_body
        size = request.headers.get("content-length", "0")
        too_large = Refused(413, f"a request may have {limit} bytes", {"Connection": "close"})
        if size.isdecimal() and int(size) > limit:
            self._refuse("size", too_large)
        parts: list[bytes] = []
        total = 0
        try:
            async with asyncio.timeout(self._settings.timeout):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _Gone
                    parts.append(message.get("body", b""))
                    total += len(parts[-1])
                    if total > limit:
                        self._refuse("size", too_large)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            refusal = Refused(408, "the request did not come whole in time", {"Connection": "close"})
            self._refuse("timeout", refusal)

    def _refuse(self, reason: str, refusal: Refused) -> Never:
        self._admin.refusals[reason] += 1
        raise refusal

    # Traces.

    def _note(self, request: "_Request", caller: Caller | None, body: bytes) -> None:
        status = request.status or 499
        self._admin.requests[str(status)] += 1
        if request.method in _SAFE:
            return
        client = request.scope.get("client")
        self._admin.audit.note(
            Write(
                event_log.now(),
                "nobody" if caller is None else caller.name,
                client[0] if client else "",
                request.method,
                request.path,
                request.scope.get("query_string", b"").decode("ascii", "replace"),
                _audited(body),
                status,
            ),
            stranger=status == 401,
        )


_CHALLENGE = 'Bearer realm="gantry"'
_CHALLENGE_WRONG = 'Bearer realm="gantry", error="invalid_token"'


class _Gone(Exception):
    """The caller has left."""


class _Request:
    """One request under way: what it is, and what has been answered."""

    __slots__ = ("_send", "headers", "method", "path", "scope", "status")

    def __init__(self, scope: Message, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # Of several equal names the first: a second cannot overrule it.
        self.headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        self.status: int | None = None
        self._send = send

    @property
    def started(self) -> bool:
        return self.status is not None

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            given = {name.lower() for name, _ in headers}
            message["headers"] = headers + [field for field in _ALWAYS if field[0] not in given]
        await self._send(message)

    async def refuse(self, refusal: Refused) -> None:
        """Answer by a problem."""
        content = problems.content(refusal.status, refusal.detail, self.path, refusal.faults, refusal.more)
        headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(content)),
            *((name.lower().encode(), value.encode()) for name, value in refusal.headers.items()),
        ]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})


_ALWAYS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)


def _host_of(text: str) -> str | None:
    """The host of a Host field, in lower case and without brackets; None where it is none."""
    try:
        parts = urlsplit(f"//{text}")
        # Reading the port checks it.
        _ = parts.port
    except ValueError:
        return None
    if parts.netloc != text or parts.username is not None:
        return None
    return parts.hostname


def _audited(body: bytes) -> object:
    if not body:
        return None
    if len(body) > _MAX_AUDITED or body.count(b"[") + body.count(b"{") > _MAX_BRACKETS:
        return f"{len(body)} bytes"
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return f"{len(body)} bytes, not JSON"
