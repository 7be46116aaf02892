"""`python -m docs.build`: build the site strictly, check every link, and print one line of figures.

mkdocs checks links between Markdown pages. The check here reads the HTML that it wrote, so that links of snippets,
images and anchors are held too, and reads the Markdown files at the root of the repository.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
# Files at the root whose links must lead to files of the repository.
ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_MARKDOWN_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class _Page(HTMLParser):
    """The links and anchors of one HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        # Images, styles and scripts: the site must not load them from other hosts.
        self.assets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
            elif (tag, name) in {("img", "src"), ("link", "href"), ("script", "src")}:
                self.assets.append(value)


@dataclass(slots=True)
class Result:
    """Counts of a check, and its complaints."""

    pages: int = 0
    links: int = 0
    external: int = 0
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"docs: {self.pages} pages, {self.links} links checked, {self.external} links to other hosts not followed"
        )


def build(site: Path = SITE) -> int:
    """Run mkdocs strictly and return its exit status."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean", "--site-dir", str(site)]
    # mkdocs-material prints an advertisement for its successor otherwise.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603  # fixed commands


def check_site(site: Path) -> Result:
    """Check that every link of a built site leads to a file of it, and every fragment to an anchor.

    Assets of other hosts are errors; links to other hosts are counted.
    """
    pages = {path: _parse(path) for path in sorted(site.rglob("*.html"))}
    result = Result(pages=len(pages))
    for path, page in pages.items():
        for link in (*page.links, *page.assets):
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                result.external += 1
                if link in page.assets:
                    result.complaints.append(f"{path.relative_to(site)}: {link}: an asset of another host")
                continue
            result.links += 1
            # The page for missing paths has absolute links.
            folder = site if parts.path.startswith("/") else path.parent
            target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                result.complaints.append(f"{path.relative_to(site)}: {link}: no such file")
            elif parts.fragment and target in pages and not _has(pages[target], parts.fragment):
                result.complaints.append(f"{path.relative_to(site)}: {link}: no such anchor")
    return result


def check_root_pages(root: Path = ROOT) -> Iterator[str]:
    """Yield a complaint for each relative link of the Markdown files at the root that leads nowhere."""
    for name in ROOT_PAGES:
        for link in markdown_links((root / name).read_text()):
            parts = urlsplit(link)
            if parts.scheme or not parts.path:
                continue
            if not (root / unquote(parts.path)).exists():
                yield f"{name}: {link}: no such file"


def markdown_links(text: str) -> list[str]:
    """Return the targets of inline links outside of code."""
    return [match["target"] for match in _MARKDOWN_LINK.finditer(_CODE.sub("", text))]


def _has(page: _Page, fragment: str) -> bool:
    # The theme's own links to the top of a page.
    return fragment.startswith("__") or unquote(fragment) in page.anchors


def _parse(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.build", description="Build and check the documentation.")
    parser.add_argument("--site", type=Path, default=SITE, metavar="DIR", help="where the site goes (build/site)")
    options = parser.parse_args(arguments)
    status = build(options.site)
    if status:
        return status
    result = check_site(options.site)
    result.complaints.extend(check_root_pages())
    for complaint in result.complaints:
        print(complaint, file=sys.stderr)
    print(result)
    return 1 if result.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
