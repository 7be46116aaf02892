"""Incidents of versions, replicas, clients, credentials, topics, quotas, keys and connections."""

from dataclasses import replace

from tests.analytics.field.scenario import Span, step
from tests.analytics.field.stage import Stage, deploy, fault


def rollout(stage: Stage, *, slow: bool = False) -> None:
    chosen = stage.topic(600, 1200, until_end=True, fits=lambda topic: topic.rate.mean() > 1 and topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    version = "V5_9_9" if slow else "5.9.0"
    former = list(topic.producers)
    olds = [number for number in former if stage.world.clients[number].protocol == ("remoting" if slow else "grpc")]
    olds = olds or former[:1]
    rolled = olds[: max(len(former) // 2, 1)]
    news = tuple(deploy(stage.world, stage.random, topic, old, int(start), version) for old in rolled)
    if slow:
        fault(stage, start, end, step(float(stage.random.uniform(3, 5))), None, client=news, op=0)
    else:
        fault(stage, start, end, step(float(stage.random.uniform(0.06, 0.12))), (1, 50001), client=news, op=0)
    language = stage.world.clients[news[0]].language
    stage.plant(["bad_rollout"], start, end, f"{language} {version} {'is slow' if slow else 'fails'}", version=version)


def slow_rollout(stage: Stage) -> None:
    rollout(stage, slow=True)


def replica_bad(stage: Stage) -> None:
    replica = int(stage.random.integers(0, len(stage.world.replicas) - 1))
    start, end = stage.span(60, 200, wide=True)
    if stage.random.random() < 0.5:
        fault(stage, start, end, step(0.12), (1, 50400), replica=replica)
    else:
        fault(stage, start, end, step(8.0), None, replica=replica, op=(0, 2))
    name = stage.world.replicas[replica]
    stage.plant(
        ["replica_fault", "latency_spike", "error_burst"],
        start,
        end,
        f"replica {name} has a wrong configuration",
        replica=name,
    )


def clock_wrong(stage: Stage) -> None:
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


def credentials(stage: Stage) -> None:
    chosen = stage.topic(90, 420, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    client = stage.world.clients[topic.producers[-1]]
    fault(stage, start, end, step(1.0), (16, 40100), client=client.number, op=0)
    stage.plant(["credentials"], start, end, f"the credentials of {client.id} have expired", client=client.id)


def missing_topic(stage: Stage) -> None:
    chosen = stage.topic(50, 200, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    fault(stage, start, end, step(1.0), (17, 40402), topic=topic.number, op=0)
    stage.plant(["missing_topic", "error_burst"], start, end, f"topic {topic.name} is gone", topic=topic.name)


def quota(stage: Stage) -> None:
    tenant = int(stage.random.integers(0, len(stage.world.tenants)))
    start, end = stage.span(60, 180, wide=True)
    theirs = tuple(topic.number for topic in stage.world.topics if topic.tenant == tenant)
    fault(stage, start, end, step(0.3), (215, 42900), topic=theirs, op=0)
    name = stage.world.tenants[tenant]
    stage.plant(["throttling", "error_burst"], start, end, f"a quota throttles tenant {name}", tenant=name)


def leaderless(stage: Stage) -> None:
    chosen = stage.topic(90, 300, fits=lambda topic: topic.weight == 1 and topic.rate.mean() > 1)
    if chosen is None:
        return
    topic, start, end = chosen
    broker = int(stage.random.integers(0, len(stage.world.brokers)))
    fault(stage, start, end, step(0.9), (11, 50002), topic=topic.number, broker=broker, op=0)
    name = stage.world.brokers[broker]
    stage.plant(
        ["error_burst", "broker_fault"],
        start,
        end,
        f"queues of {topic.name} at {name} refuse messages",
        topic=topic.name,
        broker=name,
    )


def hot_key(stage: Stage) -> None:
    chosen = stage.topic(60, 200, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    stage.scenario.hot.append(Span(topic.number, start, end, 0.75))
    stage.plant(["hot_key", "queue_skew"], start, end, f"one key has most messages of {topic.name}", topic=topic.name)


def resets(stage: Stage) -> None:
    start, end = stage.span(30, 120, wide=True)
    world = stage.world
    prefix = world.clients[int(stage.random.integers(0, len(world.clients)))].address.rpartition(".")[0]
    theirs = tuple(client.number for client in world.clients if client.address.startswith(prefix + "."))
    stage.scenario.resets.append((Span(0, start, end, 6.0), theirs))
    stage.plant(["connection_storm"], start, end, f"connections from {prefix}.0/24 are reset", address=f"{prefix}.0/24")


def producer_per_request(stage: Stage) -> None:
    start, end = stage.span(60, 240, wide=True)
    clients = stage.world.clients
    client = clients[stage.world.topics[0].producers[0]]
    if stage.world.seed % 2:
        # It is behind the same address as others of its network.
        network, _, _ = client.address.rpartition(".")
        clients[:] = [
            replace(each, address=client.address) if each.address.startswith(f"{network}.") else each
            for each in clients
        ]
    stage.scenario.churn.append(Span(client.number, start, end, 2.5))
    stage.plant(
        ["connection_churn", "connection_storm"],
        start,
        end,
        f"{client.id} connects for every request",
        client=client.id,
    )
