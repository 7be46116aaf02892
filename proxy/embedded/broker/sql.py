"""SQL92 message filters: the grammar and the values of RocketMQ's SelectorParser.

A compiled expression is a function from properties to True, False or None (unknown). A property is a string
or missing; it is read as a number or a boolean where it is compared with one, and an evaluation in which that
fails, raises: such a message does not match.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from remoting.errors import BodyError

Properties = Mapping[str, str]
Value = str | bool | int | float | None
Evaluate = Callable[[Properties], Value]
# A compiled filter. Raises EvaluationError.
Predicate = Callable[[Properties], bool]

# Bounds what a hostile expression can cost.
_LONGEST = 16_384
_DEEPEST = 100
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_LEAST_FLOAT, _MAX_FLOAT = 4.9e-324, 1.7976931348623157e308


class EvaluationError(Exception):
    """A message's properties cannot be compared as the expression asks."""


@lru_cache(maxsize=256)
def compile_filter(text: str) -> Predicate:
    """Compile an expression. Raises BodyError naming where it cannot be understood."""
    if len(text) > _LONGEST:
        raise BodyError(f"a filter of {len(text)} characters is longer than {_LONGEST}")
    evaluate = _Parser(text).parse()
    return lambda properties: evaluate(properties) is True


# Tokens.

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
_WORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)


@dataclass(frozen=True, slots=True)
class _Token:
    """kind: float, decimal, string, name, end, or for reserved words and signs these themselves."""

    kind: str
    text: str
    position: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            raise BodyError(
                f"the filter cannot be read from character {position} on: {text[position : position + 20]!r}"
            )
        kind = str(match.lastgroup)
        found = match.group(kind)
        if kind == "sign" or (kind == "name" and found.upper() in _WORDS):
            kind = found.upper()
        yield _Token(kind, found, match.start(str(match.lastgroup)))
        position = match.end()


# Expressions while they are parsed: what they are decides where they may stand.


@dataclass(frozen=True, slots=True)
class _Node:
    """`boolean`: an expression that has a truth value. `constant`: its value stands in the text."""

    evaluate: Evaluate
    boolean: bool = False
    constant: bool = False
    value: Value = None
    name: str | None = None


def _constant(value: Value) -> _Node:
    return _Node(lambda _: value, value is None or isinstance(value, bool), True, value)


class _Parser:
    """Recursive descent. As in the original, what follows a complete expression is not looked at."""

    def __init__(self, text: str) -> None:
        self._source = _tokens(text)
        self._ahead: list[_Token] = []
        self._depth = 0

    def parse(self) -> Evaluate:
        return self._truth(self._or()).evaluate

    def _peek(self, index: int = 0) -> str:
        while len(self._ahead) <= index:
            self._ahead.append(next(self._source))
        return self._ahead[index].kind

    def _next(self) -> _Token:
        self._peek()
        return self._ahead.pop(0)

    def _take(self, kind: str) -> str:
        token = self._next()
        if token.kind != kind:
            raise BodyError(f"the filter has {token.text or 'its end'!r} at character {token.position}, not {kind}")
        return token.text

    def _or(self) -> _Node:
        left = self._and()
        while self._peek() == "OR":
            self._next()
            left = _disjunction(self._truth(left), self._truth(self._and()))
        return left

    def _and(self) -> _Node:
        left = self._equality()
        while self._peek() == "AND":
            self._next()
            left = _conjunction(self._truth(left), self._truth(self._equality()))
        return left

    def _equality(self) -> _Node:
        left = self._comparison()
        while (kind := self._peek()) in {"=", "<>", "IS"}:
            self._next()
            if kind != "IS":
                left = _equal(left, self._comparison(), kind == "<>")
                continue
            negated = self._peek() == "NOT"
            if negated:
                self._next()
            self._take("NULL")
            left = _equals(left, _constant(None))
            left = _negation(left) if negated else left
        return left

    def _comparison(self) -> _Node:
        left = self._unary()
        while True:
            kind = self._peek()
            negated = kind == "NOT" and self._peek(1) in _NEGATABLE
            if negated:
                self._next()
                kind = self._peek()
            elif kind == "NOT":
                raise BodyError("the filter has NOT before something that cannot be negated")
            parse = _TAILS.get(kind)
            if parse is None:
                return left
            self._next()
            left = parse(self, left, negated, kind)

    def _order(self, left: _Node, _: bool, kind: str) -> _Node:
        return _compare(left, self._unary(), _ORDERS[kind])

    def _search(self, left: _Node, negated: bool, kind: str) -> _Node:
        return _searching(left, self._string(), _SEARCHES[kind], negated)

    def _between(self, left: _Node, negated: bool, _: str) -> _Node:
        low = self._unary()
        self._take("AND")
        high = self._unary()
        if negated:
            return _disjunction(_compare(left, low, _ORDERS["<"]), _compare(left, high, _ORDERS[">"]))
        if low.constant and high.constant:
            if low.value is None or high.value is None:
                raise BodyError("the filter has BETWEEN with NULL")
            if _sign(high.value, low.value) < 0:
                raise BodyError("the filter has BETWEEN with its limits exchanged")
        return _conjunction(_compare(left, low, _ORDERS[">="]), _compare(left, high, _ORDERS["<="]))

    def _in(self, left: _Node, negated: bool, _: str) -> _Node:
        self._take("(")
        elements = {self._string()}
        while self._peek() == ",":
            self._next()
            elements.add(self._string())
        self._take(")")
        name = left.name
        if name is None:
            raise BodyError("the filter has IN after something that is no property")

        def evaluate(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else (value in elements) is not negated

        return _Node(evaluate, True)

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BodyError(f"the filter is nested more than {_DEEPEST} deep")
        kind = self._peek()
        if kind == "+":
            self._next()
            node = self._unary()
        elif kind == "-":
            self._next()
            node = _minus(self._unary())
        elif kind == "NOT":
            self._next()
            node = _negation(self._truth(self._unary()))
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> _Node:
        token = self._next()
        if token.kind == "(":
            node = self._or()
            self._take(")")
            return node
        read = _LITERALS.get(token.kind)
        if read is None:
            raise BodyError(f"the filter has {token.text or 'its end'!r} at character {token.position}")
        return read(token.text)

    def _string(self) -> str:
        return _unquoted(self._take("string"))

    @staticmethod
    def _truth(node: _Node) -> _Node:
        if node.boolean:
            return node
        if node.name is None:
            raise BodyError("the filter has a value where a condition is expected")
        name = node.name
        # A property is a string, and no string is true.
        return _Node(lambda properties: None if properties.get(name) is None else False, True)


_NEGATABLE = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH", "BETWEEN", "IN"))
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, search: search in value,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}
_TAILS: dict[str, Callable[[_Parser, _Node, bool, str], _Node]] = {
    **dict.fromkeys(_ORDERS, _Parser._order),
    **dict.fromkeys(_SEARCHES, _Parser._search),
    "BETWEEN": _Parser._between,
    "IN": _Parser._in,
}


# Literals.


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _decimal(text: str) -> _Node:
    value = int(text.rstrip("lL"))
    if value > _LONG[1]:
        raise BodyError(f"the filter has a number that is too large: {text[:40]}")
    return _constant(value)


def _float(text: str) -> _Node:
    value = float(text)
    # So does the original: 0.0 is no number to it.
    if not _LEAST_FLOAT <= value <= _MAX_FLOAT:
        raise BodyError(f"the filter has a number that is too large or too small: {text[:40]}")
    return _constant(value)


def _property(name: str) -> _Node:
    return _Node(lambda properties: properties.get(name), name=name)


_LITERALS: dict[str, Callable[[str], _Node]] = {
    "string": lambda text: _constant(_unquoted(text)),
    "decimal": _decimal,
    "float": _float,
    "TRUE": lambda _: _constant(True),
    "FALSE": lambda _: _constant(False),
    "NULL": lambda _: _constant(None),
    "name": _property,
}


# Operators.


def _disjunction(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is True:
            return True
        other = second(properties)
        if other is True:
            return True
        return None if one is None or other is None else False

    return _Node(evaluate, True)


def _conjunction(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is False:
            return False
        other = second(properties)
        if other is False:
            return False
        return None if one is None or other is None else True

    return _Node(evaluate, True)


def _negation(node: _Node) -> _Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return _Node(evaluate, True)


def _minus(node: _Node) -> _Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

    return _Node(evaluate)


def _searching(node: _Node, search: str, test: Callable[[str, str], bool], negated: bool) -> _Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return bool(search) and isinstance(value, str) and test(value, search) is not negated

    return _Node(evaluate, True)


def _equal(left: _Node, right: _Node, negated: bool) -> _Node:
    for node in (left, right):
        if node.constant and node.value is None:
            raise BodyError("the filter compares with NULL: use IS NULL")
    if left.constant and right.constant and isinstance(left.value, bool) and not isinstance(right.value, bool):
        raise BodyError("the filter compares a truth value with something else")
    node = _equals(left, right)
    return _negation(node) if negated else node


def _equals(left: _Node, right: _Node) -> _Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None or other is None:
            return True if one is other else None if one is None else False
        return _sign(one, other) == 0

    return _Node(evaluate, True)


def _compare(left: _Node, right: _Node, holds: Callable[[int], bool]) -> _Node:
    for node in (left, right):
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        if (node.constant and not number) or (node.boolean and not node.constant):
            raise BodyError("the filter compares by size what is no number")
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return holds(_sign(_as_float(one), _as_float(other)))
        return holds(_sign(one, other))

    return _Node(evaluate, True)


def _sign(left: Any, right: Any) -> int:
    """-1, 0 or 1, as the left value is less than, equal to or greater than the right one."""
    if type(left) is not type(right):
        left, right = _alike(left, right)
        if left is None:
            return -1
    if isinstance(left, float):
        # Java's order of all floats: NaN is the greatest, -0.0 less than 0.0.
        left, right = _ordered(left), _ordered(right)
    return int(left > right) - int(left < right)


def _ordered(value: float) -> tuple[bool, float, float]:
    if value != value:
        return True, 0.0, 0.0
    return False, value, math.copysign(1.0, value)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both in one type, in the order of preference of the original; (None, None) where that cannot be."""
    if isinstance(left, str):
        return (None, None) if isinstance(right, str) else (_READERS[type(right)](left, right), right)
    if isinstance(right, str):
        if isinstance(left, bool):
            # The original stumbles here too.
            raise EvaluationError("a truth value is compared with a string")
        return left, _READERS[type(left)](right, left)
    if isinstance(left, bool) or isinstance(right, bool):
        return None, None
    return float(left), float(right)


_WHOLE = re.compile(r"[+-]?[0-9]{1,25}")
_REAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)")
_BLANKS = "".join(map(chr, range(33)))


def _as_whole(text: str, other: int) -> int:
    """As Integer.valueOf reads it, or Long.valueOf where the other side needs one."""
    least, most = _INT if _INT[0] <= other <= _INT[1] else _LONG
    if _WHOLE.fullmatch(text) is None or not least <= (value := int(text)) <= most:
        raise EvaluationError("a property is not a whole number")
    return value


def _as_float(text: str, _: object = None) -> float:
    text = text.strip(_BLANKS)
    if _REAL.fullmatch(text) is None:
        raise EvaluationError("a property is not a number")
    return float(text if text.endswith(("N", "y")) else text.rstrip("dDfF"))


def _as_bool(text: str, _: object = None) -> bool:
    return text.lower() == "true"


_READERS: dict[type, Callable[[str, Any], Value]] = {int: _as_whole, float: _as_float, bool: _as_bool}
