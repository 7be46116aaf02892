"""The client side of a connection to a server."""

import logging
from collections.abc import Callable

from remoting.close_cause import CloseCause
from remoting.connection import Handler, RemotingConnection
from remoting.flow_control import Limits
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.cluster")

# Many clients' requests share the connection, so the limits of a single client do not apply.
_LIMITS = Limits(requests=1_000_000, polls=1_000_000, request_bytes=2**40, hard_buffer=2**40)


class Upstream(RemotingConnection):
    """The client side of a connection to a server.

    Replies are read even while requests wait to be written: a broker that cannot write also stops reading, so both
    sides would wait for each other. A connection without received bytes during a request's whole timeout is aborted
    with all of its requests.
    """

    __slots__ = ()

    def __init__(
        self, wheel: TimeoutWheel, handler: Handler, on_close: Callable[[RemotingConnection], None], name: str
    ) -> None:
        super().__init__(wheel, handler, on_close, name=name, limits=_LIMITS)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self.resume_sources()

    def on_request_timeout(self, timeout: float) -> None:
        if self.loop.time() - self.read_at >= timeout and not self.closed:
            _log.warning("closing the connection to %s: no bytes received for %.0f s", self.name, timeout)
            self.abort(CloseCause.UNRESPONSIVE)
