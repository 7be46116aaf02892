"""Count hard-to-read prose in docstrings and comments.

    python -m tests.style.prose [--list] [PATH ...]

A noun clause ("What a connection is told", "whoever asks"), a vague word (nobody, told, of late) or a text that begins
without its noun ("Of closed clients.") hides the noun that a reader looks for. The limits apply to all texts and to
each room: proxy/auth, analytics/incidents, remoting. Exits with 1 above LIMITS; `--list` prints every line found.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

# Words that begin a noun clause, anywhere.
_CLAUSE = re.compile(r"\b(what|whatever|whoever|who)\b", re.IGNORECASE)
# The beginning of a text without its noun. Capitals: a line of a longer comment may begin with "of".
_LEADING = re.compile(r"\W*((?i:what|whatever|whoever|who)|Of|Those|Few)\b")
# Words that name no person, thing or time.
_VAGUE = re.compile(
    r"\b(nobody|somebody|anybody|everybody|of late|besides|thereby|whereupon|tell|told|tells|go round)\b",
    re.IGNORECASE,
)
# Highest shares of all docstrings and comments, and of those of each room.
LIMITS = {"clauses": 0.03, "leading": 0.01, "vague": 0.005}
# Number of each kind that any room may have: the share of one text in a small room is large.
ALWAYS = 2
# Files that protoc writes.
_GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")


@dataclass(frozen=True, slots=True)
class Text:
    """One docstring or comment: file, first line number, text."""

    file: Path
    line: int
    text: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of hard-to-read prose in the text, of those in LIMITS."""
        tests = (("clauses", _CLAUSE.search), ("leading", _LEADING.match), ("vague", _VAGUE.search))
        return tuple(kind for kind, search in tests if search(self.text))


def texts(file: Path) -> Iterator[Text]:
    """Yield the docstrings and comments of a Python file."""
    source = file.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield Text(file, node.body[0].lineno, docstring)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(file, token.start[0], token.string.lstrip("# "))


def counts(all_texts: Iterable[Text]) -> dict[str, int]:
    """Count the texts of each kind; "texts" counts all."""
    result = dict.fromkeys(("texts", *LIMITS), 0)
    for text in all_texts:
        result["texts"] += 1
        for kind in text.kinds:
            result[kind] += 1
    return result


def exceeded(found: dict[str, int], always: int = 0) -> list[str]:
    """Return the kinds whose share is above its limit. always: number that is permitted with any share."""
    return [kind for kind, limit in LIMITS.items() if found[kind] > max(limit * found["texts"], always)]


def room(file: Path) -> str:
    """Return the folder of a file, of two levels at most."""
    return "/".join(file.relative_to(ROOT).parent.parts[:2]) or "."


def _files(paths: list[Path]) -> list[Path]:
    """List the Python files below paths that git tracks, without generated ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *map(str, paths)]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = (ROOT / name for name in names if name.endswith(".py") and not _GENERATED.search(name))
    return [file for file in files if file.exists()]


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.style.prose", description="Count hard-to-read prose.")
    parser.add_argument("--list", action="store_true", help="print every docstring and comment found")
    parser.add_argument("paths", nargs="*", type=Path, default=[Path(".")])
    options = parser.parse_args(arguments)
    all_texts = [text for file in _files(options.paths) for text in texts(file)]
    if options.list:
        for text in all_texts:
            if text.kinds:
                first = text.text.splitlines()[0][:100]
                print(f"{text.file.relative_to(ROOT)}:{text.line}: {', '.join(text.kinds)}: {first}")
    found = counts(all_texts)
    shares = ", ".join(f"{found[kind]} {kind} ({found[kind] / max(found['texts'], 1):.1%})" for kind in LIMITS)
    print(f"prose: {found['texts']} docstrings and comments, {shares}")
    rooms: dict[str, list[Text]] = {}
    for text in all_texts:
        rooms.setdefault(room(text.file), []).append(text)
    above = {name: exceeded(counts(own), ALWAYS) for name, own in sorted(rooms.items())}
    for name, kinds in above.items():
        if kinds:
            print(f"prose: too many in {name}: {', '.join(kinds)}; --list {name} shows them")
    whole = exceeded(found)
    if whole:
        print(f"prose: too many in all texts together: {', '.join(whole)}")
    return 1 if whole or any(above.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
