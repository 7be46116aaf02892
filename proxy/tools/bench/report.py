"""The report of a run: JSON for programs, tables for users."""

import argparse
from collections import Counter
from typing import Any

from proxy.tools.bench.histogram import Histogram
from proxy.tools.bench.load import Result, Side
from proxy.tools.cli.output import Output

_PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
# Share of a CPU above which the generator limits the load.
_SATURATED = 0.9


def show(output: Output, options: argparse.Namespace, result: Result) -> None:
    """Write the report."""
    if output.json:
        output.dump(_to_object(options, result))
        return
    sides = _sides(options, result)
    rows = [
        (name, side.messages, round(side.messages / result.seconds), side.bytes / result.seconds / 1e6, _failed(side))
        for name, side in sides.items()
    ]
    output.table(("", "MESSAGES", "PER SECOND", "MB/S", "ERRORS"), rows)
    output.line("")
    output.table(
        ("LATENCY (MS)", *(f"P{percent:g}" for percent in _PERCENTILES), "MAX"),
        [(name, *_figures(side.latency)) for name, side in _latencies(sides).items()],
    )
    output.line("")
    for text, count in errors(result).most_common(5):
        output.line((f"{count:,} times: ", "red"), text)
    if missing := _missing(options, result):
        output.line((f"{missing:,} messages were sent and not received", "red"))
    output.line(f"The load generator used {result.cpu:.0%} of a CPU.")
    if result.cpu > _SATURATED:
        output.line(("It was saturated: the figures are its own, not those of the server. Lower --rate,", "yellow"))
        output.line(("or run several at once.", "yellow"))


def errors(result: Result) -> Counter[str]:
    """Return the failed requests by text."""
    return result.sent.errors + result.received.errors + result.acknowledged.errors


def _sides(options: argparse.Namespace, result: Result) -> dict[str, Side]:
    sides = {} if options.action == "receive" else {"send": result.sent}
    if options.action != "send":
        sides |= {"receive": result.received, "acknowledge": result.acknowledged}
    return sides


def _latencies(sides: dict[str, Side]) -> dict[str, Side]:
    return {"delivery" if name == "receive" else name: side for name, side in sides.items() if len(side.latency)}


def _missing(options: argparse.Namespace, result: Result) -> int:
    return max(result.all_sent - result.all_received, 0) if options.action == "both" else 0


def _failed(side: Side) -> int:
    return sum(side.errors.values())


def _figures(latency: Histogram) -> tuple[float, ...]:
    return (*(latency.percentile(percent) / 1000 for percent in _PERCENTILES), latency.highest / 1000)


def _to_object(options: argparse.Namespace, result: Result) -> dict[str, Any]:
    return {
        "topic": options.topic,
        "action": options.action,
        "protocol": options.protocol,
        "clients": options.clients,
        "in_flight": options.in_flight,
        "rate": options.rate,
        "size": options.size,
        "seconds": round(result.seconds, 3),
        "generator_cpu": round(result.cpu, 3),
        "missing": _missing(options, result),
        **{name: _side_to_object(side, result) for name, side in _sides(options, result).items()},
    }


def _side_to_object(side: Side, result: Result) -> dict[str, Any]:
    latency = side.latency
    milliseconds = {f"p{percent:g}": latency.percentile(percent) / 1000 for percent in _PERCENTILES}
    return {
        "messages": side.messages,
        "messages_per_second": round(side.messages / result.seconds, 1),
        "bytes": side.bytes,
        "errors": dict(side.errors),
        "latency_ms": {**milliseconds, "max": latency.highest / 1000, "mean": round(latency.mean / 1000, 3)},
        "histogram": latency.encode(),
    }
