"""Connection and membership records: clients connect, stay for hours, leave, and return."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from analytics.generator.plan import Plan
from analytics.generator.truth import Incident
from analytics.generator.world import REPLICAS, Client, World
from proxy.observability.records.schema import VERSION

Row = dict[str, Any]

# Ends of connections with their frequencies: most clients hang up, some vanish.
_ENDINGS = (("peer", 0.80), ("reset", 0.08), ("unresponsive", 0.04), ("drain", 0.08))
_HOURS = 9.0
# The cause of a membership's end, by that of the connection.
_CAUSES = {"peer": "unregistered", "drain": "closed", "reset": "closed", "unresponsive": "expired"}


def events(world: World, plan: Plan, incidents: tuple[Incident, ...]) -> tuple[list[Row], list[Row]]:
    """Return all rows of the tables connections and members, each ordered by time."""
    connections: list[Row] = []
    members: list[Row] = []
    groups = _memberships(world)
    numbers: dict[tuple[int, int], int] = defaultdict(int)
    storms = [incident for incident in incidents if incident.kind == "connection_storm"]
    for client in world.clients:
        random = np.random.default_rng([plan.seed, 5, client.number])
        for begin, end, replica, cause in _stays(client, plan, storms, random):
            numbers[replica, client.worker] += 1
            number = numbers[replica, client.worker]
            port = int(random.integers(32768, 61000))
            where = {
                "schema": VERSION,
                "replica": REPLICAS[replica],
                "worker": client.worker,
                "protocol": client.protocol,
            }
            who = {
                "client_id": client.id,
                "address": client.address,
                "language": client.language,
                "version": client.version,
            }
            base = where | {"connection": number, "port": port, "listener": "main", "tls": client.tls}
            connections.append(base | {"time": begin, "event": "open", "address": client.address})
            joining = where | who
            members += [
                joining | {"time": begin + _moment(1), "event": "joined"} | group for group in groups[client.number]
            ]
            if end is None:
                continue
            age = (end - begin) // timedelta(milliseconds=1)
            requests = age // 1000
            amounts = {"age_ms": age, "requests": requests, "bytes_in": requests * 700, "bytes_out": requests * 300}
            connections.append(base | who | amounts | {"time": end, "event": "close", "cause": cause})
            left = {"time": end + _moment(1), "event": "left", "cause": _CAUSES[cause]}
            members += [joining | left | group for group in groups[client.number]]
    return _ordered(connections, plan), _ordered(members, plan)


def _ordered(rows: list[Row], plan: Plan) -> list[Row]:
    return sorted((row for row in rows if plan.begin <= row["time"] < plan.end), key=lambda row: row["time"])


def _memberships(world: World) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for topic in world.topics:
        for client in topic.producers:
            name = topic.name if client.protocol == "grpc" else f"{topic.name}-producers"
            groups[client.number].append({"group": name, "kind": "producer"})
        for group in topic.groups:
            for client in group.consumers:
                groups[client.number].append({"group": group.name, "kind": "consumer"})
    return groups


def _stays(
    client: Client, plan: Plan, storms: list[Incident], random: np.random.Generator
) -> Iterator[tuple[datetime, datetime | None, int, str]]:
    """Yield the spans in which the client is connected, with replica and end; an end of None: still connected."""
    names = [name for name, _ in _ENDINGS]
    shares = [share for _, share in _ENDINGS]
    replica = client.replica
    # Connected for a while before the records begin: no rush at the start.
    begin = plan.begin - timedelta(hours=_HOURS * random.random())
    while begin < plan.end:
        end = begin + timedelta(hours=float(random.exponential(_HOURS)))
        cause = names[int(random.choice(len(names), p=shares))]
        storm = next((each for each in storms if begin < each.start < end and each.replica == REPLICAS[replica]), None)
        if storm is not None:
            end, cause = storm.start + timedelta(seconds=random.random() * 30), "reset"
        yield begin, end if end < plan.end else None, replica, cause
        begin = end + timedelta(seconds=0.2 + float(random.exponential(3.0)))
        if storm is not None or cause == "drain" or random.random() < 0.2:
            replica = (replica + int(random.integers(1, len(REPLICAS)))) % len(REPLICAS)


def _moment(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
