"""Incidents of messaging systems as operators reported them, planted into a world.

Sources, cited by number in _KINDS (all public; addresses in docs/analytics.md):
1 PagerDuty, 28 August 2025: a producer for each request, rolled out step by step. 2 Honeycomb, 5 December 2025: queues
without a leader refuse messages. 3 MyQ, 7 January 2026: a node of the messaging service is lost at peak load.
4 RocketMQ fast failure: a consumer that never acknowledges floods its retry topic. 5 apache/rocketmq issues 1190, 2422,
7613: one queue is not consumed, or its offset not committed. 6 A partner's upload of 180,000 claims fills the queue.
7 Consumer lag after a deployment with a slow call in the loop. 8 Google Cloud, 12 June 2025: a quota change rejects
requests. 9 apache/rocketmq-apis issue 83, apache/pulsar pull request 25310: clients with wrong clocks. 10 Credentials
that rotate or expire. 11 Uneven partitions by badly chosen keys. 12 Backlog of an order topic at night.
"""

from collections.abc import Callable

import numpy as np

from tests.analytics.field import consumers, deployments, senders
from tests.analytics.field.scenario import Slowdown, Span
from tests.analytics.field.stage import Stage, deploy
from tests.analytics.field.world import World


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
    """Plant harmless changes: a replica that joins, one that is drained, producers that are deployed anew, a group that
    works by day, and one that is new and begins with the oldest message.
    """
    world, random = stage.world, stage.random
    stage.scenario.joining = Span(len(world.replicas) - 1, 0, 0)
    if world.seed % 2:
        start, _ = stage.span(5, 6, wide=True)
        stage.scenario.joining = Span(len(world.replicas) - 1, start, start)
    start, _ = stage.span(5, 6, wide=True)
    stage.scenario.drained = Span(0, start, start)
    free = [topic for topic in world.topics if topic.number not in stage.used]
    for topic in free[:2]:
        start, _ = stage.span(5, 6)
        deploy(world, random, topic, topic.producers[0], int(start), None)
    undelayed = [topic for topic in free[2:] if not topic.delay_ms]
    undelayed.sort(key=lambda topic: -topic.rate.sum())
    if undelayed:
        consumers.works_by_day(stage, undelayed[0].groups[0])
    if undelayed[1:]:
        start, _ = stage.span(5, 6)
        stage.scenario.slowdowns.append(Slowdown(undelayed[1].groups[0].number, 0.0, start, 0.0))


# Kind (source), number of each.
_KINDS: tuple[tuple[Callable[[Stage], None], int], ...] = (
    (senders.broker_fails, 1),  # 3
    (senders.broker_slow, 1),  # 2, 3
    (senders.latency_grows, 2),  # 7
    (senders.errors_grow, 1),  # 1
    (senders.traffic_grows, 1),  # 1
    (senders.upload, 2),  # 6
    (senders.producers_pause, 1),  # 2
    (senders.producers_stop, 1),  # 8
    (consumers.group_stalls, 1),  # 12
    (consumers.group_ends, 1),  # 7
    (consumers.queue_ends, 1),  # 5
    (consumers.commits_end, 1),  # 5
    (consumers.consumer_hangs, 1),  # 5
    (consumers.group_lags, 1),  # 7, 12
    (consumers.group_rewinds, 1),  # 2
    (consumers.redeliveries, 1),  # 4
    (consumers.dead_letters, 1),  # 4
    (deployments.rollout, 1),  # 1
    (deployments.slow_rollout, 1),  # 7
    (deployments.replica_bad, 1),  # 3
    (deployments.clock_wrong, 1),  # 9
    (deployments.credentials, 2),  # 10
    (deployments.missing_topic, 1),  # 2
    (deployments.quota, 1),  # 8
    (deployments.leaderless, 1),  # 2
    (deployments.hot_key, 1),  # 11
    (deployments.resets, 1),  # 3
    (deployments.producer_per_request, 1),  # 1
)
_WIDE = (
    senders.broker_fails,
    senders.broker_slow,
    deployments.replica_bad,
    deployments.quota,
    deployments.resets,
    deployments.producer_per_request,
)
