"""Markdown building blocks of the generated pages."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Generated from the code by `python -m docs.generate`; do not edit. -->\n"


def page(title: str, introduction: str, *sections: str, contents: bool = True) -> str:
    """Return a page with the notice, the title, an introduction and sections, separated by blank lines.

    contents: whether the site shows the table of contents beside the page; without it tables have more room.
    """
    front_matter = "" if contents else "---\nhide: [toc]\n---"
    parts = (front_matter, NOTICE.rstrip(), f"# {title}", introduction, *sections)
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Bars and line breaks in cells are escaped."""
    lines = [_row(head), _row(["---"] * len(head)), *(_row([cell(text) for text in row]) for row in rows)]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Return text that fits one table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return text as inline code; the empty string stays empty."""
    return f"`{text}`" if str(text) else ""


def codes(texts: Iterable[object]) -> str:
    """Return texts as a comma-separated list of inline code."""
    return ", ".join(code(text) for text in texts)


def sentence(text: str) -> str:
    """Return text with a capital first letter and a full stop, unless it begins with code or an identifier."""
    text = " ".join(text.split())
    if not text:
        return ""
    first = text.partition(" ")[0]
    plain = first.rstrip(",:;").isalpha() and first.islower()
    text = text[0].upper() + text[1:] if plain else text
    return text if text.endswith((".", "?", ":")) else f"{text}."


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
