"""The client side of a connection to a server."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from proxy.backends.cluster.server_turns import ServerTurns
from remoting.close_cause import CloseCause
from remoting.connection import Handler, RemotingConnection
from remoting.errors import RemotingError
from remoting.flow_control import SHARED_LIMITS
from remoting.frame import Frame
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.cluster")

# Frames of one read that are handled without a look at the time, and between two looks at it.
_AT_ONCE: Final = 16
# Responses to no request, without another one between them, after which the connection is closed: perhaps it delivers
# the responses of another one. A broker's own mistakes are fewer.
MAX_UNKNOWN: Final = 10_000


class Upstream(RemotingConnection):
    """The client side of a connection to a server.

    Replies are read even while requests wait to be written: a broker that cannot write also stops reading, so both
    sides would wait for each other. A connection without received bytes during a request's whole timeout is aborted
    with all of its requests. Many frames at once are handled in turns, also those that came before the end.
    """

    __slots__ = ("_ending", "_known_responses", "_server_turns", "_unknown_in_a_row")

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[[RemotingConnection], None],
        name: str,
        server_turns: ServerTurns,
    ) -> None:
        super().__init__(wheel, handler, on_close, name=name, limits=SHARED_LIMITS)
        self._server_turns = server_turns
        # Whether the frames before an invalid one are being handled.
        self._ending = False
        # The number of responses to requests, as of the last one to none.
        self._known_responses = self._unknown_in_a_row = 0

    def _process(self, frames: list[Frame]) -> None:
        if len(frames) <= _AT_ONCE:
            super()._process(frames)
            return
        until = self._server_turns.until()
        for number, frame in enumerate(frames, 1):
            self._receive(frame)
            if self.cause is not None or number == len(frames):
                return
            late = number % _AT_ONCE == 0 and monotonic() >= until
            if late or self.full_since is not None or self._ready:
                waiting = frames[number:]
                self._keep(waiting, sum(len(header) + len(body) for _, header, body in waiting))
                if self._can_proceed():
                    self._on_capacity()
                return

    def _can_proceed(self) -> bool:
        # Also while it is congested, as in `pause_writing`.
        return not (self.full_since is not None or self._ready or self.cause or self.closed)

    def _on_capacity(self) -> None:
        if self._backlog and not self._waiting:
            self._waiting = True
            self._server_turns.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._end_backlog()
        super().connection_lost(error)

    def _protocol_error(self, error: RemotingError, data: bytes) -> None:
        # A frame of the backlog may be invalid, too.
        if not self._ending:
            self._ending = True
            self._end_backlog()
        if self.cause is None:
            super()._protocol_error(error, data)

    def _end_backlog(self) -> None:
        """Handle the frames that came before the end: they answer requests that the server has performed."""
        while self._backlog and self.cause is None and not self.closed:
            self._receive(self._backlog.popleft())

    def on_unknown_response(self) -> None:
        known = self.responses - self.unknown_responses
        self._unknown_in_a_row = self._unknown_in_a_row + 1 if known == self._known_responses else 1
        self._known_responses = known
        if self._unknown_in_a_row >= MAX_UNKNOWN and self.cause is None:
            _log.warning("closing the connection to %s: %d responses to no request", self.name, MAX_UNKNOWN)
            self.abort(CloseCause.PROTOCOL)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self.resume_sources()

    def on_request_timeout(self, timeout: float) -> None:
        if self.loop.time() - self.read_at >= timeout and not self.closed:
            _log.warning("closing the connection to %s: no bytes received for %.0f s", self.name, timeout)
            self.abort(CloseCause.UNRESPONSIVE)
