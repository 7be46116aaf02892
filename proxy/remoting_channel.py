"""A channel that speaks remoting."""

from collections.abc import Callable

from protocol_negotiation.peer import Peer
from proxy.channel import ChannelProtocol, Identity, Session
from remoting.codes import version_text
from remoting.connection import Handler, Limits, RemotingConnection
from remoting.wheel import TimeoutWheel


class RemotingChannel(RemotingConnection):
    """A client's remoting connection, with what the core remembers of it."""

    __slots__ = ("session",)

    protocol: ChannelProtocol = "remoting"
    goes_away = True
    represented = False

    peer: Peer

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[[RemotingConnection], None],
        peer: Peer,
        limits: Limits,
    ) -> None:
        super().__init__(wheel, handler, on_close, peer, limits=limits)
        self.session = Session(str(peer.address))

    @property
    def identity(self) -> Identity:
        session = self.session
        version = version_text(session.version) if session.version else None
        return Identity(session.client_id, session.language or None, version)
