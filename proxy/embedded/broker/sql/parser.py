"""Parser of filter expressions."""

import itertools
from collections.abc import Callable
from functools import lru_cache

from proxy.embedded.broker.sql.comparison import EvaluationError, Value, sign
from proxy.embedded.broker.sql.expressions import (
    LITERALS,
    Evaluate,
    Node,
    Properties,
    comparison,
    conjunction,
    constant,
    disjunction,
    equality,
    minus,
    negation,
    null_safe_equality,
    text_search,
    unquote,
)
from proxy.embedded.broker.sql.lexer import Token, tokens
from remoting.errors import BodyError

# A compiled filter. Raises EvaluationError.
Predicate = Callable[[Properties], bool]

# Bounds of the cost of a hostile expression.
_MAX_LENGTH = 16_384
_MAX_DEPTH = 100
# Operators in chains such as `a = b = c`, beyond the first of each chain: each nests one call at evaluation.
_MAX_CHAINED = 100


@lru_cache(maxsize=256)
def compile_filter(text: str) -> Predicate:
    """Compile an expression. Raises BodyError with the position of a syntax error."""
    if len(text) > _MAX_LENGTH:
        raise BodyError(f"a filter of {len(text)} characters is longer than {_MAX_LENGTH}")
    evaluate = _Parser(text).parse()
    return lambda properties: evaluate(properties) is True


class _Parser:
    """A parser by recursive descent. Like SelectorParser, it ignores the text after a complete expression."""

    def __init__(self, text: str) -> None:
        self._source = tokens(text)
        self._lookahead: list[Token] = []
        self._depth = 0
        self._chained = 0

    def parse(self) -> Evaluate:
        """Return the compiled condition. Raises BodyError."""
        return self._truth(self._or()).evaluate

    def _peek(self, index: int = 0) -> str:
        while len(self._lookahead) <= index:
            self._lookahead.append(next(self._source))
        return self._lookahead[index].kind

    def _next(self) -> Token:
        self._peek()
        return self._lookahead.pop(0)

    def _take(self, kind: str) -> str:
        token = self._next()
        if token.kind != kind:
            raise BodyError(f"the filter has {token.text or 'its end'!r} at character {token.position}, not {kind}")
        return token.text

    def _or(self) -> Node:
        operands = [self._and()]
        while self._peek() == "OR":
            self._next()
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else disjunction([self._truth(operand) for operand in operands])

    def _and(self) -> Node:
        operands = [self._equality()]
        while self._peek() == "AND":
            self._next()
            operands.append(self._equality())
        return operands[0] if len(operands) == 1 else conjunction([self._truth(operand) for operand in operands])

    def _chain(self, operators: int) -> None:
        """Count an operator that follows `operators` others in its chain. Raises BodyError beyond the limit."""
        self._chained += operators > 0
        if self._chained > _MAX_CHAINED:
            raise BodyError(f"the filter has more than {_MAX_CHAINED} chained comparisons")

    def _equality(self) -> Node:
        left = self._comparison()
        operators = 0
        while (kind := self._peek()) in {"=", "<>", "IS"}:
            self._chain(operators)
            operators += 1
            self._next()
            if kind != "IS":
                left = equality(left, self._comparison(), kind == "<>")
                continue
            negated = self._peek() == "NOT"
            if negated:
                self._next()
            self._take("NULL")
            left = null_safe_equality(left, constant(None))
            left = negation(left) if negated else left
        return left

    def _comparison(self) -> Node:
        left = self._unary()
        for operators in itertools.count():
            kind = self._peek()
            negated = kind == "NOT" and self._peek(1) in _NEGATABLE
            if negated:
                self._next()
                kind = self._peek()
            elif kind == "NOT":
                raise BodyError("the filter has NOT before an operator that cannot be negated")
            parse = _SUFFIXES.get(kind)
            if parse is None:
                break
            self._chain(operators)
            self._next()
            left = parse(self, left, negated, kind)
        return left

    def _order(self, left: Node, _: bool, kind: str) -> Node:
        return comparison(left, self._unary(), _ORDERS[kind])

    def _search(self, left: Node, negated: bool, kind: str) -> Node:
        return text_search(left, self._string(), _SEARCHES[kind], negated)

    def _between(self, left: Node, negated: bool, _: str) -> Node:
        low = self._unary()
        self._take("AND")
        high = self._unary()
        if negated:
            return disjunction([comparison(left, low, _ORDERS["<"]), comparison(left, high, _ORDERS[">"])])
        if low.constant and high.constant:
            if low.value is None or high.value is None:
                raise BodyError("the filter has BETWEEN with NULL")
            try:
                order = sign(high.value, low.value)
            except EvaluationError:
                raise BodyError("the filter has BETWEEN with limits that cannot be compared") from None
            if order < 0:
                raise BodyError("the filter has BETWEEN with a lower limit above the upper one")
        return conjunction([comparison(left, low, _ORDERS[">="]), comparison(left, high, _ORDERS["<="])])

    def _in(self, left: Node, negated: bool, _: str) -> Node:
        self._take("(")
        elements = {self._string()}
        while self._peek() == ",":
            self._next()
            elements.add(self._string())
        self._take(")")
        name = left.name
        if name is None:
            raise BodyError("the filter has IN after an expression that is not a property")

        def evaluate(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else (value in elements) is not negated

        return Node(evaluate, True)

    def _unary(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BodyError(f"the filter is nested more than {_MAX_DEPTH} deep")
        kind = self._peek()
        if kind == "+":
            self._next()
            node = self._unary()
        elif kind == "-":
            self._next()
            node = minus(self._unary())
        elif kind == "NOT":
            self._next()
            node = negation(self._truth(self._unary()))
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == "(":
            node = self._or()
            self._take(")")
            return node
        read = LITERALS.get(token.kind)
        if read is None:
            raise BodyError(f"the filter has {token.text or 'its end'!r} at character {token.position}")
        return read(token.text)

    def _string(self) -> str:
        return unquote(self._take("string"))

    @staticmethod
    def _truth(node: Node) -> Node:
        if node.boolean:
            return node
        if node.name is None:
            raise BodyError("the filter has a value instead of a condition")
        name = node.name
        # A property is a string, which is never true.
        return Node(lambda properties: None if properties.get(name) is None else False, True)


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
_SUFFIXES: dict[str, Callable[[_Parser, Node, bool, str], Node]] = {
    **dict.fromkeys(_ORDERS, _Parser._order),
    **dict.fromkeys(_SEARCHES, _Parser._search),
    "BETWEEN": _Parser._between,
    "IN": _Parser._in,
}
