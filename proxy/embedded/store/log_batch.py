"""Frames that are written to the log together."""

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.embedded.store import frame
from proxy.embedded.store.frame import HEAD, Kind


@dataclass(slots=True)
class LogBatch:
    """The frames of a transaction so far, from `start` of the log on, and their effects on memory.

    offsets: the next queue offset by (topic, queue id).
    """

    start: int
    size: int = 0
    frames: list[tuple[Kind, bytes]] = field(default_factory=list)
    effects: list[Callable[[], object]] = field(default_factory=list)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def add(self, kind: Kind, payload: bytes, effect: Callable[[], None]) -> None:
        """Add a frame; `effect` is applied once the batch is written."""
        self.frames.append((kind, payload))
        self.effects.append(effect)
        self.size += HEAD.size + len(payload)

    def drop_topic(self, topic: str) -> None:
        """Begin the topic's queues at 0 for the messages that follow."""
        self.dropped.add(topic)
        self.offsets = {key: offset for key, offset in self.offsets.items() if key[0] != topic}

    def encoded(self, seed: int) -> bytes:
        """Return the frames; all but the last have the flag MORE."""
        position = self.start
        parts = []
        last = len(self.frames) - 1
        for number, (kind, payload) in enumerate(self.frames):
            part = frame.encode(kind, payload, position, seed, frame.MORE if number < last else 0)
            parts.append(part)
            position += len(part)
        return b"".join(parts)
