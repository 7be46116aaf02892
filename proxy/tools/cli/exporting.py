"""`gantry export`."""

import argparse
from datetime import UTC, datetime
from typing import Any

from proxy.tools.cli import catalogue, messages, reading
from proxy.tools.cli.archive import STDOUT, VERSION, Writer, writing
from proxy.tools.cli.arguments import Filter
from proxy.tools.cli.catalogue import Configurations
from proxy.tools.cli.client import Client, CommandError, connected
from proxy.tools.cli.output import Output, progress
from proxy.tools.cli.reading import Reader

# Fields of a message's JSON object that an import needs; the rest is in the properties.
_KEPT = (
    *("topic", "broker", "queue", "offset", "born", "born_host", "stored", "flag"),
    *("properties", "body", "body_base64", "error"),
)


async def run(options: argparse.Namespace) -> int:
    async with connected(options) as client:
        known = await catalogue.topics(client, system=True)
        topics = _selected("topic", known, await catalogue.topics(client), options.topics)
        groups = await _groups(client, topics, options)
        with writing(options.output) as writer:
            writer.write({"kind": "gantry-export", "version": VERSION, "created": datetime.now(UTC).isoformat()})
            for name, item in topics.items():
                writer.write(_topic(name, item))
            for name, item in groups.items():
                writer.write(await _group(client, name, item))
            if options.messages:
                await _messages(client, list(topics), writer)
            counts = {f"{kind}s": count for kind, count in writer.counts.items()}
            writer.write({"kind": "end", **counts})
    if options.output == STDOUT:
        return 0
    output = Output(options.json)
    if output.json:
        output.dump({"file": str(options.output), **counts})
    else:
        output.line("exported ", (_counted(counts), "green"), f" to {options.output}")
    return 0


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind if count != 1 else kind[:-1]}" for kind, count in counts.items())


def _selected(
    kind: str, known: dict[str, Configurations], usual: dict[str, Configurations], wanted: list[str] | None
) -> dict[str, Configurations]:
    """Return the named items, which may be system's, or all others by default. Raises CommandError."""
    if wanted is None:
        return usual
    for name in wanted:
        if name not in known:
            raise CommandError(f"there is no {kind} {name} to export")
    return {name: known[name] for name in wanted}


async def _groups(
    client: Client, topics: dict[str, Configurations], options: argparse.Namespace
) -> dict[str, Configurations]:
    """Return the groups to export: with --topics alone those that have offsets in one of the topics."""
    usual = await catalogue.groups(client)
    if options.groups is None and options.topics is not None:
        rows = await catalogue.gather_bounded(catalogue.progress(client, name, item) for name, item in usual.items())
        return {
            name: item
            for (name, item), offsets in zip(usual.items(), rows, strict=True)
            if any(row.key.topic in topics for row in offsets)
        }
    return _selected("consumer group", await catalogue.groups(client, system=True), usual, options.groups)


def _topic(name: str, configurations: Configurations) -> dict[str, Any]:
    items = configurations.values()
    return {
        "kind": "topic",
        "topic": name,
        "type": catalogue.message_type(configurations).partition("/")[0],
        "read_queues": max(int(item["readQueueNums"]) for item in items),
        "write_queues": max(int(item["writeQueueNums"]) for item in items),
        "permission": max(int(item["perm"]) for item in items),
    }


async def _group(client: Client, name: str, configurations: Configurations) -> dict[str, Any]:
    offsets = [
        {**at.key._asdict(), "offset": at.consumed} for at in await catalogue.progress(client, name, configurations)
    ]
    configuration = next(iter(configurations.values()))
    return {"kind": "group", "group": name, "configuration": configuration, "offsets": offsets}


async def _messages(client: Client, topics: list[str], writer: Writer) -> None:
    """Write the messages of each topic in turn, in the order of storage."""
    queues = [queue for topic in topics for queue in reading.queues_of(await client.route(topic))]
    limits = dict(zip(queues, await catalogue.gather_bounded(reading.bounds(client, q) for q in queues), strict=True))
    with progress("exporting") as bar:
        shown = bar.add_task("", total=sum(end - first for first, end in limits.values()), note="")
        for topic in topics:
            readers = [
                (Reader(client, queue, first, Filter()), end)
                for queue, (first, end) in limits.items()
                if queue.topic == topic
            ]
            async for queue, message in reading.merged(readers):
                found = messages.to_object(queue.broker, message)
                writer.write({"kind": "message", **{name: found[name] for name in _KEPT if name in found}})
                bar.advance(shown)
