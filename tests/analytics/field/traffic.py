"""Requests as columns: every message is sent once and delivered once to each group, unless an incident prevents it."""

from dataclasses import dataclass

import numpy as np

from tests.analytics.field.scenario import Scenario
from tests.analytics.field.world import QUEUES, Array, Group, Topic, World

SEND, RECEIVE, ACK, NACK, BURY, UPKEEP = range(6)
_MINUTE = 60e6
Columns = dict[str, Array]
_INTEGERS = ("time", "op", "topic", "group", "client", "queue", "messages", "attempt", "key", "delay", "response")
_OK = (0, 20000)
_FAILED = ((1, 50001), (2, 50002), (10, 50400))


@dataclass(frozen=True, slots=True)
class _Random:
    send: np.random.Generator
    consume: np.random.Generator


def requests(world: World, scenario: Scenario) -> Columns:
    """Return all requests, unordered. Columns are indices into the world's lists; -1: null."""
    random = _Random(np.random.default_rng([world.seed, 201]), np.random.default_rng([world.seed, 202]))
    parts = []
    for topic in world.topics:
        sent = _sends(world, scenario, topic, random.send)
        rows = [sent]
        for group in topic.groups:
            rows += _consumption(world, scenario, topic, group, sent, random.consume)
        parts.append(_sampled(_joined(rows), topic.weight, random.consume))
    parts.append(_upkeep(world, random.consume))
    whole = _joined(parts)
    inside = (whole["time"] >= 0) & (whole["time"] < world.minutes * _MINUTE)
    return {name: column[inside] for name, column in whole.items()}


def grpc(world: World, clients: Array) -> Array:
    return np.array([client.protocol == "grpc" for client in world.clients])[clients]


def _blank(size: int, **columns: Array | int | float) -> Columns:
    defaults: dict[str, Array | int | float] = {
        **dict.fromkeys(("group", "queue", "attempt", "delay"), -1),
        **dict.fromkeys(("key", "response", "messages"), 0),
        "weight": 1.0,
        "latency": 0.0,
        "ok": 1,
    }
    whole = defaults | columns
    return {
        name: np.broadcast_to(np.asarray(value, dtype=np.int64 if name in _INTEGERS else float), size).copy()
        for name, value in whole.items()
    }


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _taken(rows: Columns, where: Array) -> Columns:
    return {name: column[where] for name, column in rows.items()}


def _sends(world: World, scenario: Scenario, topic: Topic, random: np.random.Generator) -> Columns:
    minute = np.repeat(np.arange(world.minutes), random.poisson(topic.rate))
    size = minute.size
    chances = np.cumsum(topic.share, axis=0)
    chances /= chances[-1]
    place = (random.random(size)[None, :] > chances[:, minute]).sum(axis=0)
    key = np.minimum(random.zipf(1.3, size), 500) + topic.number * 1000
    rows = _blank(
        size,
        time=minute * _MINUTE + random.random(size) * _MINUTE,
        op=SEND,
        topic=topic.number,
        client=np.array(topic.producers)[place],
        queue=random.integers(0, len(world.brokers) * QUEUES, size),
        messages=1,
        latency=topic.median_us * world.busy[minute] * np.exp(0.5 * random.standard_normal(size)) + 300,
        key=key,
    )
    for hot in (each for each in scenario.hot if each.subject == topic.number):
        struck = (minute >= hot.start) & (minute < hot.end) & (random.random(size) < hot.value)
        rows["key"][struck] = topic.number * 1000 + 777
        rows["queue"][struck] = 3
    if topic.delay_ms:
        rows["delay"] = np.round(topic.delay_ms * np.exp(0.1 * random.standard_normal(size))).astype(np.int64)
        for clock in scenario.clocks:
            wrong = (rows["client"] == clock.subject) & (minute >= clock.start) & (minute < clock.end)
            rows["delay"][wrong] = np.maximum(rows["delay"][wrong] + int(clock.value), 0)
    _fail(world, scenario, rows, topic.failures, random)
    return rows


def _fail(world: World, scenario: Scenario, rows: Columns, failures: float, random: np.random.Generator) -> None:
    """Let requests fail as usual, and apply the scenario's faults."""
    size = rows["time"].size
    minute = rows["time"] / _MINUTE
    protocol = grpc(world, rows["client"]).astype(int)
    rows["response"] = np.array(_OK)[protocol]
    failed = random.random(size) < failures
    usual = np.array(_FAILED)[random.integers(0, len(_FAILED), size), protocol]
    rows["response"] = np.where(failed, usual, rows["response"])
    broker = np.where(rows["queue"] >= 0, rows["queue"] // QUEUES, -1)
    replica = np.array([client.replica for client in world.clients])[rows["client"]]
    columns = rows | {"broker": broker, "replica": replica}
    for fault in scenario.faults:
        struck = (minute >= fault.start) & (minute < fault.end)
        for name, accepted in fault.where.items():
            struck &= np.isin(columns[name], accepted)
        if not struck.any():
            continue
        amount = fault.amount(minute[struck])
        if fault.codes is None:
            rows["latency"][struck] *= amount
        else:
            hit = np.flatnonzero(struck)[random.random(amount.size) < amount]
            rows["response"][hit] = np.array(fault.codes)[protocol[hit]]
            failed[hit] = True
    rows["ok"] = np.where(failed, 0.0, 1.0)
    rows["messages"] = np.where(failed, 0, rows["messages"])


def _consumption(
    world: World, scenario: Scenario, topic: Topic, group: Group, sent: Columns, random: np.random.Generator
) -> list[Columns]:
    """Return receives, acknowledgements and retries of a group."""
    arrived = _taken(sent, sent["ok"] == 1)
    due = arrived["time"] + np.maximum(arrived["delay"], 0) * 1000
    ready = due / _MINUTE + np.exp(random.normal(-6, 0.7, due.size))
    when = _scheduled(scenario, group, ready, arrived["queue"], world.minutes)
    queue, attempt = arrived["queue"], np.ones(due.size, dtype=int)
    for rewind in (each for each in scenario.rewinds if each.subject == group.number):
        again = (when >= rewind.start - rewind.value) & (when < rewind.start)
        times = rewind.start + (when[again] - rewind.start + rewind.value) / 6
        when, queue = np.concatenate([when, times]), np.concatenate([queue, queue[again]])
        attempt = np.concatenate([attempt, np.ones(times.size, dtype=int)])
    extra = _retried(scenario, group, when, queue, random)
    when, queue, attempt = (np.concatenate(pair) for pair in zip((when, queue, attempt), extra[:3], strict=True))
    protocol = world.clients[group.consumers[0]].protocol
    members = np.array(group.consumers)
    consumer = (
        members[queue % members.size]
        if protocol == "remoting"
        else members[random.integers(0, members.size, queue.size)]
    )
    finite = when < world.minutes
    receives = _batched(topic, group, when[finite], queue[finite], attempt[finite], consumer[finite], random)
    receives["queue"] = receives["queue"] if protocol == "remoting" else np.full(receives["queue"].size, -1)
    empty = _empty(world, topic, group, receives, random)
    rows = [
        receives,
        empty,
        *_acks(
            world, topic, group, receives, queue[finite], consumer[finite], when[finite], protocol, random, scenario
        ),
    ]
    for part, op in ((extra[3], NACK), (extra[4], BURY)):
        times = part[part < world.minutes]
        rows.append(
            _blank(
                times.size,
                time=times * _MINUTE,
                op=op,
                topic=topic.number,
                group=group.number,
                client=members[random.integers(0, members.size, times.size)],
                queue=random.integers(0, len(world.brokers) * QUEUES, times.size),
                messages=1,
                latency=1500 * np.exp(0.5 * random.standard_normal(times.size)),
            )
        )
    for made in rows:
        _fail(world, scenario, made, topic.failures / 4, random)
    return rows


def _scheduled(scenario: Scenario, group: Group, ready: Array, queue: Array, minutes: int) -> Array:
    """Return the minute at which a message is delivered."""
    when = ready.copy()
    for slow in (each for each in scenario.slowdowns if each.group == group.number):
        served = slow.start + slow.rate * (slow.end - slow.start)
        until = slow.end + (slow.end - served) / 2
        mapped = np.interp(ready, [slow.start, served + 1e-9, until], [slow.start, slow.end, until])
        if slow.end >= minutes:
            mapped = np.where(ready > served, np.inf, mapped)
        struck = (ready >= slow.start) & (ready < until)
        if slow.queues:
            struck &= np.isin(queue, slow.queues)
        when[struck] = mapped[struck]
    return when


def _retried(
    scenario: Scenario, group: Group, when: Array, queue: Array, random: np.random.Generator
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the repeated deliveries (time, queue, attempt), the negative acknowledgements, and the dead letters."""
    share = np.full(when.size, 0.004)
    dead = np.full(when.size, 0.02)
    for storm in (each for each in scenario.retries if each.group == group.number):
        struck = (when >= storm.start) & (when < storm.end)
        share[struck], dead[struck] = storm.share, storm.dead
    bad = np.flatnonzero((random.random(when.size) < share) & np.isfinite(when))
    times, attempts, nacks = [], [], []
    for attempt, pause in ((2, 0.2), (3, 0.7), (4, 1.7)):
        times.append(when[bad] + pause)
        nacks.append(when[bad] + pause - 0.15)
        attempts.append(np.full(bad.size, attempt))
    buried = when[bad][random.random(bad.size) < dead[bad]] + 2.5
    return np.concatenate(times), np.tile(queue[bad], 3), np.concatenate(attempts), np.concatenate(nacks), buried


def _batched(
    topic: Topic, group: Group, when: Array, queue: Array, attempt: Array, client: Array, random: np.random.Generator
) -> Columns:
    """Return receives: the deliveries of a client from a queue within 15 seconds are one."""
    key = np.stack([np.floor(when * 4).astype(np.int64), queue, attempt > 1, client])
    _, first, inverse, counts = np.unique(key, axis=1, return_index=True, return_inverse=True, return_counts=True)
    highest = np.ones(first.size, dtype=int)
    np.maximum.at(highest, inverse.ravel(), attempt)
    last = np.zeros(first.size)
    np.maximum.at(last, inverse.ravel(), when)
    return _blank(
        first.size,
        time=last * _MINUTE,
        op=RECEIVE,
        topic=topic.number,
        group=group.number,
        client=client[first],
        queue=queue[first],
        messages=counts,
        attempt=highest,
        latency=np.exp(random.normal(13, 1.5, first.size)),
    )


def _empty(world: World, topic: Topic, group: Group, receives: Columns, random: np.random.Generator) -> Columns:
    """Return long polls without messages, while the client works."""
    some = _taken(receives, random.random(receives["time"].size) < 0.15)
    some["time"] += 20_000_000
    some["messages"][:] = 0
    some["attempt"][:] = -1
    some["latency"][:] = 15e6
    return some


def _acks(
    world: World,
    topic: Topic,
    group: Group,
    receives: Columns,
    queue: Array,
    client: Array,
    when: Array,
    protocol: str,
    random: np.random.Generator,
    scenario: Scenario,
) -> list[Columns]:
    if protocol == "grpc":
        fine = (receives["attempt"] == 1) | (random.random(receives["time"].size) < 0.3)
        acks = _taken(receives, fine)
        acks["time"] += np.round(np.exp(random.normal(11.5, 0.6, acks["time"].size))).astype(np.int64)
        acks["attempt"][:] = -1
        acks["latency"] = 900 * _busy(world, acks) * np.exp(0.45 * random.standard_normal(acks["time"].size))
        return [acks | {"op": np.full(acks["time"].size, ACK)}]
    # One commit for each queue and minute with deliveries.
    key = np.stack([np.floor(when).astype(np.int64), queue])
    _, first = np.unique(key, axis=1, return_index=True)
    minute, place = np.floor(when[first]), queue[first]
    kept = np.ones(first.size, dtype=bool)
    for stop, stopped in scenario.commits:
        if stop.subject == group.number:
            kept &= ~((place == stopped) & (minute >= stop.start) & (minute < stop.end))
    size = int(kept.sum())
    commits = _blank(
        size,
        time=(minute[kept] + 1 + random.random(size) * 0.1) * _MINUTE,
        op=ACK,
        topic=topic.number,
        group=group.number,
        client=client[first][kept],
        queue=place[kept],
    )
    commits["latency"] = 700 * _busy(world, commits) * np.exp(0.4 * random.standard_normal(size))
    return [commits]


def _busy(world: World, rows: Columns) -> Array:
    """Return the factor of the latency at the time of each row."""
    return np.asarray(world.busy[np.clip(rows["time"] // int(_MINUTE), 0, world.minutes - 1)])


def _sampled(rows: Columns, weight: float, random: np.random.Generator) -> Columns:
    """Keep one of `weight` rows, and every failure."""
    if weight == 1.0:
        return rows
    failed = rows["ok"] == 0
    kept = _taken(rows, failed | (random.random(failed.size) < 1 / weight))
    kept["weight"] = np.where(kept["ok"] == 0, 1.0, weight)
    return kept


def _upkeep(world: World, random: np.random.Generator) -> Columns:
    """Return a heartbeat of every client in each quarter of an hour."""
    minute = np.arange(0, world.minutes, 15)
    size = minute.size * len(world.clients)
    client = np.repeat(np.arange(len(world.clients)), minute.size)
    time = (np.tile(minute, len(world.clients)) + random.random(size) * 15) * _MINUTE
    latency = 600 * np.exp(0.4 * random.standard_normal(size))
    rows = _blank(size, time=time, op=UPKEEP, topic=-1, client=client, latency=latency)
    rows["response"] = np.array(_OK)[grpc(world, client).astype(int)]
    return rows
