"""`gantry groups`."""

import argparse
from typing import Any

from proxy.operations.offset_table import QueueOffsets
from proxy.tools.cli import catalogue, reading
from proxy.tools.cli.arguments import EARLIEST, LATEST, Start
from proxy.tools.cli.catalogue import Configurations
from proxy.tools.cli.client import Client, CommandError, UsageError, connected
from proxy.tools.cli.output import Output
from remoting.codes import RequestCode, ResponseCode, version_text

_TO_THE_END = -1
_NO_MEMBERS = frozenset((int(ResponseCode.CONSUMER_NOT_ONLINE),))


async def run(options: argparse.Namespace) -> int:
    output = Output(options.json)
    reset = options.words[:1] == ["reset"]
    if not reset and (options.topic or options.to):
        raise UsageError("--topic and --to belong to: gantry groups reset NAME")
    async with connected(options) as client:
        match options.words:
            case []:
                await _list(client, output, options.all)
            case ["reset", name] if options.topic and options.to:
                await _reset(client, output, name, options.topic, options.to)
            case ["reset", *_]:
                raise UsageError("gantry groups reset NAME --topic TOPIC --to earliest|latest|TIME")
            case [name]:
                await _show(client, output, name)
            case _:
                raise UsageError(f"not a command: gantry groups {' '.join(options.words)}")
    return 0


async def _list(client: Client, output: Output, system: bool) -> None:
    found = await catalogue.groups(client, system=system)
    rows = await catalogue.gather_bounded(_summary(client, name, item) for name, item in found.items())
    if output.json:
        for row in rows:
            output.dump(row)
        return
    output.table(
        ("GROUP", "ORDER", "RETRIES", "MEMBERS", "TOPICS", "LAG"),
        [
            (
                row["group"],
                "FIFO" if row["fifo"] else "-",
                row["retries"],
                row["members"],
                ", ".join(row["topics"]) or "-",
                row["lag"],
            )
            for row in rows
        ],
    )


async def _summary(client: Client, name: str, configurations: Configurations) -> dict[str, Any]:
    queues = await catalogue.progress(client, name, configurations)
    return _described(name, configurations, queues) | {"members": len(await catalogue.members(client, name))}


def _described(name: str, configurations: Configurations, queues: list[QueueOffsets]) -> dict[str, Any]:
    first = next(iter(configurations.values()))
    return {
        "group": name,
        "fifo": bool(first.get("consumeMessageOrderly")),
        "retries": int(first.get("retryMaxTimes", 16)),
        "enabled": all(item.get("consumeEnable", True) for item in configurations.values()),
        "topics": sorted({item.key.topic for item in queues}),
        "lag": sum(item.lag for item in queues),
    }


async def _show(client: Client, output: Output, name: str) -> None:
    configurations = (await catalogue.groups(client, system=True)).get(name)
    if configurations is None:
        raise CommandError(f"there is no consumer group {name}; `gantry groups` lists them")
    queues = await catalogue.progress(client, name, configurations)
    members = await catalogue.members(client, name)
    described = _described(name, configurations, queues)
    connections = [
        {
            "client": str(item.get("clientId")),
            "address": str(item.get("clientAddr")),
            "language": str(item.get("language")),
            "version": version_text(int(item.get("version") or 0)),
        }
        for item in members
    ]
    details = [
        {
            **item.key._asdict(),
            "offset": item.consumed,
            "end": item.end,
            "lag": item.lag,
        }
        for item in queues
    ]
    if output.json:
        output.dump({**described, "members": connections, "queues": details})
        return
    order = "in order" if described["fifo"] else "in any order"
    output.line((name, "bold"), f"  {len(connections)} members, {order}, {described['lag']:,} messages behind")
    if connections:
        output.table(("CLIENT", "ADDRESS", "LANGUAGE", "VERSION"), [tuple(item.values()) for item in connections])
    output.table(("TOPIC", "BROKER", "QUEUE", "OFFSET", "END", "LAG"), [tuple(item.values()) for item in details])


async def _reset(client: Client, output: Output, group: str, topic: str, to: Start) -> None:
    route = await client.route(topic)
    if group not in await catalogue.groups(client, system=True):
        raise CommandError(f"there is no consumer group {group}; `gantry groups` lists them")
    timestamp = to.time if to.time is not None else {EARLIEST: 0, LATEST: _TO_THE_END}[str(to.edge)]
    for broker in route.readable():
        fields = {"topic": topic, "group": group, "timestamp": timestamp, "isForce": True, "bname": broker}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        reply = await client.ask(code, fields, accept=_NO_MEMBERS)
        if reply.code != ResponseCode.SUCCESS:
            # A broker that leaves the reset to the members, of which there are none (useServerSideResetOffset=false).
            for queue in reading.queues_of(route):
                if queue.broker == broker:
                    offset = await reading.begin_at(client, queue, to)
                    commit = {**queue.fields, "consumerGroup": group, "commitOffset": offset}
                    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    if output.json:
        output.dump({"group": group, "topic": topic, "done": "reset"})
    else:
        output.line(f"consumer group {group} ", ("reset", "green"), f" in topic {topic}")
