"""`gantry groups`."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.operations import topic_owners
from proxy.operations.groups.offset_table import QueueOffsets
from proxy.tools.cli import catalogue, reading
from proxy.tools.cli.arguments import EARLIEST, LATEST, Start
from proxy.tools.cli.catalogue import Configurations
from proxy.tools.cli.client import Client, CommandError, UsageError, connected
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.output import Output, warn
from proxy.tools.cli.reading import Queue
from remoting.codes import RequestCode, ResponseCode, version_text
from remoting.names import RETRY_PREFIX
from remoting.routes import TopicRoute
from remoting.topic_group_config import NEW_GROUP, changed_group, copied_group, group_changes, group_difference

_TO_THE_END = -1
_NO_MEMBERS = frozenset((int(ResponseCode.CONSUMER_NOT_ONLINE),))


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
                output.done("consumer group", options.name, "created")
            case "update":
                await _update(client, options)
                output.done("consumer group", options.name, "updated")
            case "delete":
                configurations = await _configurations(client, options.name)
                await _check_no_members(client, options.name)
                confirm(options, f"delete consumer group {options.name} with its offsets?")
                await _delete(client, options.name, configurations)
                output.done("consumer group", options.name, "deleted")
            case "reset":
                await _reset(client, output, options)
    return 0


async def _list(client: Client, output: Output, system: bool) -> None:
    found = await catalogue.groups(client, system=system)
    rows = await catalogue.gather_bounded(_summary(client, name, item) for name, item in found.items())
    if output.json:
        for row in rows:
            output.dump(row)
        return
    output.table(
        ("GROUP", "STATE", "ORDER", "RETRIES", "MEMBERS", "TOPICS", "LAG", "RETRYING"),
        [
            (
                row["group"],
                row["state"],
                "FIFO" if row["fifo"] else "-",
                row["retries"],
                row["members"],
                ", ".join(row["topics"]) or "-",
                row["lag"] - row["retry_backlog"],
                row["retry_backlog"],
            )
            for row in rows
        ],
    )


async def _summary(client: Client, name: str, configurations: Configurations) -> dict[str, Any]:
    queues = await catalogue.progress(client, name, configurations)
    described, members = _described(name, configurations, queues), len(await catalogue.members(client, name))
    return described | {"members": members, "state": _state(described["enabled"], members)}


def _state(enabled: bool, members: int) -> str:
    """Return the state by one look: whether a group is stuck or lagging shows only after minutes."""
    return ("online" if members else "offline") if enabled else "disabled"


def _described(name: str, configurations: Configurations, queues: list[QueueOffsets]) -> dict[str, Any]:
    first = next(iter(configurations.values()))
    return {
        "group": name,
        "fifo": bool(first.get("consumeMessageOrderly")),
        "retries": int(first.get("retryMaxTimes", 16)),
        "enabled": all(item.get("consumeEnable", True) for item in configurations.values()),
        "topics": sorted({item.key.topic for item in queues}),
        # With retries, unlike the lag elsewhere: scripts read it.
        "lag": sum(item.lag for item in queues),
        "retry_backlog": sum(item.lag for item in queues if item.key.topic.startswith(RETRY_PREFIX)),
    }


def _behind(described: Mapping[str, Any]) -> str:
    """Return the sentence about the messages that wait for a group."""
    retrying = described["retry_backlog"]
    return f"{described['lag'] - retrying:,} messages behind" + (f", {retrying:,} to be retried" if retrying else "")


async def _show(client: Client, output: Output, name: str) -> None:
    configurations = await _configurations(client, name)
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
    missing = await catalogue.missing(client, configurations)
    if output.json:
        output.dump({**described, "missing": missing, "members": connections, "queues": details})
        return
    catalogue.warn_of_missing(f"consumer group {name}", "groups", missing)
    order = "in order" if described["fifo"] else "in any order"
    output.line((name, "bold"), f"  {len(connections)} members, {order}, {_behind(described)}")
    if connections:
        output.table(("CLIENT", "ADDRESS", "LANGUAGE", "VERSION"), [tuple(item.values()) for item in connections])
    output.table(("TOPIC", "BROKER", "QUEUE", "OFFSET", "END", "LAG"), [tuple(item.values()) for item in details])


async def _configurations(client: Client, name: str) -> Configurations:
    """Return the group's configuration at each broker. Raises CommandError if the group does not exist."""
    configurations = (await catalogue.groups(client, system=True)).get(name)
    if configurations is None:
        raise CommandError(f"there is no consumer group {name}; `gantry groups` lists them")
    return configurations


async def _create(client: Client, options: argparse.Namespace) -> None:
    catalogue.check_reserved(topic_owners.reserved_group(options.name))
    found = (await catalogue.groups(client, system=True)).get(options.name, {})
    missing, changes = await catalogue.missing(client, found), _changes(options)
    configuration: dict[str, object] = {**NEW_GROUP, "groupName": options.name, **changes}
    if found:
        differences = {broker: group_difference(item, changes) for broker, item in found.items()}
        catalogue.check_completion(f"consumer group {options.name}", "groups", differences, missing)
        configuration = copied_group(next(iter(found.values())))
    for broker in missing:
        await _put(client, broker, configuration)


async def _update(client: Client, options: argparse.Namespace) -> None:
    changes = _changes(options)
    if not changes:
        raise UsageError("nothing to change: give --fifo, --retries or --enabled")
    for broker, current in (await _configurations(client, options.name)).items():
        await _put(client, broker, changed_group(current, changes))


def _changes(options: argparse.Namespace) -> dict[str, object]:
    return group_changes(options.fifo, options.retries, options.enabled)


async def _put(client: Client, broker: str, configuration: dict[str, object]) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await client.ask(code, {"bname": broker}, orjson.dumps(configuration))


async def _check_no_members(client: Client, name: str) -> None:
    """Raise CommandError for a group with members, whose next heartbeat would create it again."""
    members = [str(member.get("clientId")) for member in await catalogue.members(client, name)]
    if members:
        raise CommandError(f"consumer group {name} has members: {', '.join(members[:3])}")


async def _delete(client: Client, name: str, brokers: Iterable[str]) -> None:
    for broker in brokers:
        fields = {"groupName": name, "cleanOffset": True, "bname": broker}
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)


@dataclass(frozen=True, slots=True)
class _Move:
    """A reset of one queue. current: offset of the group, None if it has none there."""

    queue: Queue
    current: int | None
    target: int


async def _reset(client: Client, output: Output, options: argparse.Namespace) -> None:
    group, topic = options.name, options.topic
    route = await client.route(topic)
    configurations = await _configurations(client, group)
    members = await catalogue.members(client, group)
    moves = await _moves(client, group, configurations, route, options.to)
    if members:
        warn(f"consumer group {group} has {len(members)} members; they continue at the new offsets")
    if not options.dry_run:
        confirm(options, _question(group, topic, moves))
        for broker in route.readable():
            await _reset_at(client, broker, group, options.to, [move for move in moves if move.queue.broker == broker])
    done = "would be reset" if options.dry_run else "reset"
    if output.json:
        queues = [
            {"broker": move.queue.broker, "queue": move.queue.number, "from": move.current, "to": move.target}
            for move in moves
        ]
        output.dump({"group": group, "topic": topic, "done": done, "members": len(members), "queues": queues})
        return
    output.line(f"consumer group {group} ", (done, "green"), f" in topic {topic}")
    output.table(
        ("BROKER", "QUEUE", "FROM", "TO"),
        [(move.queue.broker, move.queue.number, move.current, move.target) for move in moves],
    )


def _question(group: str, topic: str, moves: list[_Move]) -> str:
    changes = [move.target - move.current for move in moves if move.current is not None]
    skipped, repeated = (sum(max(sign * change, 0) for change in changes) for sign in (1, -1))
    return f"reset consumer group {group} in topic {topic}: skip {skipped:,} messages and repeat {repeated:,}?"


async def _moves(client: Client, group: str, brokers: Iterable[str], route: TopicRoute, to: Start) -> list[_Move]:
    """Return the change of each queue."""
    offsets = {Queue(*row.key): row.consumed for row in await catalogue.progress(client, group, brokers)}
    queues = reading.queues_of(route)
    targets = await catalogue.gather_bounded(reading.begin_at(client, queue, to) for queue in queues)
    return [_Move(queue, offsets.get(queue), target) for queue, target in zip(queues, targets, strict=True)]


async def _reset_at(client: Client, broker: str, group: str, to: Start, moves: list[_Move]) -> None:
    topic = moves[0].queue.topic
    timestamp = to.time if to.time is not None else {EARLIEST: 0, LATEST: _TO_THE_END}[str(to.edge)]
    fields = {"topic": topic, "group": group, "timestamp": timestamp, "isForce": True, "bname": broker}
    reply = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, accept=_NO_MEMBERS)
    if reply.code == ResponseCode.SUCCESS:
        return
    # A broker that leaves the reset to the members, of which there are none (useServerSideResetOffset=false).
    for move in moves:
        commit = {**move.queue.fields, "consumerGroup": group, "commitOffset": move.target}
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
