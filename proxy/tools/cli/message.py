"""`gantry message`: stored messages over the admin API."""

import argparse
from datetime import UTC, datetime
from typing import Any

import orjson

from proxy.tools.cli.admin_client import AdminClient, path
from proxy.tools.cli.client import UsageError
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.output import Output, printable


async def run(options: argparse.Namespace) -> int:
    """Run the action. Raises CommandError."""
    output = Output(options.json)
    match options.action:
        case "list":
            await _list(AdminClient(options), options, output)
        case "show":
            query = {"body": options.body, "message_type": options.message_type}
            found = await AdminClient(options).get(path("topics", options.topic, "messages", options.id), **query)
            show(output, found)
        case "groups":
            await _groups(AdminClient(options), options, output)
        case "resend":
            await _resend(AdminClient(options), options, output)
        case _:
            raise UsageError("give an action: list, show, groups or resend")
    return 0


async def _list(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    broker, queue = options.queue or (None, None)
    query = {
        "broker": options.broker or broker,
        "queue": queue,
        "offset": options.offset,
        "from": _time(options.begin),
        "to": _time(options.end),
        "key": options.key,
        "tag": options.tag,
        "sql": options.sql,
        "order": "oldest" if options.oldest else None,
    }
    items = client.items(path("topics", options.topic, "messages"), options.max, **query)
    rows = [item async for item in items]
    if output.json:
        for row in rows:
            output.dump(row)
        return
    output.table(
        ("STORED", "QUEUE", "OFFSET", "ID", "TAG", "KEYS", "BYTES", "BODY"),
        [
            (
                clock(row["stored"]),
                f"{row['broker']}/{row['queue']}",
                row["offset"],
                row["message_id"],
                row["tag"] or "",
                " ".join(row["keys"] or ()),
                row["bytes"],
                (row["preview"] or "")[:60],
            )
            for row in rows
        ],
    )
    if rows and all(row["preview"] is None for row in rows):
        output.line(("keys and bodies need the permission of admin.contents: see --token", "yellow"))


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


def clock(time: str | None) -> str:
    """Format an API's time as local time; `-` for none."""
    if time is None:
        return "-"
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def show(output: Output, message: dict[str, Any]) -> None:
    """Print one message."""
    if output.json:
        output.dump(message)
        return
    for name in ("message_id", "topic", "broker", "queue", "offset", "stored", "born", "born_host", "reconsumed"):
        output.line((f"{name:<14}", "dim"), printable(str(message[name])))
    for name, value in (message["properties"] or {}).items():
        output.line((f"{printable(name):<14}", "cyan"), printable(str(value)))
    body = message["body"]
    if body is None:
        output.line(("the body needs the permission of admin.contents: see --token", "yellow"))
        return
    text = body["content"] if isinstance(body["content"], str) else _pretty(body["content"])
    output.line((f"{body['format']}, {body['bytes']:,} bytes{' (cut)' if body['truncated'] else ''}", "bold"))
    for line in text.splitlines():
        output.line(printable(line))


def _pretty(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


async def _groups(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    journey = await client.get(path("topics", options.topic, "messages", options.id, "groups"))
    if output.json:
        for row in journey["groups"]:
            output.dump(row)
        return
    output.table(
        ("GROUP", "STATE", "RETRIES"), [(row["group"], row["state"], row["retries"]) for row in journey["groups"]]
    )


async def _resend(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    group = options.group
    if group is None and options.to is not None:
        raise UsageError("--to needs --group, to whose retry topic the copy goes")
    receiver = f"every consumer group of topic {options.topic}" if group is None else f"consumer group {group}"
    confirm(options, f"send a copy of message {options.id} to {receiver}?")
    body = {"to": "topic"} if group is None else {"to": options.to or "auto", "group": group}
    sent = await client.write("POST", path("topics", options.topic, "messages", options.id, "resend"), body)
    if output.json:
        output.dump(sent)
    else:
        output.line("message ", sent["message_id"], (" sent", "green"), f" to {sent['topic']}")
