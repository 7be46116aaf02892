"""Requests that name another replica (`?replica=`) are sent there."""

from typing import Any
from urllib.parse import parse_qsl, urlencode

from proxy.admin.http import problems
from proxy.admin.http.guard import OPEN, SESSION, Application, Message, Receive, Send
from proxy.operations.operation import BULK_TIMEOUT
from proxy.operations.peer_http import PeerUnavailable
from proxy.operations.peers import CALLER_HEADER, ROLE_HEADER, Peers

PARAMETER = "replica"
# Streams have no end. A session belongs to the replica that opened it, and open paths have no caller to be named there.
_NOT_FORWARDED = OPEN | {SESSION, "/v1/tap"}


class ReplicaForwarder:
    """An ASGI application around the API's."""

    def __init__(self, application: Application, peers: Peers) -> None:
        self._application = application
        self._peers = peers

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        names = [value for key, value in query if key == PARAMETER]
        if not names:
            await self._application(scope, receive, send)
            return
        rest = urlencode([(key, value) for key, value in query if key != PARAMETER])
        if names == [self._peers.name]:
            state = {**scope.get("state", {}), "own": True}
            await self._application({**scope, "query_string": rest.encode(), "state": state}, receive, send)
            return
        status, kind, body = await self._forward(names, rest, scope, receive)
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers if body else headers[1:]})
        await send({"type": "http.response.body", "body": body})

    async def _forward(self, names: list[str], query: str, scope: Message, receive: Receive) -> tuple[int, str, bytes]:
        path: str = scope["path"]
        if len(names) > 1:
            return _problem(422, f"the parameter {PARAMETER} has one value, and was given more than once", path)
        (name,) = names
        peer = None if path in _NOT_FORWARDED else await self._peers.named(name)
        if peer is None:
            return _problem(404, f"there is no replica {name[:80]} that could answer this", path)
        caller: Any = scope["state"]["caller"]
        headers = {
            key.decode("latin-1"): value.decode("latin-1")
            for key, value in scope["headers"]
            if key in (b"accept", b"content-type")
        }
        headers[CALLER_HEADER] = caller.name.encode("ascii", "replace").decode()
        headers[ROLE_HEADER] = caller.role.name.lower()
        # Not decoded: an encoded slash is part of a name.
        target = scope["raw_path"].decode("ascii") + (f"?{query}" if query else "")
        body = (await receive()).get("body", b"")
        try:
            response = await self._peers.send(peer, scope["method"], target, body, BULK_TIMEOUT, headers)
        except PeerUnavailable as error:
            return _problem(503, f"replica {peer.label} does not answer: {error}", path)
        return response.status, response.content_type, response.body


def _problem(status: int, detail: str, path: str) -> tuple[int, str, bytes]:
    return status, problems.MEDIA_TYPE, problems.content(status, detail, path)
