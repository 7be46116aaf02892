"""`gantry top`: traffic, the busiest topics, and consumer groups by lag."""

import argparse
import asyncio
import sys
from typing import Any

from proxy.tools.cli.admin_client import AdminClient
from proxy.tools.cli.output import Output, printable

_CLEAR = "\x1b[H\x1b[2J"
# Rows of each table.
_ROWS = 10
# Figures per second of a protocol or topic, with their headings.
_FIGURES = {
    "requests": "REQUESTS/s",
    "failed": "FAILED/s",
    "sent": "SENT/s",
    "delivered": "DELIVERED/s",
    "bytes_in": "IN/s",
    "bytes_out": "OUT/s",
}
_UNITS = ("B", "kB", "MB", "GB", "TB")


async def run(options: argparse.Namespace) -> int:
    """Print figures until Ctrl-C, or once. Raises CommandError."""
    client = AdminClient(options)
    output = Output(options.json)
    options.follow = not options.once
    while True:
        figures = await _read(client)
        if output.json:
            output.dump(figures)
        else:
            if not options.once and sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
                sys.stdout.flush()
            _show(output, figures, client.url)
        if options.once:
            return 0
        await asyncio.sleep(options.interval)


async def _read(client: AdminClient) -> dict[str, Any]:
    live = await client.get("/v1/live", since=0)
    groups = await client.get("/v1/consumer-groups", sort="-lag", limit=_ROWS)
    seconds = live["seconds"]
    last = seconds[-1] if seconds else {"remoting": {}, "grpc": {}, "p50": None, "p99": None}
    return {
        "ready": live["ready"],
        "draining": live["draining"],
        "uptime": live["uptime"],
        "clients": live["clients"],
        "connections": live["connections"],
        "second": {key: last[key] for key in ("remoting", "grpc", "p50", "p99")},
        "topics": [_without_trend(row) for row in live["topics"][:_ROWS]],
        "groups": [
            {key: group[key] for key in ("name", "state", "members", "lag", "lag_seconds", "rate", "dead_letters")}
            for group in groups["items"]
        ],
        # A replica of an older version has no such field.
        "unanswered": groups.get("unanswered", []),
    }


def _without_trend(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "trend"}


def _show(output: Output, figures: dict[str, Any], url: str) -> None:
    state = "draining" if figures["draining"] else "ready" if figures["ready"] else "NOT READY"
    connections = sum(figures["connections"].values())
    output.line(
        (f"gantry {url}", "bold"),
        f"  {state}, up {figures['uptime']:.0f} s, {figures['clients']} clients, {connections} connections",
    )
    second = figures["second"]
    output.line(("latency  ", "cyan"), f"p50 {_ms(second['p50'])}  p99 {_ms(second['p99'])}")
    headings = tuple(_FIGURES.values())
    rows = [_rates(name, second[name]) for name in ("remoting", "grpc")]
    output.table(("PROTOCOL", *headings), rows, headings)
    if figures["topics"]:
        output.table(("TOPIC", *headings), [_rates(row["name"], row) for row in figures["topics"]], headings)
    if figures["unanswered"]:
        brokers = printable(", ".join(figures["unanswered"]))
        output.line(("no answer from ", "red"), f"{brokers}: lag and dead letters there are not known")
    if figures["groups"]:
        output.table(
            ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "CONSUMED/s", "DEAD LETTERS"),
            [
                (
                    group["name"],
                    group["state"],
                    group["members"],
                    group["lag"],
                    "-" if group["lag_seconds"] is None else f"{group['lag_seconds']:.0f} s",
                    "-" if group["rate"] is None else f"{group['rate']:,.1f}",
                    group["dead_letters"],
                )
                for group in figures["groups"]
            ],
            ("BEHIND", "CONSUMED/s"),
        )


def _rates(name: str, values: dict[str, Any]) -> tuple[str, ...]:
    return (name, *(_rate(figure, values.get(figure, 0)) for figure in _FIGURES))


def _rate(figure: str, value: float) -> str:
    if not figure.startswith("bytes"):
        return f"{value:,.1f}"
    step = 0
    while value >= 1000 and step < len(_UNITS) - 1:
        value /= 1000
        step += 1
    return f"{value:,.1f} {_UNITS[step]}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
