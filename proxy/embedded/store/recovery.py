"""What a start has to do: go through the log from the last checkpoint on.

What is no frame is one of two things. Where a mark after it says that the log was durable beyond it, the disk has lost
something that was written: a hole, which is reported and passed over. Otherwise it is the end of what was being
written when the process or the machine stopped, of which nobody was told that it was durable: everything from there on
is removed, because what comes later may build on it.
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
    """Brings a state up to the log's end. `holes` are what the disk has lost."""

    log: Log
    state: State
    damage: Damage
    holes: list[Hole] = field(default_factory=list)
    _durable: int = 0
    _looked_ahead: bool = False

    def run(self, position: int, pause: Callable[[int], None]) -> None:
        """Go through the log from a position on; `pause` is called between what belongs together. Raises OSError."""
        unit: list[Frame] = []
        start = position
        for found in self.log.scan(position):
            if not unit:
                start = found.position
            if isinstance(found, Hole):
                if not self._was_durable(found.position):
                    self._cut(start)
                    unit.clear()
                    break
                self._report(found)
                continue
            unit.append(found)
            if not found.more:
                self._apply(unit)
                pause(found.end)
        if unit and self._was_durable(start):
            # Its last part is in a hole: that is no reason to drop what is left of it.
            self._apply(unit)
        elif unit:
            self._cut(start)
        for hole in self.holes:
            self.state.lose(hole.position, hole.end - hole.position)

    def _was_durable(self, position: int) -> bool:
        if position >= self._durable and not self._looked_ahead:
            marks = (found for found in self.log.scan(position) if isinstance(found, Frame) and found.kind == Kind.MARK)
            self._durable = max((frame.marked(found.payload) for found in marks), default=self._durable)
            self._looked_ahead = True
        return position < self._durable

    def _cut(self, position: int) -> None:
        _log.warning(
            "the log ends with %d bytes that were not written to their end; they are removed", self.log.end - position
        )
        self.log.cut(position)

    def _report(self, hole: Hole) -> None:
        text = f"the log is damaged from {hole.position} to {hole.end}; what was written there is lost"
        self.damage.report(hole, text)
        self.holes.append(hole)

    def _apply(self, unit: list[Frame]) -> None:
        for each in unit:
            try:
                apply(each, self.state)
            except (BodyError, Corrupt) as error:
                # Its CRC is right, so it was written so; later versions may know what to do with it.
                _log.error("the log has something at %d that cannot be read: %s", each.position, error)
        unit.clear()


def apply(found: Frame, state: State) -> None:
    """Do what a frame says. Raises BodyError, Corrupt."""
    if found.kind == Kind.MESSAGE:
        state.add(decode_message(found.payload), frame.HEAD.size + len(found.payload))
    elif found.kind in (Kind.PUT, Kind.DELETE):
        table, key, value = frame.change(found.payload)
        state.change(state.table(table), key, value if found.kind == Kind.PUT else None, found.position)
    elif found.kind == Kind.DROP_TOPIC:
        state.drop(found.payload.decode(), found.position)
