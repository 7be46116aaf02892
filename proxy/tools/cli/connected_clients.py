"""`gantry clients`, `gantry connections` and `gantry drain`."""

import argparse
from collections.abc import Mapping
from typing import Any

from proxy.tools.cli.admin_client import AdminClient, path
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.output import Output


async def run(options: argparse.Namespace) -> int:
    """Run the command. Raises CommandError."""
    output = Output(options.json)
    client = AdminClient(options)
    match options.command:
        case "clients" if options.action == "show":
            _show(await client.get(path("clients", options.id)), output)
        case "clients":
            await _clients(client, options, output)
        case "connections":
            await _connections(client, options, output)
        case _:
            if not options.undo:
                confirm(options, f"ask all clients of {client.url} to reconnect to other replicas?")
            await client.write("POST", "/v1/resume" if options.undo else "/v1/drain")
            output.done("replica", client.url, "resumed" if options.undo else "drains")
    return 0


async def _clients(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    rows = [item async for item in client.items("/v1/clients", protocol=options.protocol)]
    if output.json:
        for row in rows:
            output.dump(row)
        return
    output.table(
        ("CLIENT", "PROTOCOL", "ADDRESS", "LANGUAGE", "VERSION", "CONSUMES IN", "PRODUCES IN"),
        [
            (
                row["client_id"],
                ", ".join(row["protocols"]),
                ", ".join(row["addresses"]),
                row["language"] or "-",
                row["version"] or "-",
                ", ".join(row["consumer_groups"]),
                ", ".join(row["producer_groups"]),
            )
            for row in rows
        ],
    )


def _show(client: Mapping[str, Any], output: Output) -> None:
    if output.json:
        output.dump(client)
        return
    for key, value in client.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        output.line((f"{key:<16}", "dim"), "-" if text in (None, "") else str(text))


async def _connections(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    query = {"protocol": options.protocol, "group": options.group, "sort": options.sort}
    rows = [item async for item in client.items("/v1/connections", **query)]
    if output.json:
        for row in rows:
            output.dump(row)
        return
    output.table(
        ("NUMBER", "PROTOCOL", "ADDRESS", "TLS", "AGE", "IN FLIGHT", "BYTES IN", "BYTES OUT"),
        [
            (
                str(row["number"]),
                row["protocol"],
                row["address"],
                row["tls"] or "-",
                f"{row['age']:.0f} s",
                row["in_flight"],
                row["bytes_in"],
                row["bytes_out"],
            )
            for row in rows
        ],
    )
