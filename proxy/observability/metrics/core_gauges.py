"""Metrics of the messaging core: in-flight requests, turns and group members."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator

from protocol_negotiation.fair_turns import FairTurns
from proxy.core.client_registry import Member
from proxy.core.messaging import Messaging
from proxy.observability.metrics.family import Family, Kind, Labels, Samples, by_label

BYTES = Family(
    "gantry_request_bytes", Kind.GAUGE, "Memory of in-flight requests in bytes, compared with `limits.total_bytes`."
)
TASKS = Family("gantry_tasks", Kind.GAUGE, "Unfinished asyncio tasks of the process.")
TURNS = Family(
    "gantry_fair_turns",
    Kind.COUNTER,
    "Reads that were handled in slices beside other connections (divided), and pauses after expensive frames (paused).",
    ("event",),
)
CREATIONS = Family(
    "gantry_creations",
    Kind.COUNTER,
    "First uses of topics and groups that brokers may create: admitted, or refused by the rate of the client, the "
    "address or all clients.",
    ("outcome",),
)
IN_FLIGHT = Family(
    "gantry_requests_in_flight",
    Kind.GAUGE,
    "Commands without an answer yet: requests of remoting clients, and commands that gRPC calls translate to.",
    ("protocol",),
)
POLLS = Family(
    "gantry_long_polls",
    Kind.GAUGE,
    "In-flight commands that are long polls, which may wait for messages.",
    ("protocol",),
)
UPSTREAM = Family(
    "gantry_upstream_requests_in_flight",
    Kind.GAUGE,
    "In-flight commands that were sent to a broker, by broker.",
    ("broker",),
)
WAITING = Family(
    "gantry_upstream_requests_waiting",
    Kind.GAUGE,
    "In-flight commands that wait until earlier ones of their source address have been answered by the broker "
    "(`limits.broker_window`).",
)
WAITED = Family(
    "gantry_upstream_requests_waited",
    Kind.COUNTER,
    "Commands that had to wait for earlier ones of their source address (`limits.broker_window`).",
)
WAITING_POLLS = Family(
    "gantry_upstream_polls_waiting",
    Kind.GAUGE,
    "In-flight long polls that wait until the broker has answered or parked others (`limits.broker_polls`).",
)
WAITED_POLLS = Family(
    "gantry_upstream_polls_waited",
    Kind.COUNTER,
    "Long polls that had to wait until the broker had answered or parked others (`limits.broker_polls`).",
)
PRODUCERS = Family(
    "rocketmq_producer_connections",
    Kind.GAUGE,
    "Clients of this proxy that are in at least one producer group.",
    ("language", "version"),
)
CONSUMERS = Family(
    "rocketmq_consumer_connections",
    Kind.GAUGE,
    "Clients of this proxy in each consumer group.",
    ("consumer_group", "language", "version", "consume_mode"),
)
_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}


def read(core: Messaging, turns: FairTurns) -> Iterator[tuple[Family, Samples]]:
    """Yield the metrics of a core, and of the turns of its connections."""
    yield BYTES, {(): core.budget.used}
    yield TASKS, {(): len(asyncio.all_tasks())}
    yield TURNS, by_label(turns.counts)
    yield from _requests(core)
    yield from _members(core.registry.local())
    if core.creations is not None:
        yield CREATIONS, by_label(core.creations.counts)
    if core.shares is not None:
        yield WAITING, {(): core.shares.waiting}
        yield WAITED, {(): core.shares.waited}
    if core.poll_turns is not None:
        yield WAITING_POLLS, {(): core.poll_turns.waiting}
        yield WAITED_POLLS, {(): core.poll_turns.waited}


def _requests(core: Messaging) -> Iterator[tuple[Family, Samples]]:
    in_flight: Counter[Labels] = Counter({("remoting",): 0, ("grpc",): 0})
    polls = in_flight.copy()
    brokers: Counter[Labels] = Counter()
    for context in core.in_flight:
        protocol = context.channel.protocol
        in_flight[protocol,] += 1
        if context.spec is not None and context.spec.poll is not None:
            polls[protocol,] += 1
        if context.broker is not None:
            brokers[context.broker,] += 1
    yield IN_FLIGHT, in_flight
    yield POLLS, polls
    yield UPSTREAM, brokers


def _members(members: Iterable[Member]) -> Iterator[tuple[Family, Samples]]:
    producers: Counter[Labels] = Counter()
    consumers: Counter[Labels] = Counter()
    for member in members:
        if member.representative:
            continue
        channel = member.channel
        assert channel is not None
        identity = channel.identity
        sdk = identity.language or "", identity.version or ""
        if member.producers:
            producers[sdk] += 1
        for group, consumer in member.consumer_data.items():
            mode = _MODES.get(str(consumer.data.get("consumeType")), "pop")
            consumers[(group, *sdk, mode)] += 1
    yield PRODUCERS, producers
    yield CONSUMERS, consumers
