"""What belongs together in the log."""

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.embedded.store import frame
from proxy.embedded.store.frame import HEAD, Kind


@dataclass(slots=True)
class LogBatch:
    """What a transaction has written so far."""

    start: int
    size: int = 0
    frames: list[tuple[Kind, bytes]] = field(default_factory=list)
    effects: list[Callable[[], None]] = field(default_factory=list)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def add(self, kind: Kind, payload: bytes, effect: Callable[[], None]) -> None:
        self.frames.append((kind, payload))
        self.effects.append(effect)
        self.size += HEAD.size + len(payload)

    def encoded(self, seed: int) -> bytes:
        """Its frames, each but the last with the word that there are more."""
        position = self.start
        parts = []
        last = len(self.frames) - 1
        for number, (kind, payload) in enumerate(self.frames):
            part = frame.encode(kind, payload, position, seed, frame.MORE if number < last else 0)
            parts.append(part)
            position += len(part)
        return b"".join(parts)
