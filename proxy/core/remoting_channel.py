"""The channel of a remoting client."""

from collections.abc import Callable

from protocol_negotiation.fair_turns import FairTurns
from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol, Identity, Session
from proxy.core.context import REQUEST_MEMORY
from proxy.core.principal import UNAUTHENTICATED
from remoting.codes import version_text
from remoting.compilation import mypyc_attr
from remoting.connection import Handler, RemotingConnection
from remoting.errors import RemotingError
from remoting.flow_control import Limits
from remoting.timeout_wheel import TimeoutWheel

# Bytes of memory that an expected reply takes.
_EXPECTED_MEMORY = 512


@mypyc_attr(allow_interpreted_subclasses=True)
class RemotingChannel(RemotingConnection):
    """A client's remoting connection with the core's session."""

    __slots__ = (
        "ended_polls",
        "leave_cause",
        "observed",
        "on_protocol_error",
        "peer",
        "principal",
        "producers_represented",
        "protocol",
        "representative",
        "session",
        "signs",
    )

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[[RemotingConnection], None],
        peer: Peer,
        limits: Limits,
        turns: FairTurns | None = None,
    ) -> None:
        super().__init__(wheel, handler, on_close, peer, limits=limits, turns=turns)
        self.peer = peer
        self.protocol: ChannelProtocol = "remoting"
        self.observed = True
        # Answered early, because the connection had stayed at its limit of in-flight requests.
        self.ended_polls = 0
        self.producers_represented = False
        self.representative = False
        self.leave_cause = "unregistered"
        self.signs = True
        self.session = Session(str(peer.address))
        self.principal = UNAUTHENTICATED
        # Called with the peer, the reason and the bytes of a frame that cannot be decoded.
        self.on_protocol_error: Callable[[Peer, str, bytes], None] | None = None

    def on_decode_error(self, error: RemotingError, data: bytes) -> None:
        if self.on_protocol_error is not None:
            self.on_protocol_error(self.peer, str(error), data)

    @property
    def supports_go_away(self) -> bool:
        """Whether the client handles the response code GO_AWAY if its version is recent enough."""
        return True

    @property
    def held_request_bytes(self) -> int:
        """The memory of requests in flight, of the last heartbeat and of expected replies, in bytes."""
        heartbeat = self.session.membership.heartbeat
        known = 0 if heartbeat is None else heartbeat.memory
        expected = len(self.session.asked) * _EXPECTED_MEMORY
        return self.in_flight_bytes + self.in_flight * REQUEST_MEMORY + known + expected

    @property
    def held_response_bytes(self) -> int:
        """The bytes of responses that the client has not read."""
        return self.unread_bytes

    @property
    def identity(self) -> Identity:
        session = self.session
        version = version_text(session.version) if session.version else None
        return Identity(session.client_id, session.language or None, version)


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerChannel(RemotingChannel):
    """A client that is connected to the embedded broker itself, such as another replica, which has no use for GO_AWAY.

    Its connection may serve several clients, as a broker's connections do.
    """

    __slots__ = ()

    @property
    def supports_go_away(self) -> bool:
        return False
