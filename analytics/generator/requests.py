"""The request records of one hour, as columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from analytics.generator.plan import Plan
from analytics.generator.rhythm import load
from analytics.generator.truth import Incident
from analytics.generator.world import BATCH, BROKERS, EMPTY, QUEUES_PER_BROKER, World

Array = npt.NDArray[Any]

_FAILURES = 0.001
_TRACED = 0.01
_KEYS = 2_000
_MINUTES = 60
# Response codes in remoting and gRPC: SYSTEM_ERROR, INTERNAL_SERVER_ERROR; SERVICE_NOT_AVAILABLE, HA_NOT_AVAILABLE;
# SYSTEM_BUSY, TOO_MANY_REQUESTS; and PULL_NOT_FOUND, MESSAGE_NOT_FOUND, which are no failures.
_USUAL_FAILURE = (1, 50001)
_OUTAGE = (14, 50002)
_BUSY = (2, 42900)
_OK = (0, 20000)
_NOTHING = (19, 40401)

# Median of the brokers' part in µs and the spread of its logarithm, by role; a receive also waits for messages.
_LATENCY = {
    "send": (2_400.0, 0.45),
    "receive": (1_500.0, 0.5),
    "ack": (900.0, 0.45),
    "nack": (1_100.0, 0.45),
    "bury": (2_800.0, 0.45),
    "heartbeat": (600.0, 0.4),
    "route": (0.0, 0.0),
}
ROLES = tuple(_LATENCY)
_ROLE = {role: number for number, role in enumerate(ROLES)}
_SEND, _RECEIVE, _ACK, _NACK, _BURY = (_ROLE[role] for role in ("send", "receive", "ack", "nack", "bury"))
_OWN = (180.0, 0.35)
# A long poll that finds no message.
_POLL_US = 5_000_000.0


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as numpy columns. Indices refer to the world's lists; -1 and masks stand for null."""

    values: dict[str, Array]
    # True where the value is present.
    present: dict[str, Array]


class Scene:
    """The world's flows as arrays, with the effects of incidents."""

    def __init__(self, world: World, plan: Plan, incidents: tuple[Incident, ...]) -> None:
        self.world = world
        self.plan = plan
        self.incidents = incidents
        flows = world.flows
        clients = world.clients
        topics = world.topics
        self.client = np.array([flow.client for flow in flows])
        self.role = np.array([_ROLE[flow.role] for flow in flows])
        self.topic = np.array([flow.topic for flow in flows])
        self.group = np.array([flow.group for flow in flows])
        self.tenant = np.array([topics[flow.topic].tenant for flow in flows])
        self.grpc = np.array([clients[flow.client].protocol == "grpc" for flow in flows])
        self.batch = np.array([BATCH[clients[flow.client].protocol] for flow in flows])
        self.size = np.array([topics[flow.topic].size for flow in flows], dtype=float)
        self.fifo = np.array([topics[flow.topic].fifo for flow in flows])
        self.codes = sorted({flow.code for flow in flows})
        self.code = np.array([self.codes.index(flow.code) for flow in flows])
        self.rate = self._scaled(np.array([flow.rate for flow in flows]))
        # The flows in which a topic's traced messages reappear.
        self.receiver = self._first(_RECEIVE)
        self.acker = self._first(_ACK)
        random = np.random.default_rng([plan.seed, 3])
        self.keys = random.integers(-(2**63), 2**63 - 1, size=(len(topics), _KEYS))
        popularity = 1 / np.arange(1, _KEYS + 1) ** 0.6
        self.popularity = np.cumsum(popularity / popularity.sum())

    def rhythm(self, hour: int) -> Array:
        """Return the load of every tenant in every minute of the hour, against its busiest: tenants by minutes."""
        begin = self.plan.begin + timedelta(hours=hour)
        times = [begin + timedelta(minutes=minute) for minute in range(_MINUTES)]
        return np.array([[load(tenant, time) for time in times] for tenant in self.world.tenants])

    def _first(self, role: int) -> Array:
        """Return the first flow of the role for every topic; every topic has a group."""
        matching = self.role == role
        return np.array([int(np.argmax(matching & (self.topic == topic.number))) for topic in self.world.topics])

    def _scaled(self, rates: Array) -> Array:
        """Return requests per minute of every flow, scaled to the plan's number."""
        begin = self.plan.begin
        hours = [begin + timedelta(hours=hour) for hour in range(self.plan.hours)]
        minutes = np.array([sum(load(tenant, hour) for hour in hours) for tenant in self.world.tenants]) * _MINUTES
        return rates * (self.plan.records / float((rates * minutes[self.tenant]).sum()))

    def minutes(self, incident: Incident, hour: int) -> slice:
        """Return the part of the hour in which the incident is active."""
        begin = self.plan.begin + timedelta(hours=hour)
        first, last = ((time - begin) / timedelta(minutes=1) for time in (incident.start, incident.end))
        return slice(max(0, int(first)), max(0, min(_MINUTES, int(last))))

    def about(self, incident: Incident) -> Array:
        """Return the flows that the incident affects."""
        match = np.ones(len(self.rate), dtype=bool)
        topics, groups, clients = self.world.topics, self.world.groups, self.world.clients
        if incident.topic is not None:
            match &= self.topic == [topic.name for topic in topics].index(incident.topic)
        if incident.group is not None:
            match &= self.group == [group.name for group in groups].index(incident.group)
        if incident.client_id is not None:
            match &= self.client == [client.id for client in clients].index(incident.client_id)
        return match


def hour_of(scene: Scene, hour: int) -> Columns:
    """Return the rows of one hour, ordered by time. Depends only on the plan and the hour."""
    random = np.random.default_rng([scene.plan.seed, 4, hour])
    rhythm = scene.rhythm(hour)
    rates = scene.rate[:, None] * rhythm[scene.tenant] * random.gamma(400.0, 1 / 400.0, size=(len(scene.rate), 1))
    for incident in scene.incidents:
        _change_rates(scene, incident, hour, rates)
    counts = random.poisson(rates).ravel()
    cell = np.repeat(np.arange(counts.size), counts)
    flow, minute = cell // _MINUTES, cell % _MINUTES
    begin_us = int(scene.plan.begin.timestamp() + hour * 3600) * 1_000_000
    time = begin_us + minute * 60_000_000 + random.integers(0, 60_000_000, size=cell.size)
    order = np.argsort(time, kind="stable")
    columns = _rows(scene, random, flow[order], time[order])
    for incident in scene.incidents:
        on = scene.minutes(incident, hour)
        afflict = _AFFLICTIONS.get(incident.kind)
        if afflict is not None and on.stop > on.start:
            afflict(scene, incident, columns, _affected(scene, incident, columns), random)
    _clear_failed(columns)
    traced = _traces(scene, columns, random, begin_us)
    return _sorted(_joined(columns, traced))


# Effects of an incident on the rate of flows.

_NOISE = 40.0
_NACKS = 150.0
_BURIALS = 1_500.0


def _change_rates(scene: Scene, incident: Incident, hour: int, rates: Array) -> None:
    on = scene.minutes(incident, hour)
    match = scene.about(incident)
    if incident.kind == "noisy_neighbour":
        rates[match & (scene.role == _SEND), on] *= _NOISE
    elif incident.kind == "traffic_drop":
        rates[match, on] *= 0.02
    elif incident.kind == "redelivery_storm":
        rates[match & (scene.role == _NACK), on] *= _NACKS
    elif incident.kind == "dlq_storm":
        rates[match & (scene.role == _BURY), on] *= _BURIALS
    elif incident.kind == "consumer_stall":
        working = match & np.isin(scene.role, (_RECEIVE, _ACK, _NACK))
        rates[working, on] = 0.0
        length = incident.end - incident.start
        after = Incident(0, incident.kind, incident.end, incident.end + length, "")
        rates[working, scene.minutes(after, hour)] *= 2.0


# Contents of rows.


def _rows(scene: Scene, random: np.random.Generator, flow: Array, time: Array) -> Columns:
    size = flow.size
    role = scene.role[flow]
    grpc = scene.grpc[flow]
    sends, receives, acks = role == _SEND, role == _RECEIVE, role == _ACK
    found = receives & (random.random(size) >= EMPTY)
    ok = random.random(size) >= _FAILURES
    # The average number, at least one.
    delivered = 1 + random.poisson(scene.batch[flow] - 1)
    messages = np.where(sends | (role == _NACK) | (role == _BURY), 1, 0)
    messages = np.where(found, delivered, messages)
    messages = np.where(acks & grpc, 1, messages)
    body = (scene.size[flow] * np.exp(0.4 * random.standard_normal(size))).astype(np.int64)
    redelivered = found & (random.random(size) < 0.01)
    attempt = np.where(redelivered, 1 + random.geometric(0.6, size), 1)
    broker = random.integers(0, len(BROKERS), size)
    queue = random.integers(0, QUEUES_PER_BROKER, size)
    rank = np.searchsorted(scene.popularity, random.random(size))
    key = scene.keys[scene.topic[flow], np.minimum(rank, _KEYS - 1)]
    ordered = sends & scene.fifo[flow]
    broker = np.where(ordered, (key >> 8) % len(BROKERS), broker)
    queue = np.where(ordered, key % QUEUES_PER_BROKER, queue)
    medians = np.array([_LATENCY[name][0] for name in ROLES])[role]
    spreads = np.array([_LATENCY[name][1] for name in ROLES])[role]
    broker_us = medians * np.exp(spreads * random.standard_normal(size))
    broker_us = np.where(receives & ~found, random.exponential(_POLL_US, size), broker_us)
    own_us = _OWN[0] * np.exp(_OWN[1] * random.standard_normal(size))
    delayed = sends & (random.random(size) < 0.01)
    nothing = receives & ~found
    response = np.where(nothing, _by(grpc, _NOTHING), _by(grpc, _OK))
    response = np.where(ok, response, _by(grpc, _USUAL_FAILURE))
    none = np.zeros(size, dtype=bool)
    asked = role != _ROLE["route"]
    return Columns(
        {
            "flow": flow,
            "time": time,
            "broker": broker,
            "queue": queue,
            "messages": messages,
            "body": body,
            "broker_us": broker_us,
            "own_us": own_us,
            "response": response,
            "ok": ok,
            "attempt": attempt,
            "delay_ms": random.integers(1, 600, size) * 1000,
            "key_hash": key,
            "trace": np.full((size, 2), 0, dtype=np.uint64),
        },
        {
            "broker": asked & (role != _ROLE["heartbeat"]),
            "queue": sends | (receives & ~grpc),
            "broker_us": asked,
            "attempt": found & ok,
            "delay_ms": delayed,
            "key_hash": sends & (random.random(size) < 0.8),
            "trace": none,
        },
    )


def _by(grpc: Array, codes: tuple[int, int]) -> Array:
    return np.where(grpc, codes[1], codes[0])


# Effects of an incident on its rows.

_Affliction = Callable[[Scene, Incident, Columns, Array, np.random.Generator], None]


def _affected(scene: Scene, incident: Incident, columns: Columns) -> Array:
    time = columns.values["time"]
    start, end = (int(moment.timestamp() * 1e6) for moment in (incident.start, incident.end))
    struck = (time >= start) & (time < end) & scene.about(incident)[columns.values["flow"]]
    if incident.broker is not None:
        struck &= columns.present["broker"] & (columns.values["broker"] == BROKERS.index(incident.broker))
    return struck


def _fail(scene: Scene, incident: Incident, columns: Columns, struck: Array, random: np.random.Generator) -> None:
    share, codes = (0.7, _OUTAGE) if incident.broker else (0.5, _BUSY)
    roles = scene.role[columns.values["flow"]]
    if incident.broker is None:
        struck = struck & (roles == _SEND)
    failed = struck & (random.random(struck.size) < share)
    columns.values["ok"] &= ~failed
    answer = _by(scene.grpc[columns.values["flow"]], codes)
    columns.values["response"] = np.where(failed, answer, columns.values["response"])


def _slow(scene: Scene, incident: Incident, columns: Columns, struck: Array, random: np.random.Generator) -> None:
    # A long poll lasts until its own time-out.
    struck = struck & (scene.role[columns.values["flow"]] != _RECEIVE)
    columns.values["broker_us"] = np.where(struck, columns.values["broker_us"] * 20, columns.values["broker_us"])


def _redeliver(scene: Scene, incident: Incident, columns: Columns, struck: Array, random: np.random.Generator) -> None:
    again = struck & columns.present["attempt"] & (random.random(struck.size) < 0.9)
    columns.values["attempt"] = np.where(again, 2 + random.poisson(2, struck.size), columns.values["attempt"])


def _make_hot(scene: Scene, incident: Incident, columns: Columns, struck: Array, random: np.random.Generator) -> None:
    flow = columns.values["flow"]
    hot = struck & (scene.role[flow] == _SEND) & (random.random(struck.size) < 0.7)
    if not hot.any():
        return
    key = int(scene.keys[scene.topic[flow[hot][0]], 0])
    for name, value in (("key_hash", key), ("broker", (key >> 8) % len(BROKERS)), ("queue", key % QUEUES_PER_BROKER)):
        columns.values[name] = np.where(hot, value, columns.values[name])
    columns.present["key_hash"] = columns.present["key_hash"] | hot


_AFFLICTIONS: Mapping[str, _Affliction] = {
    "error_burst": _fail,
    "latency_spike": _slow,
    "redelivery_storm": _redeliver,
    "hot_key": _make_hot,
}


def _clear_failed(columns: Columns) -> None:
    """Set the messages of failed requests to zero."""
    ok = columns.values["ok"]
    columns.values["messages"] = np.where(ok, columns.values["messages"], 0)
    columns.present["attempt"] = columns.present["attempt"] & ok


def _traces(scene: Scene, columns: Columns, random: np.random.Generator, begin_us: int) -> Columns:
    """Trace a share of the sends: such a message appears in a receive and an acknowledgement with the same trace id.

    Messages that would be acknowledged after the hour are left out, so that hours are independent.
    """
    values, present = columns.values, columns.present
    roles = scene.role[values["flow"]]
    sends = np.flatnonzero((roles == _SEND) & values["ok"] & ~present["delay_ms"])
    sends = sends[random.random(sends.size) < _TRACED]
    wait = 20_000 * np.exp(random.standard_normal(sends.size))
    work = 60_000 * np.exp(random.standard_normal(sends.size))
    topic = scene.topic[values["flow"][sends]]
    receiver, acker = scene.receiver[topic], scene.acker[topic]
    received = (values["time"][sends] + wait).astype(np.int64)
    acked = (received + work).astype(np.int64)
    kept = acked < begin_us + 3_600_000_000
    sends, receiver, acker, received, acked = (each[kept] for each in (sends, receiver, acker, received, acked))
    ids = random.integers(1, 2**63, size=(sends.size, 2), dtype=np.uint64)
    values["trace"][sends] = ids
    present["trace"] = present["trace"].copy()
    present["trace"][sends] = True
    if not sends.size:
        return Columns({name: column[:0] for name, column in values.items()}, {n: c[:0] for n, c in present.items()})
    parts = []
    for flow, time in ((receiver, received), (acker, acked)):
        part = _rows(scene, random, flow, time)
        one = np.ones(sends.size, dtype=int)
        part.values.update(trace=ids, ok=one.astype(bool), messages=one, attempt=one)
        part.values["response"] = _by(scene.grpc[flow], _OK)
        part.values["broker_us"] = 1_500 * np.exp(0.4 * random.standard_normal(sends.size))
        part.present["trace"] = np.ones(sends.size, dtype=bool)
        part.present["attempt"] = scene.role[flow] == _RECEIVE
        parts.append(part)
    return _joined(*parts)


def _joined(*parts: Columns) -> Columns:
    return Columns(
        {name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values},
        {name: np.concatenate([part.present[name] for part in parts]) for name in parts[0].present},
    )


def _sorted(columns: Columns) -> Columns:
    order = np.argsort(columns.values["time"], kind="stable")
    return Columns(
        {name: column[order] for name, column in columns.values.items()},
        {name: column[order] for name, column in columns.present.items()},
    )
