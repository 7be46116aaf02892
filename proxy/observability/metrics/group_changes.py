"""Counts of clients that join and leave consumer groups."""

from collections.abc import Iterator

from proxy.core.client_registry import ConsumerGroupChange
from proxy.core.messaging import Messaging
from proxy.observability.metrics.family import Family, Kind, Samples, by_label

CHANGES = Family(
    "gantry_group_changes", Kind.COUNTER, "Clients that joined or left a consumer group, by change.", ("change",)
)


class GroupChangeCounts:
    """A listener of changes in consumer groups. counts: clients by change."""

    def __init__(self) -> None:
        self.counts = {"joined": 0, "left": 0}

    def count(self, _: Messaging, change: ConsumerGroupChange) -> None:
        """Count a client that has joined or left a group."""
        self.counts["joined" if change.joined else "left"] += 1

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of this module."""
        yield CHANGES, by_label(self.counts)
