"""The static files of the live page."""

from importlib.resources import files

# Media type of each file, by path.
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
    "/ui/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
}


def file(path: str) -> tuple[str, bytes]:
    """Return media type and content of one of the page's files."""
    name, media_type = FILES[path]
    return media_type, (files("proxy.admin.live") / "page" / name).read_bytes()
