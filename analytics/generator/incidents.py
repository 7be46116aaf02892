"""Incidents: their place, time and effect."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from analytics.generator.plan import Plan
from analytics.generator.rhythm import load
from analytics.generator.truth import Incident
from analytics.generator.world import BROKERS, REPLICAS, Group, Topic, World


@dataclass(frozen=True, slots=True)
class _Setting:
    """The choices for a kind of incident: the busiest candidates without an incident come first."""

    world: World
    topics: list[Topic]
    groups: list[Group]
    random: np.random.Generator


_About = tuple[str, dict[str, str]]


def _error_burst(at: _Setting) -> _About:
    topic = at.topics.pop(0)
    return f"half of the sends to {topic.name} fail", {"topic": topic.name}


def _broker_outage(at: _Setting) -> _About:
    broker = BROKERS[int(at.random.integers(len(BROKERS)))]
    return f"{broker} refuses most requests", {"broker": broker}


def _latency_spike(at: _Setting) -> _About:
    broker = BROKERS[int(at.random.integers(len(BROKERS)))]
    return f"{broker} answers twenty times slower", {"broker": broker}


def _redelivery_storm(at: _Setting) -> _About:
    group = _group(at, 3)
    client = group.consumers[int(at.random.integers(len(group.consumers)))]
    text = f"{client.id} of {group.name} fails on nearly every message"
    return text, {"topic": at.world.topics[group.topic].name, "group": group.name, "client_id": client.id}


def _dlq_storm(at: _Setting) -> _About:
    group = _group(at, 2, "grpc")
    text = f"{group.name} gives up on messages by the hundred"
    return text, {"topic": at.world.topics[group.topic].name, "group": group.name}


def _hot_key(at: _Setting) -> _About:
    topic = at.topics.pop(0)
    return f"one key makes up most of {topic.name}", {"topic": topic.name}


def _consumer_stall(at: _Setting) -> _About:
    group = _group(at, 1)
    text = f"{group.name} stops consuming, then catches up"
    return text, {"topic": at.world.topics[group.topic].name, "group": group.name}


def _noisy_neighbour(at: _Setting) -> _About:
    topic = at.topics.pop(len(at.topics) // 2)
    client = topic.producers[int(at.random.integers(len(topic.producers)))]
    return f"{client.id} sends forty times its usual load", {"topic": topic.name, "client_id": client.id}


def _traffic_drop(at: _Setting) -> _About:
    topic = at.topics.pop(0)
    return f"nearly nothing is sent to {topic.name}", {"topic": topic.name}


def _connection_storm(at: _Setting) -> _About:
    replica = REPLICAS[int(at.random.integers(len(REPLICAS)))]
    return f"every client of {replica} loses its connection and comes back elsewhere", {"replica": replica}


def _group(at: _Setting, consumers: int, protocol: str | None = None) -> Group:
    """Return the busiest remaining group with that many consumers, one of them of the protocol; else the busiest, else
    any.
    """
    for group in at.groups:
        protocols = {client.protocol for client in group.consumers}
        if len(group.consumers) >= consumers and (protocol is None or protocol in protocols):
            at.groups.remove(group)
            return group
    return at.groups.pop(0) if at.groups else at.world.groups[0]


# Kind, choice, shortest and longest duration in minutes.
_KINDS: tuple[tuple[str, Callable[[_Setting], _About], int, int], ...] = (
    ("error_burst", _error_burst, 20, 50),
    ("error_burst", _broker_outage, 15, 40),
    ("latency_spike", _latency_spike, 20, 50),
    ("redelivery_storm", _redelivery_storm, 30, 60),
    ("dlq_storm", _dlq_storm, 20, 50),
    ("hot_key", _hot_key, 120, 180),
    ("consumer_stall", _consumer_stall, 40, 70),
    ("noisy_neighbour", _noisy_neighbour, 30, 60),
    ("traffic_drop", _traffic_drop, 120, 180),
    ("connection_storm", _connection_storm, 1, 2),
)
KINDS = tuple(sorted({kind for kind, *_ in _KINDS}))


def plant_incidents(world: World, plan: Plan) -> tuple[Incident, ...]:
    """Return incidents of every kind, one after the other in a random order, apart from each other.

    The first and the last hours stay quiet, as a baseline.
    """
    random = np.random.default_rng([plan.seed, 2])
    chosen = [kind for kind in _KINDS for _ in range(plan.incidents)]
    if not chosen:
        return ()
    order = random.permutation(len(chosen))
    setting = _Setting(world, [], [], random)
    slot = (plan.days * 24 * 60 - 240) / len(chosen)
    incidents = []
    for place, number in enumerate(order):
        kind, choose, least, most = chosen[int(number)]
        if len(setting.topics) < 2:
            setting.topics.extend(sorted(world.topics, key=lambda topic: -topic.rate))
        if not setting.groups:
            setting.groups.extend(sorted(world.groups, key=lambda group: -world.topics[group.topic].rate))
        text, about = choose(setting)
        minutes = int(min(float(random.integers(least, most + 1)), max(1.0, slot * 0.6)))
        room = max(0.0, slot * 0.9 - minutes)
        begins = [plan.begin + timedelta(minutes=int(120 + place * slot + room * random.random())) for _ in range(8)]
        start = max(begins, key=lambda begin: _load(world, about, begin))
        tenant = about["topic"].split("%")[0] if "topic" in about else None
        incidents.append(Incident(0, kind, start, start + timedelta(minutes=minutes), text, tenant=tenant, **about))
    incidents.sort(key=lambda incident: incident.start)
    return tuple(replace(incident, id=number) for number, incident in enumerate(incidents, 1))


def _load(world: World, about: dict[str, str], time: datetime) -> float:
    """Return the activity of the affected clients: at night an incident would be invisible."""
    topic = next((topic for topic in world.topics if topic.name == about.get("topic")), None)
    return load(world.tenants[topic.tenant if topic else 0], time)
