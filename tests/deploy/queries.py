"""Requirements of a PromQL expression: metrics, and the labels of each."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser as promql

# Variables that Grafana replaces.
_MACROS = {"$__rate_interval": "5m", "$__interval": "1m", "$__range": "1h"}
_AGGREGATE = promql.AggregateExpr


class Use(NamedTuple):
    """One selector: its metric, and the labels that it or an aggregation of it names."""

    metric: str
    labels: frozenset[str]


def parse(expression: str) -> Any:
    """Parse an expression. Raises ValueError."""
    for macro, value in _MACROS.items():
        expression = expression.replace(macro, value)
    return promql.parse(expression)


def uses(node: Any, wanted: frozenset[str] = frozenset()) -> Iterator[Use]:
    """Yield every selector of a tree, with the labels that outer expressions require of it."""
    if isinstance(node, promql.VectorSelector):
        own = {matcher.name for matcher in node.matchers.matchers}
        assert node.name is not None
        yield Use(node.name, wanted | own)
    elif isinstance(node, promql.MatrixSelector):
        yield from uses(node.vector_selector, wanted)
    elif isinstance(node, _AGGREGATE):
        yield from uses(node.expr, _grouped(node) | wanted)
    elif isinstance(node, promql.Call):
        more = frozenset(("le",)) if node.func.name == "histogram_quantile" else frozenset[str]()
        for argument in node.args:
            yield from uses(argument, wanted | more)
    elif isinstance(node, promql.BinaryExpr):
        yield from uses(node.lhs, wanted)
        yield from uses(node.rhs, wanted)
    elif isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        yield from uses(node.expr, wanted)
    elif not isinstance(node, promql.NumberLiteral | promql.StringLiteral):
        raise TypeError(f"no selectors are looked for in {node}")


def _grouped(node: Any) -> frozenset[str]:
    if node.modifier is None:
        return frozenset()
    assert node.modifier.type == promql.AggModifierType.By, "`without` would hide which labels are wanted"
    return frozenset(node.modifier.labels)


def labels(node: Any) -> frozenset[str]:
    """Return the labels of a recording rule's result: those that its outermost aggregation keeps."""
    if isinstance(node, _AGGREGATE):
        return _grouped(node)
    if isinstance(node, promql.BinaryExpr):
        return labels(node.lhs)
    if isinstance(node, promql.Call):
        kept = [labels(argument) for argument in node.args if not isinstance(argument, promql.NumberLiteral)]
        return kept[0] - {"le"}
    raise TypeError(f"the labels of {node} are anybody's guess")
