"""Findings as text and as JSON."""

import textwrap
from collections.abc import Sequence

import orjson

from proxy.tools.doctor.findings import Finding, Level

_PLAIN = "\033[0m"
_COLOURS = {Level.OK: "\033[32m", Level.NOTE: "\033[36m", Level.WARN: "\033[33m", Level.FAIL: "\033[1;31m"}
_WIDTH = 110
_INDENT = 22


def line(found: Finding, coloured: bool) -> str:
    """Return one finding as text: level, check, text, and below it the remedy."""
    mark = f"{found.level.name.lower():4}"
    if coloured:
        mark = f"{_COLOURS[found.level]}{mark}{_PLAIN}"
    text = textwrap.fill(found.text, _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False)
    shown = [f"  {mark}  {found.check:10}  {text.replace(chr(10), chr(10) + ' ' * (_INDENT - 2))}"]
    # Good findings need no remedy.
    if found.remedy and found.level > Level.OK:
        advice = textwrap.fill(found.remedy, _WIDTH - _INDENT - 2, break_long_words=False, break_on_hyphens=False)
        shown += [
            f"{' ' * (_INDENT - 2)}{'→' if not number else ' '} {part}"
            for number, part in enumerate(advice.splitlines())
        ]
    return "\n".join(shown)


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line."""
    counts = {level: sum(found.level is level for found in findings) for level in Level}
    return (
        f"{counts[Level.OK]} ok, {_counted(counts[Level.WARN], 'warning')}, {_counted(counts[Level.FAIL], 'failure')}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun + 's'}"


def as_json(endpoint: str, findings: Sequence[Finding]) -> bytes:
    """Return everything as one JSON document."""
    document = {
        "endpoint": endpoint,
        "status": worst(findings).name.lower(),
        "findings": [
            {"code": found.code, "level": found.level.name.lower(), "text": found.text, "remedy": found.remedy}
            for found in findings
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def worst(findings: Sequence[Finding]) -> Level:
    """Return the worst level; notes count as ok."""
    return max((found.level for found in findings if found.level is not Level.NOTE), default=Level.OK)


def exit_status(findings: Sequence[Finding]) -> int:
    """Return 0: all is well; 1: warnings; 2: failures."""
    return {Level.WARN: 1, Level.FAIL: 2}.get(worst(findings), 0)
