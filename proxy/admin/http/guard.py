"""Checks before every request of the API: host, caller, role, origin, size and time.

No route but the login can be reached without a role: reads need READ, all other methods WRITE.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any, Never
from urllib.parse import urlsplit

from protocol_negotiation.peer import HostPort
from proxy.admin.access import BadCredentials, Caller, Gatekeeping, Role
from proxy.admin.http import problems
from proxy.admin.http.audited import audited_body, audited_query
from proxy.admin.http.problems import Refused, too_many_logins
from proxy.admin.live.pages import FILES
from proxy.admin.sessions import CSRF_HEADER, is_own
from proxy.auth.admin_users import TooManyLogins
from proxy.core.health import PATHS
from proxy.operations import event_log
from proxy.operations.audit import Write
from proxy.operations.failures import INTERNAL_ERROR
from proxy.operations.peers import CALLER_HEADER, ROLE_HEADER
from proxy.operations.work_pace import WorkPace

_log = logging.getLogger("gantry.admin")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
# Paths that need no role: health, and the files of the live page, which hold no figures.
OPEN = frozenset((*PATHS, *FILES))
# Login and logout: every caller may ask for a session, whose credential is checked there. Its body is a secret.
SESSION = "/v1/session"
# HEAD is not served for streams: their response never ends.
_STREAMS = frozenset(("/v1/tap",))
# Seconds between two checks whether the caller of a stream may still read it.
_RECHECK_INTERVAL = 5.0
_ANY = "*"
_ROLES = {role.name.lower(): role for role in Role}


class Guard:
    """An ASGI application around the API's. names: allowed host names in addition to those of the settings."""

    def __init__(self, application: Application, gatekeeping: Gatekeeping, names: frozenset[str]) -> None:
        self._application = application
        self._gatekeeping = gatekeeping
        self._pace = WorkPace()
        self._settings = gatekeeping.settings
        # In lower case.
        self._names = names | {name.lower() for name in gatekeeping.settings.hosts}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        request = _Request(scope, send)
        body = b""
        caller: Caller | None = None
        try:
            # Health probes often send an address or no Host, and health is public.
            if request.path not in PATHS:
                self._check_host(request)
            if request.path not in OPEN:
                caller = self._caller(request)
                if request.path != SESSION:
                    self._check_role(request, caller)
                self._check_origin(request)
                body = await self._body(request, receive)
                scope.setdefault("state", {})["caller"] = caller
            serve = self._serve_stream if request.path in _STREAMS else self._serve
            await serve(request, body, receive)
        except Refused as refusal:
            await request.refuse(refusal)
        except _Disconnected:
            return
        except asyncio.CancelledError:
            # A read that ended with its caller is no failure.
            if not request.is_abandoned():
                raise
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            if not request.started:
                await request.refuse(Refused(500, INTERNAL_ERROR))
        finally:
            self._record(request, caller, body)

    async def _serve(self, request: "_Request", body: bytes, receive: Receive) -> None:
        scope = request.scope
        if request.method == "HEAD" and request.path not in _STREAMS:
            # The server omits the body.
            scope = {**scope, "method": "GET"}
        replayed = False

        async def receive_again() -> Message:
            nonlocal replayed
            if not replayed:
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        async def serve() -> None:
            await self._application(scope, receive_again, request.send)

        if request.path in PATHS:
            # Whoever restarts a replica waits for this answer.
            await serve()
        else:
            await self._pace.run(serve(), request.is_abandoned)

    async def _serve_stream(self, request: "_Request", body: bytes, receive: Receive) -> None:
        """Serve a stream until it ends, or its caller may not read it any more."""
        serving = asyncio.ensure_future(self._serve(request, body, receive))
        try:
            while not (await asyncio.wait((serving,), timeout=_RECHECK_INTERVAL))[0]:
                if not self._may_still_read(request):
                    break
        finally:
            ended = serving.done()
            serving.cancel()
            # Until the stream is closed.
            await asyncio.wait((serving,))
        if ended:
            serving.result()
        else:
            await request.end()

    def _may_still_read(self, request: "_Request") -> bool:
        try:
            return self._caller(request, again=True).role >= Role.READ
        except Refused:
            return False

    # Checks.

    def _check_host(self, request: "_Request") -> None:
        """Refuse host names that are not this host's: they may be of a DNS rebinding attack."""
        host = _host_of(request.headers.get("host", ""))
        if host is None:
            self._refuse("host", Refused(400, "the request has no valid Host"))
        if not self._is_own_name(host):
            self._refuse(
                "host",
                Refused(421, f"{host} is not a name of this replica: use its address, or add the name to admin.hosts"),
            )

    def _is_own_name(self, host: str) -> bool:
        return host in self._names or _ANY in self._names or HostPort(host, 0).ip is not None

    def _check_origin(self, request: "_Request") -> None:
        """Refuse writes by pages of other origins, which a browser would send with its user's role."""
        if request.method in _SAFE:
            return
        origin = request.headers.get("origin")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            self._refuse("origin", Refused(403, "pages of other origins may not do this"))
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
            self._refuse("origin", Refused(403, "pages of other origins may not do this"))

    def _caller(self, request: "_Request", *, again: bool = False) -> Caller:
        """Return the caller of a request, or again of one that is in flight. Raises Refused."""
        client = request.scope.get("client")
        subject = request.scope.get("state", {}).get("subject")
        headers = request.headers
        session = None if "authorization" in headers else self._gatekeeping.sessions.find(headers, use=not again)
        if session is not None:
            if request.method not in _SAFE and not is_own(session, headers):
                self._refuse("csrf", Refused(403, f"writes with a session need its token in {CSRF_HEADER}"))
            headers = {**headers, "authorization": session.authorization}
        try:
            caller = self._gatekeeping.access.caller(client[0] if client else "", headers, subject)
        except BadCredentials as error:
            if session is not None:
                # The token has been withdrawn since.
                self._gatekeeping.sessions.close(headers)
            self._refuse("credentials", Refused(401, str(error), {"WWW-Authenticate": _CHALLENGE_WRONG}))
        except TooManyLogins:
            self._refuse("logins", too_many_logins())
        if caller.peer and CALLER_HEADER in headers:
            role = min(caller.role, _ROLES.get(headers.get(ROLE_HEADER, ""), Role.NONE))
            return replace(caller, name=f"{headers[CALLER_HEADER][:255]} at {caller.name}", role=role)
        return caller

    def _check_role(self, request: "_Request", caller: Caller) -> None:
        required = Role.READ if request.method in _SAFE else Role.WRITE
        if caller.role < required:
            if caller.anonymous:
                detail = (
                    f"this needs a token with the role {required.name.lower()} (admin.{required.name.lower()}_token)"
                )
                self._refuse("role", Refused(401, detail, {"WWW-Authenticate": _CHALLENGE}))
            self._refuse("role", Refused(403, f"{caller.name} does not have the role {required.name.lower()}"))

    async def _body(self, request: "_Request", receive: Receive) -> bytes:
        """Return the whole body, within the limits on size and time."""
        limit = self._settings.max_body
        size = request.headers.get("content-length", "0")
        too_large = Refused(413, f"the limit on request bodies is {limit} bytes", {"Connection": "close"})
        if size.isdecimal() and int(size) > limit:
            self._refuse("size", too_large)
        parts: list[bytes] = []
        total = 0
        try:
            async with asyncio.timeout(self._settings.timeout):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _Disconnected
                    parts.append(message.get("body", b""))
                    total += len(parts[-1])
                    if total > limit:
                        self._refuse("size", too_large)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            refusal = Refused(408, "the request did not arrive completely in time", {"Connection": "close"})
            self._refuse("timeout", refusal)

    def _refuse(self, reason: str, refusal: Refused) -> Never:
        self._gatekeeping.refusals[reason] += 1
        raise refusal

    # Audit.

    def _record(self, request: "_Request", caller: Caller | None, body: bytes) -> None:
        status = request.status or 499
        self._gatekeeping.requests[str(status)] += 1
        if request.method in _SAFE:
            return
        client = request.scope.get("client")
        self._gatekeeping.audit.record(
            Write(
                event_log.now(),
                "nobody" if caller is None else caller.name,
                client[0] if client else "",
                request.method,
                request.path,
                audited_query(request.scope.get("query_string", b"").decode("ascii", "replace"), status),
                None if request.path == SESSION else audited_body(body, status),
                status,
            ),
            unauthenticated=status == 401,
        )


_CHALLENGE = 'Bearer realm="gantry"'
_CHALLENGE_WRONG = 'Bearer realm="gantry", error="invalid_token"'


class _Disconnected(Exception):
    """The caller has closed the connection."""


class _Request:
    """A request in flight, and the status of its response."""

    __slots__ = ("_send", "complete", "headers", "method", "path", "scope", "status")

    def __init__(self, scope: Message, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # The first of repeated fields counts.
        self.headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        self.status: int | None = None
        self.complete = False
        self._send = send

    @property
    def started(self) -> bool:
        return self.status is not None

    def is_abandoned(self) -> bool:
        """Return whether its caller has left. A write is completed nevertheless, and streams end by themselves."""
        if self.method not in _SAFE or self.path in _STREAMS:
            return False
        transport = self.scope.get("state", {}).get("transport")
        return transport is not None and transport.is_closing()

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            sent = {name.lower() for name, _ in headers}
            message["headers"] = headers + [field for field in _ALWAYS if field[0] not in sent]
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """End a response whose caller has lost its role: after what has been sent, else with a problem."""
        if not self.started:
            await self.refuse(Refused(401, "the credential is not valid any more"))
        elif not self.complete:
            await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Refused) -> None:
        """Respond with a problem."""
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
    """Return the host of a Host field, in lower case and without brackets; None if it is invalid."""
    try:
        parts = urlsplit(f"//{text}")
        # Reading the port checks it.
        _ = parts.port
    except ValueError:
        return None
    if parts.netloc != text or parts.username is not None:
        return None
    return parts.hostname
