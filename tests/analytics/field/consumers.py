"""Incidents of consumers: groups, queues, commits and single clients that stop, lag, rewind or fail."""

from collections.abc import Callable
from zoneinfo import ZoneInfo

import numpy as np

from tests.analytics.field.scenario import Retries, Slowdown, Span
from tests.analytics.field.stage import Stage
from tests.analytics.field.world import QUEUES, Group, Topic


def group_of(stage: Stage, topic: Topic) -> Group:
    return topic.groups[int(stage.random.integers(0, len(topic.groups)))]


def remoting(stage: Stage) -> Callable[[Topic], bool]:
    def consumes(topic: Topic) -> bool:
        return all(stage.world.clients[group.consumers[0]].protocol == "remoting" for group in topic.groups)

    return consumes


def group_stalls(stage: Stage, *, until_end: bool = False) -> None:
    chosen = stage.topic(40, 150, until_end=until_end, fits=lambda topic: not topic.delay_ms)
    if chosen is None:
        return
    topic, start, end = chosen
    group = group_of(stage, topic)
    stage.scenario.slowdowns.append(Slowdown(group.number, start, end, 0.0))
    stage.plant(
        ["consumer_stopped"], start, end, f"group {group.name} takes nothing", group=group.name, topic=topic.name
    )


def group_ends(stage: Stage) -> None:
    group_stalls(stage, until_end=True)


def works_by_day(stage: Stage, group: Group) -> None:
    """Let a group rest in all nights; no incident."""
    zone = ZoneInfo(stage.world.zone)
    hours = [stage.world.at(minute).astimezone(zone).hour for minute in range(0, stage.world.minutes, 60)]
    resting = np.array([not _MORNING <= hour < _EVENING for hour in hours])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], resting.astype(int), [0]])))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        stage.scenario.slowdowns.append(Slowdown(group.number, first * 60.0, last * 60.0, 0.0))


# Local hours in which it works.
_MORNING, _EVENING = 8, 19


def queue_ends(stage: Stage) -> None:
    queues = len(stage.world.brokers) * QUEUES
    fits = remoting(stage)
    chosen = stage.topic(
        500,
        900,
        until_end=True,
        fits=lambda topic: fits(topic) and topic.rate.mean() > 0.1 * queues and not topic.delay_ms,
    )
    if chosen is None:
        return
    topic, start, end = chosen
    group = group_of(stage, topic)
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


def commits_end(stage: Stage) -> None:
    queues = len(stage.world.brokers) * QUEUES
    fits = remoting(stage)
    chosen = stage.topic(
        500, 900, fits=lambda topic: fits(topic) and topic.rate.mean() > 0.1 * queues and topic.weight == 1
    )
    if chosen is None:
        return
    topic, start, end = chosen
    group = group_of(stage, topic)
    queue = int(stage.random.integers(0, queues))
    stage.scenario.commits.append((Span(group.number, start, end), queue))
    broker = stage.world.brokers[queue // QUEUES]
    about = {"group": group.name, "topic": topic.name, "broker": broker, "queue": str(queue % QUEUES)}
    stage.plant(
        ["commits_stopped"], start, end, f"{group.name} does not commit queue {broker}/{queue % QUEUES}", **about
    )


def consumer_hangs(stage: Stage) -> None:
    fits = remoting(stage)
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


def group_lags(stage: Stage) -> None:
    chosen = stage.topic(180, 360, fits=lambda topic: not topic.delay_ms)
    if chosen is None:
        return
    topic, start, end = chosen
    group = group_of(stage, topic)
    stage.scenario.slowdowns.append(Slowdown(group.number, start, end, float(stage.random.uniform(0.25, 0.5))))
    stage.plant(
        ["consumer_lagging", "consumer_stopped"],
        start,
        end,
        f"group {group.name} is too slow",
        group=group.name,
        topic=topic.name,
    )


def group_rewinds(stage: Stage) -> None:
    chosen = stage.topic(360, 720, fits=remoting(stage))
    if chosen is None:
        return
    topic, start, end = chosen
    group = group_of(stage, topic)
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


def redeliveries(stage: Stage, dead: float = 0.0) -> None:
    # Only brokers know of remoting's dead letters.
    by_remoting = remoting(stage)
    chosen = stage.topic(40, 120, fits=lambda topic: topic.weight == 1 and not (dead and by_remoting(topic)))
    if chosen is None:
        return
    topic, start, end = chosen
    group = group_of(stage, topic)
    if dead:
        group = next(each for each in topic.groups if stage.world.clients[each.consumers[0]].protocol == "grpc")
    stage.scenario.retries.append(
        Retries(group.number, start, end, float(stage.random.uniform(0.4, 0.8)), dead or 0.02)
    )
    kinds = ["dead_letters", "redelivery_storm"] if dead else ["redelivery_storm"]
    stage.plant(kinds, start, end, f"group {group.name} fails at its messages", group=group.name, topic=topic.name)


def dead_letters(stage: Stage) -> None:
    redeliveries(stage, 0.9)
