"""Names in paths of the API. A slash in a name, encoded as %2F, does not end the segment."""

from typing import Any
from urllib.parse import unquote

from proxy.admin.http.guard import Application, Message, Receive, Send

# Stands for the slash of a name, from the application's entry to the parameters of its route: a lone surrogate, which
# no decoded path can hold.
_SLASH = "\udc2f"


class NamesInPaths:
    """An ASGI application around the API's. The server decodes a path as a whole; here each of its segments is."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        raw = scope["raw_path"].decode("ascii")
        if "%2f" in raw.lower():
            path = "/".join(unquote(segment).replace("/", _SLASH) for segment in raw.split("/"))
            scope = {**scope, "path": path}
        await self._application(scope, receive, send)


def restored(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a path with their slashes."""
    return {name: shown(value) if isinstance(value, str) else value for name, value in parameters.items()}


def shown(path: str) -> str:
    """Return a path as people read it."""
    return path.replace(_SLASH, "/")
