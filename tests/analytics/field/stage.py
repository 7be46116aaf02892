"""The stage: a world in which incidents are being planted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.analytics.field import world as worlds
from tests.analytics.field.scenario import Fault, Scenario
from tests.analytics.field.truth import Planted
from tests.analytics.field.world import Array, Topic, World

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


def deploy(world: World, random: np.random.Generator, topic: Topic, old: int, minute: int, version: str | None) -> int:
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


def fault(
    stage: Stage,
    start: float,
    end: float,
    amount: Callable[[Array], Array],
    codes: tuple[int, int] | None,
    **where: object,
) -> None:
    accepted = {name: value if isinstance(value, tuple) else (value,) for name, value in where.items()}
    stage.scenario.faults.append(Fault(start, end, accepted, amount, codes))
