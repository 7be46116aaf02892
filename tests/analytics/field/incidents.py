"""Incidents of messaging systems as operators reported them, planted into a world.

Sources, cited by number in _KINDS (all public; addresses in docs/analytics-detection.md):
1 PagerDuty, 28 August 2025: a producer for each request, rolled out step by step. 2 Honeycomb, 5 December 2025: queues
without a leader refuse messages. 3 MyQ, 7 January 2026: a node of the messaging service is lost at peak load.
4 RocketMQ fast failure: a consumer that never acknowledges floods its retry topic. 5 apache/rocketmq issues 1190, 2422,
7613: one queue is not consumed, or its offset not committed. 6 A partner's upload of 180,000 claims fills the queue.
7 Consumer lag after a deployment with a slow call in the loop. 8 Google Cloud, 12 June 2025: a quota change rejects
requests. 9 apache/rocketmq-apis issue 83, apache/pulsar pull request 25310: clients with wrong clocks. 10 Credentials
that rotate or expire. 11 Uneven partitions by badly chosen keys. 12 Backlog of an order topic at night.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.analytics.field import world as worlds
from tests.analytics.field.scenario import Fault, Retries, Scenario, Slowdown, Span, line, ramp, step
from tests.analytics.field.truth import Planted
from tests.analytics.field.world import QUEUES, Array, Group, Topic, World

# Time without planted incidents at the beginning, in minutes.
_QUIET = 420
# Messages that a topic usually has during its incident.
_SEEN = 150


@dataclass
class Stage:
    """A world in which incidents are being planted. used: topics that have one already."""

    world: World
    random: np.random.Generator
    scenario: Scenario = field(default_factory=Scenario)
    planted: list[Planted] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    # Spans of incidents of a whole broker, replica, tenant or version: one at a time.
    wide: list[tuple[float, float]] = field(default_factory=list)

    def span(self, low: float, high: float, *, wide: bool = False) -> tuple[float, float]:
        """Return a span of a length in minutes between low and high."""
        for _ in range(500):
            length = float(self.random.uniform(low, high))
            start = round(float(self.random.uniform(_QUIET, self.world.minutes - length - 60)))
            end = round(start + length)
            if not wide or all(end + 120 < first or start - 120 > last for first, last in self.wide):
                break
        if wide:
            self.wide.append((start, end))
        return start, end

    def topic(
        self,
        low: float,
        high: float,
        *,
        until_end: bool = False,
        ends_busy: bool = False,
        fits: Callable[[Topic], bool] = lambda topic: True,
    ) -> tuple[Topic, float, float] | None:
        """Return an unused topic and a span in which it has messages enough; None if there is none."""
        for _ in range(4000):
            topic = self.world.topics[int(self.random.integers(0, len(self.world.topics)))]
            start, end = self.span(low, high)
            if until_end:
                start, end = self.world.minutes - (end - start), float(self.world.minutes)
            usual = topic.rate[int(start) : int(end)]
            steady = usual.max() < 8 * usual.mean()
            busy = not ends_busy or usual[-120:].mean() >= 0.5 * topic.rate.max()
            early = usual[: max(len(usual) // 3, 1)].mean() > 0.3 * usual.mean()
            if (
                topic.number not in self.used
                and usual.sum() / topic.weight >= _SEEN
                and steady
                and early
                and busy
                and fits(topic)
            ):
                self.used.add(topic.number)
                return topic, float(start), float(end)
        return None

    def plant(self, kinds: Sequence[str], start: float, end: float, text: str, **about: str) -> None:
        at = self.world.at
        self.planted.append(Planted(kinds[0], tuple(kinds), at(start), at(end), about, text))


def plant(world: World, most: int = 28) -> Stage:
    """Plant incidents of all kinds, in an order of the seed's; kinds without a fitting topic are left out."""
    random = np.random.default_rng([world.seed, 301])
    stage = Stage(world, random)
    rows = [make for make, count in _KINDS for _ in range(count)]
    # Wide ones first: they need room.
    order = sorted(random.permutation(len(rows)), key=lambda place: rows[place] not in _WIDE)
    for place in order:
        if len(stage.planted) < most:
            rows[place](stage)
    stage.planted.sort(key=lambda each: each.start)
    _harmless(stage)
    return stage


def _harmless(stage: Stage) -> None:
    """Plant harmless changes: a replica that joins, one that is drained, producers that are deployed anew."""
    world, random = stage.world, stage.random
    stage.scenario.joining = Span(len(world.replicas) - 1, 0, 0)
    if world.seed % 2:
        start, _ = stage.span(5, 6, wide=True)
        stage.scenario.joining = Span(len(world.replicas) - 1, start, start)
    start, _ = stage.span(5, 6, wide=True)
    stage.scenario.drained = Span(0, start, start)
    for topic in [topic for topic in world.topics if topic.number not in stage.used][:2]:
        start, _ = stage.span(5, 6)
        _deploy(world, random, topic, topic.producers[0], int(start), None)


def _deploy(world: World, random: np.random.Generator, topic: Topic, old: int, minute: int, version: str | None) -> int:
    """Replace a producer by a new client; return its number."""
    former = world.clients[old]
    new = worlds.client(world, random, topic.tenant, "p", former.protocol)
    client = world.clients[new]
    world.clients[new] = worlds.Client(
        new, client.id, client.address, former.protocol, former.language, version or former.version, former.replica
    )
    share = topic.share[topic.producers.index(old)]
    after = np.where(np.arange(world.minutes) >= minute, share, 0.0)
    share -= after
    topic.share = np.vstack([topic.share, after])
    topic.producers.append(new)
    return new


def _fault(
    stage: Stage,
    start: float,
    end: float,
    amount: Callable[[Array], Array],
    codes: tuple[int, int] | None,
    **where: object,
) -> None:
    accepted = {name: value if isinstance(value, tuple) else (value,) for name, value in where.items()}
    stage.scenario.faults.append(Fault(start, end, accepted, amount, codes))


def _broker_fails(stage: Stage) -> None:
    broker = int(stage.random.integers(0, len(stage.world.brokers)))
    start, end = stage.span(12, 70, wide=True)
    _fault(stage, start, end, step(float(stage.random.uniform(0.4, 1.0))), (14, 50002), broker=broker)
    name = stage.world.brokers[broker]
    stage.plant(["broker_fault", "error_burst"], start, end, f"requests to broker {name} fail", broker=name)


def _broker_slow(stage: Stage) -> None:
    broker = int(stage.random.integers(0, len(stage.world.brokers)))
    start, end = stage.span(20, 90, wide=True)
    _fault(stage, start, end, step(float(stage.random.uniform(6, 25))), None, broker=broker, op=(0, 2))
    name = stage.world.brokers[broker]
    stage.plant(["latency_spike"], start, end, f"broker {name} is slow", broker=name)


def _latency_grows(stage: Stage) -> None:
    chosen = stage.topic(300, 480)
    if chosen is None:
        return
    topic, start, end = chosen
    _fault(
        stage, start, end, ramp(start, end, 1, float(stage.random.uniform(4, 8))), None, topic=topic.number, op=(0, 2)
    )
    stage.plant(
        ["latency_growth", "latency_spike"], start, end, f"sends to {topic.name} become slower", topic=topic.name
    )


def _errors_grow(stage: Stage) -> None:
    chosen = stage.topic(240, 420, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    _fault(stage, start, end, line(start, end, 0.35), (1, 50001), topic=topic.number, op=0)
    stage.plant(
        ["error_growth", "error_burst"], start, end, f"sends to {topic.name} fail more and more", topic=topic.name
    )


def _traffic_grows(stage: Stage) -> None:
    # It ends above all that the topic usually has.
    chosen = stage.topic(900, 1500, ends_busy=True)
    if chosen is None:
        return
    topic, start, end = chosen
    factor = ramp(start, end, 1, float(stage.random.uniform(4, 6)))
    minutes = np.arange(stage.world.minutes)
    topic.rate = topic.rate * np.where((minutes >= start) & (minutes < end), factor(minutes), 1)
    stage.plant(
        ["traffic_growth", "traffic_surge", "noisy_neighbour"],
        start,
        end,
        f"traffic of {topic.name} grows",
        topic=topic.name,
    )


def _upload(stage: Stage) -> None:
    chosen = stage.topic(35, 110, fits=lambda topic: topic.rate.max() < 12)
    if chosen is None:
        return
    topic, start, end = chosen
    topic.rate[int(start) : int(end)] *= float(stage.random.uniform(12, 30))
    stage.plant(["traffic_surge", "noisy_neighbour"], start, end, f"an upload to {topic.name}", topic=topic.name)


def _producers_pause(stage: Stage) -> None:
    chosen = stage.topic(100, 240)
    if chosen is None:
        return
    topic, start, end = chosen
    topic.rate[int(start) : int(end)] *= 0.02
    stage.plant(["traffic_drop", "silence"], start, end, f"almost nothing is sent to {topic.name}", topic=topic.name)


def _producers_stop(stage: Stage) -> None:
    chosen = stage.topic(150, 600, until_end=True)
    if chosen is None:
        return
    topic, start, end = chosen
    topic.rate[int(start) :] = 0
    stage.plant(["silence", "traffic_drop"], start, end, f"nothing is sent to {topic.name} any more", topic=topic.name)


def _group_of(stage: Stage, topic: Topic) -> Group:
    return topic.groups[int(stage.random.integers(0, len(topic.groups)))]


def _remoting(stage: Stage) -> Callable[[Topic], bool]:
    def consumes(topic: Topic) -> bool:
        return all(stage.world.clients[group.consumers[0]].protocol == "remoting" for group in topic.groups)

    return consumes


def _group_stalls(stage: Stage, *, until_end: bool = False) -> None:
    chosen = stage.topic(40, 150, until_end=until_end, fits=lambda topic: not topic.delay_ms)
    if chosen is None:
        return
    topic, start, end = chosen
    group = _group_of(stage, topic)
    stage.scenario.slowdowns.append(Slowdown(group.number, start, end, 0.0))
    stage.plant(
        ["consumer_stopped"], start, end, f"group {group.name} takes nothing", group=group.name, topic=topic.name
    )


def _group_ends(stage: Stage) -> None:
    _group_stalls(stage, until_end=True)


def _queue_ends(stage: Stage) -> None:
    queues = len(stage.world.brokers) * QUEUES
    fits = _remoting(stage)
    chosen = stage.topic(
        500,
        900,
        until_end=True,
        fits=lambda topic: fits(topic) and topic.rate.mean() > 0.1 * queues and not topic.delay_ms,
    )
    if chosen is None:
        return
    topic, start, end = chosen
    group = _group_of(stage, topic)
    queue = int(stage.random.integers(0, queues))
    stage.scenario.slowdowns.append(Slowdown(group.number, start, end, 0.0, (queue,)))
    broker = stage.world.brokers[queue // QUEUES]
    about = {"group": group.name, "topic": topic.name, "broker": broker, "queue": str(queue % QUEUES)}
    stage.plant(
        ["queue_stopped", "consumer_stopped"],
        start,
        end,
        f"{group.name} does not take queue {broker}/{queue % QUEUES}",
        **about,
    )


def _commits_end(stage: Stage) -> None:
    queues = len(stage.world.brokers) * QUEUES
    fits = _remoting(stage)
    chosen = stage.topic(
        500, 900, fits=lambda topic: fits(topic) and topic.rate.mean() > 0.1 * queues and topic.weight == 1
    )
    if chosen is None:
        return
    topic, start, end = chosen
    group = _group_of(stage, topic)
    queue = int(stage.random.integers(0, queues))
    stage.scenario.commits.append((Span(group.number, start, end), queue))
    broker = stage.world.brokers[queue // QUEUES]
    about = {"group": group.name, "topic": topic.name, "broker": broker, "queue": str(queue % QUEUES)}
    stage.plant(
        ["commits_stopped"], start, end, f"{group.name} does not commit queue {broker}/{queue % QUEUES}", **about
    )


def _consumer_hangs(stage: Stage) -> None:
    fits = _remoting(stage)
    chosen = stage.topic(150, 400, fits=lambda topic: fits(topic) and not topic.delay_ms and len(topic.groups) == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    (group,) = topic.groups
    place = int(stage.random.integers(0, len(group.consumers)))
    every = len(stage.world.brokers) * QUEUES
    queues = tuple(queue for queue in range(every) if queue % len(group.consumers) == place)
    stage.scenario.slowdowns.append(Slowdown(group.number, start, end, 0.0, queues))
    client = stage.world.clients[group.consumers[place]].id
    stage.plant(
        ["client_stopped", "consumer_stopped", "queue_stopped"],
        start,
        end,
        f"consumer {client} hangs",
        client=client,
        group=group.name,
        topic=topic.name,
    )


def _group_lags(stage: Stage) -> None:
    chosen = stage.topic(180, 360, fits=lambda topic: not topic.delay_ms)
    if chosen is None:
        return
    topic, start, end = chosen
    group = _group_of(stage, topic)
    stage.scenario.slowdowns.append(Slowdown(group.number, start, end, float(stage.random.uniform(0.25, 0.5))))
    stage.plant(
        ["consumer_lagging", "consumer_stopped"],
        start,
        end,
        f"group {group.name} is too slow",
        group=group.name,
        topic=topic.name,
    )


def _group_rewinds(stage: Stage) -> None:
    chosen = stage.topic(360, 720, fits=_remoting(stage))
    if chosen is None:
        return
    topic, start, end = chosen
    group = _group_of(stage, topic)
    back = end - start
    stage.scenario.rewinds.append(Span(group.number, end, end, back))
    stage.plant(
        ["consumer_rewinding"],
        end,
        end + back / 6,
        f"group {group.name} consumes {back / 60:.0f} h again",
        group=group.name,
        topic=topic.name,
    )


def _redeliveries(stage: Stage, dead: float = 0.0) -> None:
    # Of remoting's dead letters only brokers know.
    remoting = _remoting(stage)
    chosen = stage.topic(40, 120, fits=lambda topic: topic.weight == 1 and not (dead and remoting(topic)))
    if chosen is None:
        return
    topic, start, end = chosen
    group = _group_of(stage, topic)
    if dead:
        group = next(each for each in topic.groups if stage.world.clients[each.consumers[0]].protocol == "grpc")
    stage.scenario.retries.append(
        Retries(group.number, start, end, float(stage.random.uniform(0.4, 0.8)), dead or 0.02)
    )
    kinds = ["dead_letters", "redelivery_storm"] if dead else ["redelivery_storm"]
    stage.plant(kinds, start, end, f"group {group.name} fails at its messages", group=group.name, topic=topic.name)


def _dead_letters(stage: Stage) -> None:
    _redeliveries(stage, 0.9)


def _rollout(stage: Stage, *, slow: bool = False) -> None:
    chosen = stage.topic(600, 1200, until_end=True, fits=lambda topic: topic.rate.mean() > 1 and topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    version = "V5_9_9" if slow else "5.9.0"
    former = list(topic.producers)
    olds = [number for number in former if stage.world.clients[number].protocol == ("remoting" if slow else "grpc")]
    olds = olds or former[:1]
    rolled = olds[: max(len(former) // 2, 1)]
    news = tuple(_deploy(stage.world, stage.random, topic, old, int(start), version) for old in rolled)
    if slow:
        _fault(stage, start, end, step(float(stage.random.uniform(3, 5))), None, client=news, op=0)
    else:
        _fault(stage, start, end, step(float(stage.random.uniform(0.06, 0.12))), (1, 50001), client=news, op=0)
    language = stage.world.clients[news[0]].language
    stage.plant(["bad_rollout"], start, end, f"{language} {version} {'is slow' if slow else 'fails'}", version=version)


def _slow_rollout(stage: Stage) -> None:
    _rollout(stage, slow=True)


def _replica_bad(stage: Stage) -> None:
    replica = int(stage.random.integers(0, len(stage.world.replicas) - 1))
    start, end = stage.span(60, 200, wide=True)
    if stage.random.random() < 0.5:
        _fault(stage, start, end, step(0.12), (1, 50400), replica=replica)
    else:
        _fault(stage, start, end, step(8.0), None, replica=replica, op=(0, 2))
    name = stage.world.replicas[replica]
    stage.plant(
        ["replica_fault", "latency_spike", "error_burst"],
        start,
        end,
        f"replica {name} has a wrong configuration",
        replica=name,
    )


def _clock_wrong(stage: Stage) -> None:
    chosen = stage.topic(240, 900, fits=lambda topic: topic.delay_ms > 0)
    if chosen is None:
        return
    topic, start, end = chosen
    client = stage.world.clients[topic.producers[0]]
    wrong = float(stage.random.choice([-2 * 3_600_000, 5 * 3_600_000, 30 * 86_400_000]))
    stage.scenario.clocks.append(Span(client.number, start, end, wrong))
    stage.plant(
        ["client_clock"], start, end, f"the clock of {client.id} is {wrong / 3_600_000:+.0f} h wrong", client=client.id
    )


def _credentials(stage: Stage) -> None:
    chosen = stage.topic(90, 420, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    client = stage.world.clients[topic.producers[-1]]
    _fault(stage, start, end, step(1.0), (16, 40100), client=client.number, op=0)
    stage.plant(["credentials"], start, end, f"the credentials of {client.id} have expired", client=client.id)


def _missing_topic(stage: Stage) -> None:
    chosen = stage.topic(50, 200, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    _fault(stage, start, end, step(1.0), (17, 40402), topic=topic.number, op=0)
    stage.plant(["missing_topic", "error_burst"], start, end, f"topic {topic.name} is gone", topic=topic.name)


def _quota(stage: Stage) -> None:
    tenant = int(stage.random.integers(0, len(stage.world.tenants)))
    start, end = stage.span(60, 180, wide=True)
    theirs = tuple(topic.number for topic in stage.world.topics if topic.tenant == tenant)
    _fault(stage, start, end, step(0.3), (215, 42900), topic=theirs, op=0)
    name = stage.world.tenants[tenant]
    stage.plant(["throttling", "error_burst"], start, end, f"a quota throttles tenant {name}", tenant=name)


def _leaderless(stage: Stage) -> None:
    chosen = stage.topic(90, 300, fits=lambda topic: topic.weight == 1 and topic.rate.mean() > 1)
    if chosen is None:
        return
    topic, start, end = chosen
    broker = int(stage.random.integers(0, len(stage.world.brokers)))
    _fault(stage, start, end, step(0.9), (11, 50002), topic=topic.number, broker=broker, op=0)
    name = stage.world.brokers[broker]
    stage.plant(
        ["error_burst", "broker_fault"],
        start,
        end,
        f"queues of {topic.name} at {name} refuse messages",
        topic=topic.name,
        broker=name,
    )


def _hot_key(stage: Stage) -> None:
    chosen = stage.topic(60, 200, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    stage.scenario.hot.append(Span(topic.number, start, end, 0.75))
    stage.plant(["hot_key", "queue_skew"], start, end, f"one key has most messages of {topic.name}", topic=topic.name)


def _resets(stage: Stage) -> None:
    start, end = stage.span(30, 120, wide=True)
    world = stage.world
    prefix = world.clients[int(stage.random.integers(0, len(world.clients)))].address.rpartition(".")[0]
    theirs = tuple(client.number for client in world.clients if client.address.startswith(prefix + "."))
    stage.scenario.resets.append((Span(0, start, end, 6.0), theirs))
    stage.plant(["connection_storm"], start, end, f"connections from {prefix}.0/24 are reset", address=f"{prefix}.0/24")


def _producer_per_request(stage: Stage) -> None:
    start, end = stage.span(60, 240, wide=True)
    client = stage.world.clients[stage.world.topics[0].producers[0]]
    stage.scenario.churn.append(Span(client.number, start, end, 2.5))
    stage.plant(
        ["connection_churn", "connection_storm"],
        start,
        end,
        f"{client.id} connects for every request",
        client=client.id,
    )


# Kind (source), number of each.
_KINDS: tuple[tuple[Callable[[Stage], None], int], ...] = (
    (_broker_fails, 1),  # 3
    (_broker_slow, 1),  # 2, 3
    (_latency_grows, 2),  # 7
    (_errors_grow, 1),  # 1
    (_traffic_grows, 1),  # 1
    (_upload, 2),  # 6
    (_producers_pause, 1),  # 2
    (_producers_stop, 1),  # 8
    (_group_stalls, 1),  # 12
    (_group_ends, 1),  # 7
    (_queue_ends, 1),  # 5
    (_commits_end, 1),  # 5
    (_consumer_hangs, 1),  # 5
    (_group_lags, 1),  # 7, 12
    (_group_rewinds, 1),  # 2
    (_redeliveries, 1),  # 4
    (_dead_letters, 1),  # 4
    (_rollout, 1),  # 1
    (_slow_rollout, 1),  # 7
    (_replica_bad, 1),  # 3
    (_clock_wrong, 1),  # 9
    (_credentials, 2),  # 10
    (_missing_topic, 1),  # 2
    (_quota, 1),  # 8
    (_leaderless, 1),  # 2
    (_hot_key, 1),  # 11
    (_resets, 1),  # 3
    (_producer_per_request, 1),  # 1
)
_WIDE = (_broker_fails, _broker_slow, _replica_bad, _quota, _resets, _producer_per_request)
