"""Comparison of the values of filter expressions, with the conversions of SelectorParser."""

import math
import re
from collections.abc import Callable
from typing import Any

Value = str | bool | int | float | None

_INT = (-(2**31), 2**31 - 1)
LONG = (-(2**63), 2**63 - 1)


class EvaluationError(Exception):
    """A message's properties cannot be compared as the expression requires."""


def sign(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 if the left value is less than, equal to or greater than the right one.

    Raises EvaluationError if the values cannot be compared.
    """
    if type(left) is not type(right):
        left, right = _convert_to_common_type(left, right)
        if left is None:
            return -1
    if isinstance(left, float):
        # Java's total order of floats: NaN is the greatest, -0.0 less than 0.0.
        left, right = _sort_key(left), _sort_key(right)
    return int(left > right) - int(left < right)


def _sort_key(value: float) -> tuple[bool, float, float]:
    if value != value:
        return True, 0.0, 0.0
    return False, value, math.copysign(1.0, value)


def _convert_to_common_type(left: Any, right: Any) -> tuple[Any, Any]:
    """Return both values in one type, by the precedence of SelectorParser; (None, None) if that is impossible."""
    if isinstance(left, str):
        return (None, None) if isinstance(right, str) else (_CONVERTERS[type(right)](left, right), right)
    if isinstance(right, str):
        if isinstance(left, bool):
            # SelectorParser fails here too.
            raise EvaluationError("a boolean is compared with a string")
        return left, _CONVERTERS[type(left)](right, left)
    if isinstance(left, bool) or isinstance(right, bool):
        return None, None
    return float(left), float(right)


_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,25}")
_FLOAT_TEXT = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)")
_BLANKS = "".join(map(chr, range(33)))


def _as_integer(text: str, other: int) -> int:
    """Convert like Integer.valueOf, or like Long.valueOf if the other value needs one."""
    least, most = _INT if _INT[0] <= other <= _INT[1] else LONG
    if _INTEGER_TEXT.fullmatch(text) is None or not least <= (value := int(text)) <= most:
        raise EvaluationError("a property is not an integer")
    return value


def as_float(text: str, _: object = None) -> float:
    """Convert like Double.valueOf. Raises EvaluationError."""
    text = text.strip(_BLANKS)
    if _FLOAT_TEXT.fullmatch(text) is None:
        raise EvaluationError("a property is not a number")
    return float(text if text.endswith(("N", "y")) else text.rstrip("dDfF"))


def _as_bool(text: str, _: object = None) -> bool:
    return text.lower() == "true"


_CONVERTERS: dict[type, Callable[[str, Any], Value]] = {int: _as_integer, float: as_float, bool: _as_bool}
