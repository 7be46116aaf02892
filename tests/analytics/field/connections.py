"""Connections of the world's clients: long ones that end now and then, deployments, and the effects of incidents."""

from typing import Any

import numpy as np

from tests.analytics.field.scenario import Scenario
from tests.analytics.field.world import Client, World

Row = dict[str, Any]
_CAUSES = (("peer", 0.85), ("reset", 0.08), ("unresponsive", 0.02), ("idle", 0.05))


def connections(world: World, scenario: Scenario, alive: dict[int, tuple[float, float]]) -> list[Row]:
    """Return rows ordered by time. alive: first and last minute of each client's requests."""
    random = np.random.default_rng([world.seed, 401])
    rows: list[Row] = []
    for client in world.clients:
        first, last = alive.get(client.number, (0.0, 0.0))
        begin = first - 0.1 if first > 60 else float(random.uniform(0.0, 3.0))
        cuts = [(float(minute), "") for minute in np.cumsum(random.exponential(11 * 60, 12)) + begin]
        for span, clients in scenario.resets:
            if client.number in clients:
                count = random.poisson(span.value * (span.end - span.start) / 60)
                cuts += [(float(minute), "reset") for minute in random.uniform(span.start, span.end, count)]
        if scenario.drained is not None and client.replica == scenario.drained.subject:
            cuts.append((scenario.drained.start + float(random.uniform(0, 0.5)), "drain"))
        if scenario.joining is not None and client.replica == scenario.joining.subject and scenario.joining.start:
            cuts.append((scenario.joining.start + float(random.uniform(0, 2)), "peer"))
        rows += _stays(
            world, scenario, client, begin, last if last < world.minutes - 60 else np.inf, sorted(cuts), random
        )
    for churn in scenario.churn:
        client = world.clients[churn.subject]
        count = random.poisson(churn.value * (churn.end - churn.start))
        for minute in random.uniform(churn.start, churn.end, count):
            rows.append(_row(world, client, minute, "open", None, scenario))
            rows.append(_row(world, client, minute + 0.02, "close", "peer", scenario))
    kept = [row for row in rows if 0 <= row["minute"] < world.minutes]
    for number, row in enumerate(kept):
        row["connection"] = number
    return sorted(kept, key=lambda row: row["minute"])


def _stays(
    world: World,
    scenario: Scenario,
    client: Client,
    begin: float,
    last: float,
    cuts: list[tuple[float, str]],
    random: np.random.Generator,
) -> list[Row]:
    rows = [_row(world, client, begin, "open", None, scenario)]
    names, shares = [name for name, _ in _CAUSES], [share for _, share in _CAUSES]
    for minute, cause in cuts:
        if minute >= last or minute <= begin:
            continue
        rows.append(_row(world, client, minute, "close", cause or str(random.choice(names, p=shares)), scenario))
        rows.append(_row(world, client, minute + float(random.exponential(0.05)), "open", None, scenario))
    if last < np.inf:
        rows.append(_row(world, client, last + 0.1, "close", "peer", scenario))
    return rows


def replica_at(world: World, scenario: Scenario | None, client: Client, minute: float) -> int:
    """Return the replica of a client: before a replica has joined, its clients are at the first."""
    joining = None if scenario is None else scenario.joining
    if joining is not None and client.replica == joining.subject and minute < joining.start:
        return 0
    return client.replica


def _row(
    world: World, client: Client, minute: float, event: str, cause: str | None, scenario: Scenario | None = None
) -> Row:
    known = event == "close"
    return {
        "minute": minute,
        "event": event,
        "cause": cause,
        "replica": world.replicas[replica_at(world, scenario, client, minute)],
        "protocol": client.protocol,
        "address": client.address,
        "client_id": client.id if known else None,
        "language": client.language if known else None,
        "version": client.version if known else None,
        "port": 30000 + client.number,
    }
