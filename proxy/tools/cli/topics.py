"""`gantry topics`."""

import argparse
from collections.abc import Iterable
from typing import Any

from proxy.operations import topic_owners
from proxy.tools.cli import catalogue
from proxy.tools.cli.catalogue import Configurations, QueueStats
from proxy.tools.cli.client import Client, CommandError, UsageError, connected
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.output import Output, clock
from remoting.codes import RequestCode
from remoting.messages import READ_AND_WRITE
from remoting.routes import TopicRoute
from remoting.topic_group_config import changed_topic, copied_topic, topic_difference, topic_fields


async def run(options: argparse.Namespace) -> int:
    output = Output(options.json)
    async with connected(options) as client:
        match options.action:
            case "list":
                await _list(client, output, options.all)
            case "show":
                await _show(client, output, options.name)
            case "create":
                await _create(client, options)
                output.done("topic", options.name, "created")
            case "update":
                await _update(client, options)
                output.done("topic", options.name, "updated")
            case "delete":
                await _check_owner(client, options.name)
                route = await client.route(options.name)
                confirm(options, f"delete topic {options.name} with all its messages?")
                await _delete(client, options.name, route)
                output.done("topic", options.name, "deleted")
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


async def _configurations(client: Client, name: str) -> Configurations:
    """Return the topic's configuration at each broker. Raises CommandError if the topic does not exist."""
    configurations = (await catalogue.topics(client, system=True)).get(name)
    if configurations is None:
        raise CommandError(f"there is no topic {name}; `gantry topics` lists them")
    return configurations


async def _show(client: Client, output: Output, name: str) -> None:
    configurations = await _configurations(client, name)
    queues = await catalogue.topic_stats(client, name, configurations)
    summary = _summary(name, configurations, queues)
    missing = await catalogue.missing(client, configurations)
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
        output.dump({**summary, "missing": missing, "queues": details})
        return
    catalogue.warn_of_missing(f"topic {name}", "topics", missing)
    output.line((name, "bold"), f"  {summary['type']}, {summary['messages']:,} messages in {len(queues)} queues")
    output.table(
        ("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST MESSAGE"),
        [
            (stats.queue.broker, stats.queue.number, stats.first, stats.end, stats.messages, clock(stats.updated))
            for stats in queues
        ],
    )


async def _create(client: Client, options: argparse.Namespace) -> None:
    name, brokers = options.name, await client.brokers()
    catalogue.check_reserved(topic_owners.reserved_topic(name, brokers, set(brokers.values())))
    found = (await catalogue.topics(client, system=True)).get(name)
    if found is None:
        await create(client, name, options.type, options.queues)
        return
    missing = await catalogue.missing(client, found)
    differences = {
        broker: topic_difference(item, options.type, options.queues, READ_AND_WRITE) for broker, item in found.items()
    }
    catalogue.check_completion(f"topic {name}", "topics", differences, missing)
    fields = copied_topic(name, next(iter(found.values())))
    for broker in missing:
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "bname": broker})


async def _update(client: Client, options: argparse.Namespace) -> None:
    if options.type is None and options.queues is None:
        raise UsageError("nothing to change: give --type or --queues")
    current = await _configurations(client, options.name)
    present = catalogue.message_type(current)
    if options.type not in (None, present):
        confirm(options, f"change the type of messages of topic {options.name} from {present} to {options.type}?")
    if options.queues is not None:
        await _confirm_fewer(client, options, current)
    for broker, item in current.items():
        fields = changed_topic(options.name, item, options.type, options.queues, None)
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "bname": broker})


async def _confirm_fewer(client: Client, options: argparse.Namespace, current: Configurations) -> None:
    """Ask for confirmation if consumers would no longer reach messages of the topic."""
    queues = await catalogue.topic_stats(client, options.name, current)
    hidden = sum(stats.messages for stats in queues if stats.queue.number >= options.queues)
    if hidden:
        confirm(options, f"remove queues with {hidden:,} messages from topic {options.name}?")


async def create(
    client: Client,
    name: str,
    kind: str,
    queues: int,
    readable: int | None = None,
    permission: int = READ_AND_WRITE,
    *,
    brokers: Iterable[str] | None = None,
) -> None:
    """Create or change the topic at the brokers (None: all). Raises CommandError."""
    fields = topic_fields(name, kind, queues if readable is None else readable, queues, permission)
    for broker in await client.brokers() if brokers is None else brokers:
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "bname": broker})


async def _check_owner(client: Client, name: str) -> None:
    """Raise CommandError for a topic that brokers, proxies or a consumer group need."""
    brokers = await client.brokers()
    owner = topic_owners.fixed_owner(name, brokers, set(brokers.values()), catalogue.SYNC_TOPICS)
    if owner is None and topic_owners.may_belong_to_group(name):
        owner = topic_owners.group_owner(name, await catalogue.groups(client, system=True))
    if owner is not None:
        raise CommandError(f"topic {name} belongs to {owner}")


async def _delete(client: Client, name: str, route: TopicRoute) -> None:
    for broker in route.brokers:
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name, "bname": broker})
    await client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": name})
