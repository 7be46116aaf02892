"""Incidents of brokers and senders: faults, slowness, growth, uploads, silence."""

import numpy as np

from tests.analytics.field.scenario import line, ramp, step
from tests.analytics.field.stage import Stage, fault


def broker_fails(stage: Stage) -> None:
    broker = int(stage.random.integers(0, len(stage.world.brokers)))
    start, end = stage.span(12, 70, wide=True)
    fault(stage, start, end, step(float(stage.random.uniform(0.4, 1.0))), (14, 50002), broker=broker)
    name = stage.world.brokers[broker]
    stage.plant(["broker_fault", "error_burst"], start, end, f"requests to broker {name} fail", broker=name)


def broker_slow(stage: Stage) -> None:
    broker = int(stage.random.integers(0, len(stage.world.brokers)))
    start, end = stage.span(20, 90, wide=True)
    fault(stage, start, end, step(float(stage.random.uniform(6, 25))), None, broker=broker, op=(0, 2))
    name = stage.world.brokers[broker]
    stage.plant(["latency_spike"], start, end, f"broker {name} is slow", broker=name)


def latency_grows(stage: Stage) -> None:
    chosen = stage.topic(300, 480)
    if chosen is None:
        return
    topic, start, end = chosen
    fault(
        stage, start, end, ramp(start, end, 1, float(stage.random.uniform(4, 8))), None, topic=topic.number, op=(0, 2)
    )
    stage.plant(
        ["latency_growth", "latency_spike"], start, end, f"sends to {topic.name} become slower", topic=topic.name
    )


def errors_grow(stage: Stage) -> None:
    chosen = stage.topic(240, 420, fits=lambda topic: topic.weight == 1)
    if chosen is None:
        return
    topic, start, end = chosen
    fault(stage, start, end, line(start, end, 0.35), (1, 50001), topic=topic.number, op=0)
    stage.plant(
        ["error_growth", "error_burst"], start, end, f"sends to {topic.name} fail more and more", topic=topic.name
    )


def traffic_grows(stage: Stage) -> None:
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


def upload(stage: Stage) -> None:
    chosen = stage.topic(35, 110, fits=lambda topic: topic.rate.max() < 12)
    if chosen is None:
        return
    topic, start, end = chosen
    topic.rate[int(start) : int(end)] *= float(stage.random.uniform(12, 30))
    stage.plant(["traffic_surge", "noisy_neighbour"], start, end, f"an upload to {topic.name}", topic=topic.name)


def producers_pause(stage: Stage) -> None:
    chosen = stage.topic(100, 240)
    if chosen is None:
        return
    topic, start, end = chosen
    topic.rate[int(start) : int(end)] *= 0.02
    stage.plant(["traffic_drop", "silence"], start, end, f"almost nothing is sent to {topic.name}", topic=topic.name)


def producers_stop(stage: Stage) -> None:
    chosen = stage.topic(150, 600, until_end=True)
    if chosen is None:
        return
    topic, start, end = chosen
    topic.rate[int(start) :] = 0
    stage.plant(["silence", "traffic_drop"], start, end, f"nothing is sent to {topic.name} any more", topic=topic.name)
