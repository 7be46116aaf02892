"""The static files of the live page."""

from importlib.resources import files

_MODULES = (
    *("api", "broker", "charts", "client", "connection", "crane", "dead_letters", "definitions", "diagnosis", "dialog"),
    *("dom", "format", "group", "groups", "history", "json", "main", "message", "messages", "overview", "replica"),
    *("reset", "search", "table", "tap", "topic", "view"),
)
# Media type of each file, by path.
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
    "/ui/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/ui/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _MODULES},
}


def file(path: str) -> tuple[str, bytes]:
    """Return media type and content of one of the page's files."""
    name, media_type = FILES[path]
    return media_type, (files("proxy.admin.live") / "page" / name).read_bytes()
