"""What the core knows of itself: what is under way, and who is connected as what."""

from collections import Counter
from collections.abc import Iterable, Iterator

from proxy.core.client_registry import Member
from proxy.core.messaging import Messaging
from proxy.observability.metrics.family import Family, Kind, Labels, Samples
from proxy.observability.metrics.registry import Metrics

UNDER_WAY = Family(
    "gantry_requests_under_way",
    Kind.GAUGE,
    "Commands without an answer yet, of remoting clients and, on behalf of gRPC clients, our own.",
    ("protocol",),
)
POLLS = Family("gantry_long_polls", Kind.GAUGE, "Of these, polls, which may wait for messages.", ("protocol",))
UPSTREAM = Family(
    "gantry_upstream_requests_under_way", Kind.GAUGE, "Of these, those that a broker has been given.", ("broker",)
)
PRODUCERS = Family(
    "rocketmq_producer_connections",
    Kind.GAUGE,
    "Clients of this proxy that are in a producer group.",
    ("language", "version"),
)
CONSUMERS = Family(
    "rocketmq_consumer_connections",
    Kind.GAUGE,
    "Clients of this proxy in each consumer group.",
    ("consumer_group", "language", "version", "consume_mode"),
)
_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}


def watch(metrics: Metrics, core: Messaging) -> None:
    """Show it."""
    metrics.envoy.in_flight = lambda: core.in_flight
    metrics.gauge("gantry_request_bytes", "Bodies of requests under way.", lambda: core.budget.used)
    metrics.gauge(
        "gantry_clients", "Clients in the registry, those behind other proxies included.", lambda: len(core.registry)
    )
    metrics.add(lambda: _requests(core))
    metrics.add(lambda: _members(core.registry.local()))


def _requests(core: Messaging) -> Iterator[tuple[Family, Samples]]:
    found: Counter[Labels] = Counter({("remoting",): 0, ("grpc",): 0})
    polls = found.copy()
    brokers: Counter[Labels] = Counter()
    for context in core.in_flight:
        protocol = context.channel.protocol
        found[protocol,] += 1
        if context.spec is not None and context.spec.poll is not None:
            polls[protocol,] += 1
        if context.broker is not None:
            brokers[context.broker,] += 1
    yield UNDER_WAY, found
    yield POLLS, polls
    yield UPSTREAM, brokers


def _members(members: Iterable[Member]) -> Iterator[tuple[Family, Samples]]:
    producers: Counter[Labels] = Counter()
    consumers: Counter[Labels] = Counter()
    for member in members:
        channel = member.channel
        assert channel is not None
        identity = channel.identity
        what = identity.language or "", identity.version or ""
        if member.producers:
            producers[what] += 1
        for group, part in member.consumer_data.items():
            mode = _MODES.get(str(part.data.get("consumeType")), "pop")
            consumers[(group, *what, mode)] += 1
    yield PRODUCERS, producers
    yield CONSUMERS, consumers
