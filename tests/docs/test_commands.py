"""Commands of the documentation are valid: their arguments are parsed, without running them."""

import re
import shlex
from collections.abc import Iterator

import pytest

from proxy.__main__ import command_parser
from tests.paths import ROOT

_PAGES = (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
_COMMAND = re.compile(r"^ *(?:\$ )?(?:[a-z0-9 ]+\| )?(gantry [a-z].*)$")
# Commands of other packages, and texts that stand for arguments.
_OTHERS, _PLACEHOLDERS = ("analytics",), re.compile(r"…|\[|\||<|^HOST:PORT$")


def _commands() -> Iterator[tuple[str, str]]:
    """Yield page and command of each line in a block of code."""
    for page in _PAGES:
        fenced = False
        lines = iter(page.read_text(encoding="utf-8").splitlines())
        for line in lines:
            if line.lstrip().startswith("```"):
                fenced = not fenced
            found = _COMMAND.match(line) if fenced or line.startswith("    ") else None
            if found is None:
                continue
            command = found[1]
            while command.endswith("\\"):
                command = command.removesuffix("\\") + next(lines).strip()
            yield str(page.relative_to(ROOT)), command


def _words(command: str) -> list[str]:
    """Return the arguments up to a comment, redirection or pipe."""
    words = shlex.split(re.split(r" [|>&] ", command)[0], comments=True)
    return words[1:]


def test_commands_of_the_documentation_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command_parser()
    checked = 0
    faults: list[str] = []
    for page, command in _commands():
        words = _words(command)
        if not words or words[0] in _OTHERS or any(_PLACEHOLDERS.search(word) for word in words):
            continue
        checked += 1
        try:
            parser.parse_args(words)
        except SystemExit as end:
            if end.code:
                faults.append(f"{page}: {command}: {capsys.readouterr().err.splitlines()[-1]}")
    assert faults == []
    assert checked > 40
