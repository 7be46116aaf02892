"""Tokens of filter expressions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from remoting.errors import BodyError

_TOKEN = re.compile(
    r"""(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*
    (?: (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      | (?P<decimal>[1-9][0-9]*[lL]?|0)
      | (?P<string>'(?:''|[^'])*')
      | (?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)
      | (?P<sign><>|<=|>=|[=<>(),+\-])
      | (?P<end>\Z) )""",
    re.VERBOSE,
)
_RESERVED_WORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token. kind: float, decimal, string, name, end, or the text itself for reserved words and signs."""

    kind: str
    text: str
    position: int


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression, the last one of kind `end`. Raises BodyError."""
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            raise BodyError(
                f"the filter cannot be parsed from character {position} on: {text[position : position + 20]!r}"
            )
        kind = str(match.lastgroup)
        matched = match.group(kind)
        if kind == "sign" or (kind == "name" and matched.upper() in _RESERVED_WORDS):
            kind = matched.upper()
        yield Token(kind, matched, match.start(str(match.lastgroup)))
        position = match.end()
