"""Expressions of filters: their literals and operators, compiled to functions of a message's properties."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.embedded.broker.sql.comparison import LONG, Value, as_float, sign
from remoting.errors import BodyError

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]

_MIN_FLOAT, _MAX_FLOAT = 4.9e-324, 1.7976931348623157e308


@dataclass(frozen=True, slots=True)
class Node:
    """A compiled expression.

    boolean: whether it has a truth value. constant: whether it is a literal, with this value. name: of a property.
    """

    evaluate: Evaluate
    boolean: bool = False
    constant: bool = False
    value: Value = None
    name: str | None = None


def constant(value: Value) -> Node:
    """Return the expression of a literal."""
    return Node(lambda _: value, value is None or isinstance(value, bool), True, value)


# Literals.


def unquote(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _decimal(text: str) -> Node:
    value = int(text.rstrip("lL"))
    if value > LONG[1]:
        raise BodyError(f"the filter has a number that is too large: {text[:40]}")
    return constant(value)


def _float(text: str) -> Node:
    value = float(text)
    # As in SelectorParser, to which 0.0 is not a number.
    if not _MIN_FLOAT <= value <= _MAX_FLOAT:
        raise BodyError(f"the filter has a number that is too large or too small: {text[:40]}")
    return constant(value)


def _property(name: str) -> Node:
    return Node(lambda properties: properties.get(name), name=name)


LITERALS: dict[str, Callable[[str], Node]] = {
    "string": lambda text: constant(unquote(text)),
    "decimal": _decimal,
    "float": _float,
    "TRUE": lambda _: constant(True),
    "FALSE": lambda _: constant(False),
    "NULL": lambda _: constant(None),
    "name": _property,
}


# Operators.


def disjunction(operands: Sequence[Node]) -> Node:
    """Return OR of any number of operands."""
    return _connective(operands, True)


def conjunction(operands: Sequence[Node]) -> Node:
    """Return AND of any number of operands."""
    return _connective(operands, False)


def _connective(operands: Sequence[Node], decisive: bool) -> Node:
    """Return a connective that one operand with the value `decisive` decides.

    The operands are evaluated in a loop: long chains must not nest calls.
    """
    evaluations = tuple(node.evaluate for node in operands)

    def evaluate(properties: Properties) -> Value:
        result: Value = not decisive
        for operand in evaluations:
            value = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return Node(evaluate, True)


def negation(node: Node) -> Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return Node(evaluate, True)


def minus(node: Node) -> Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

    return Node(evaluate)


def text_search(node: Node, search: str, test: Callable[[str, str], bool], negated: bool) -> Node:
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return bool(search) and isinstance(value, str) and test(value, search) is not negated

    return Node(evaluate, True)


def equality(left: Node, right: Node, negated: bool) -> Node:
    for node in (left, right):
        if node.constant and node.value is None:
            raise BodyError("the filter compares with NULL: use IS NULL")
    if left.constant and right.constant and isinstance(left.value, bool) and not isinstance(right.value, bool):
        raise BodyError("the filter compares a boolean with another type")
    node = null_safe_equality(left, right)
    return negation(node) if negated else node


def null_safe_equality(left: Node, right: Node) -> Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        left_value, right_value = first(properties), second(properties)
        if left_value is None or right_value is None:
            return True if left_value is right_value else None if left_value is None else False
        return sign(left_value, right_value) == 0

    return Node(evaluate, True)


def comparison(left: Node, right: Node, test: Callable[[int], bool]) -> Node:
    for node in (left, right):
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        if (node.constant and not number) or (node.boolean and not node.constant):
            raise BodyError("the filter orders values that are not numbers")
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        left_value, right_value = first(properties), second(properties)
        if left_value is None or right_value is None:
            return None
        if isinstance(left_value, str) and isinstance(right_value, str):
            return test(sign(as_float(left_value), as_float(right_value)))
        return test(sign(left_value, right_value))

    return Node(evaluate, True)
