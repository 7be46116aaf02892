"""Metrics of the process's memory and of the actions against overload."""

from collections.abc import Iterator

from proxy.core.messaging import Messaging
from proxy.observability.metrics.family import Family, Kind, Merge, Samples, by_label
from proxy.overload.monitor import Overload

LEVEL = Family(
    "gantry_overload_level",
    Kind.GAUGE,
    "Level of overload by memory: 0 normal, 1 soft (reads pause), 2 hard (load is shed).",
    (),
    Merge.MAX,
)
MEMORY = Family("gantry_memory_bytes", Kind.GAUGE, "Resident memory, compared with `limits.memory`.")
LIMIT = Family("gantry_memory_limit_bytes", Kind.GAUGE, "The limit of the memory, by `limits.memory`.")
HELD = Family(
    "gantry_held_bytes",
    Kind.GAUGE,
    "Bytes held for clients: requests that have not arrived in full (unfinished), requests in flight (requests), "
    "responses that clients have not read (responses).",
    ("kind",),
)
ACTIONS = Family(
    "gantry_overload_actions",
    Kind.COUNTER,
    "Actions against overload: connections not read (pause) or closed (close), requests refused, long polls ended, and "
    "freed memory returned to the system (trim).",
    ("action",),
)


def read(overload: Overload, core: Messaging) -> Iterator[tuple[Family, Samples]]:
    """Yield the families of this module."""
    yield LEVEL, {(): int(overload.level)}
    yield MEMORY, {(): overload.memory}
    yield LIMIT, {(): overload.ceiling.memory}
    yield (
        HELD,
        {
            ("unfinished",): overload.watch.unfinished,
            ("requests",): core.budget.used,
            ("responses",): overload.unread_bytes(),
        },
    )
    yield ACTIONS, by_label(overload.counts)
