"""`gantry topics`."""

import argparse
from typing import Any

from proxy.tools.cli import catalogue
from proxy.tools.cli.catalogue import Configurations, QueueStats
from proxy.tools.cli.client import Client, CommandError, UsageError, connected
from proxy.tools.cli.output import Output, clock
from remoting.codes import RequestCode
from remoting.messages import Permission

_BOTH_WAYS = int(Permission.READ | Permission.WRITE)


async def run(options: argparse.Namespace) -> int:
    output = Output(options.json)
    async with connected(options) as client:
        match options.words:
            case []:
                await _list(client, output, options.all)
            case ["create" | "delete"]:
                raise UsageError(f"which topic? gantry topics {options.words[0]} NAME")
            case [name]:
                await _show(client, output, name)
            case ["create", name]:
                await create(client, name, options.type, options.queues)
                _done(output, "created", name)
            case ["delete", name]:
                await _delete(client, name)
                _done(output, "deleted", name)
            case _:
                raise UsageError(f"not a command: gantry topics {' '.join(options.words)}")
    return 0


async def _list(client: Client, output: Output, system: bool) -> None:
    found = await catalogue.topics(client, system=system)
    stats = await catalogue.gather_bounded(catalogue.topic_stats(client, name, item) for name, item in found.items())
    rows = [_summary(name, item, queues) for (name, item), queues in zip(found.items(), stats, strict=True)]
    if output.json:
        for row in rows:
            output.dump(row)
        return
    output.table(
        ("TOPIC", "TYPE", "QUEUES", "MESSAGES", "LAST MESSAGE"),
        [(row["topic"], row["type"], row["queues"], row["messages"], clock(row["updated"])) for row in rows],
    )


def _summary(name: str, configurations: Configurations, queues: list[QueueStats]) -> dict[str, Any]:
    return {
        "topic": name,
        "type": catalogue.message_type(configurations),
        "brokers": list(configurations),
        "queues": len(queues),
        "messages": sum(stats.messages for stats in queues),
        "updated": max((stats.updated for stats in queues), default=0),
    }


async def _show(client: Client, output: Output, name: str) -> None:
    configurations = (await catalogue.topics(client, system=True)).get(name)
    if configurations is None:
        raise CommandError(f"there is no topic {name}; `gantry topics` lists them")
    queues = await catalogue.topic_stats(client, name, configurations)
    summary = _summary(name, configurations, queues)
    if output.json:
        details = [
            {
                "broker": stats.queue.broker,
                "queue": stats.queue.number,
                "first": stats.first,
                "end": stats.end,
                "messages": stats.messages,
                "updated": stats.updated,
            }
            for stats in queues
        ]
        output.dump({**summary, "queues": details})
        return
    output.line((name, "bold"), f"  {summary['type']}, {summary['messages']:,} messages in {len(queues)} queues")
    output.table(
        ("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST MESSAGE"),
        [
            (stats.queue.broker, stats.queue.number, stats.first, stats.end, stats.messages, clock(stats.updated))
            for stats in queues
        ],
    )


async def create(
    client: Client, name: str, kind: str, queues: int, readable: int | None = None, permission: int = _BOTH_WAYS
) -> None:
    """Create or change the topic at every broker. Raises CommandError."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues if readable is None else readable,
        "writeQueueNums": queues,
        "perm": permission,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": f"+message.type={kind}",
    }
    for broker in await client.brokers():
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "bname": broker})


async def _delete(client: Client, name: str) -> None:
    route = await client.route(name)
    for broker in route.brokers:
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name, "bname": broker})
    await client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": name})


def _done(output: Output, what: str, name: str) -> None:
    if output.json:
        output.dump({"topic": name, "done": what})
    else:
        output.line(f"topic {name} ", (what, "green"))
