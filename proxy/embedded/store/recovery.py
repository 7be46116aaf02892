"""Recovery: reading of the log from the last checkpoint on, at a start.

Bytes that are not a frame have one of two causes. If a later mark records that the log was durable beyond them, the
disk has lost data: a hole, which is reported and skipped. Otherwise they are an unfinished write of a process or
machine that stopped, which was never reported as durable: everything from there on is removed, because later writes may
depend on it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.embedded.store import frame
from proxy.embedded.store.damage import Damage
from proxy.embedded.store.errors import Corrupt
from proxy.embedded.store.frame import Frame, Hole, Kind
from proxy.embedded.store.log import Log
from proxy.embedded.store.state import State
from remoting.errors import BodyError
from remoting.messages import decode_message

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovery:
    """Brings a state up to the log's end. `holes` are the parts of the log that the disk has lost."""

    log: Log
    state: State
    damage: Damage
    holes: list[Hole] = field(default_factory=list)
    _durable: int = 0
    _marks_read: bool = False

    def run(self, position: int, on_applied: Callable[[int], None]) -> None:
        """Read the log from a position on; `on_applied` is called with the end of each batch applied.

        Raises OSError.
        """
        batch: list[Frame] = []
        start = position
        for frame_or_hole in self.log.scan(position):
            if not batch:
                start = frame_or_hole.position
            if isinstance(frame_or_hole, Hole):
                if not self._was_durable(frame_or_hole.position):
                    self._cut(start)
                    batch.clear()
                    break
                self._report(frame_or_hole)
                continue
            batch.append(frame_or_hole)
            if not frame_or_hole.more:
                self._apply(batch)
                on_applied(frame_or_hole.end)
        if batch and self._was_durable(start):
            # Its last part is in a hole; the rest of it is kept.
            self._apply(batch)
        elif batch:
            self._cut(start)
        for hole in self.holes:
            self.state.lose(hole.position, hole.end - hole.position)

    def _was_durable(self, position: int) -> bool:
        if position >= self._durable and not self._marks_read:
            marks = (mark for mark in self.log.scan(position) if isinstance(mark, Frame) and mark.kind == Kind.MARK)
            self._durable = max((frame.marked_position(mark.payload) for mark in marks), default=self._durable)
            self._marks_read = True
        return position < self._durable

    def _cut(self, position: int) -> None:
        _log.warning("the log ends with %d bytes of an unfinished write, which are removed", self.log.end - position)
        self.log.cut(position)

    def _report(self, hole: Hole) -> None:
        text = f"the log is damaged from {hole.position} to {hole.end}; the data written there are lost"
        self.damage.report(hole, text)
        self.holes.append(hole)

    def _apply(self, batch: list[Frame]) -> None:
        for entry in batch:
            try:
                apply(entry, self.state)
            except (BodyError, Corrupt) as error:
                # Its CRC is correct, so it was written like this; later versions may understand it.
                _log.error("the frame at %d of the log cannot be read: %s", entry.position, error)
        batch.clear()


def apply(entry: Frame, state: State) -> None:
    """Apply a frame to the state. Raises BodyError, Corrupt."""
    if entry.kind == Kind.MESSAGE:
        state.add(decode_message(entry.payload), frame.HEAD.size + len(entry.payload))
    elif entry.kind in (Kind.PUT, Kind.DELETE):
        table, key, value = frame.change(entry.payload)
        state.change(state.table(table), key, value if entry.kind == Kind.PUT else None, entry.position)
    elif entry.kind == Kind.DROP_TOPIC:
        state.drop(entry.payload.decode(), entry.position)
