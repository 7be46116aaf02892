"""Advertised addresses: where routes send a client for each broker, which is always one of our own listeners."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol_negotiation.advertised_address import Advertise, advertised
from protocol_negotiation.peer import HostPort, Peer
from proxy.core.context import Context
from remoting.codes import BROKER_NAME_VERSION, LanguageCode


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """One listener: its bound port, the address it advertises, and its broker (None: all brokers)."""

    port: int
    advertise: Advertise
    broker: str | None
    name: str


class ListenerRoutes:
    """The listeners by broker. `dedicated` holds the brokers with a listener of their own."""

    def __init__(self, listeners: Sequence[AdvertisedListener] = ()) -> None:
        self._by_name = {listener.name: listener for listener in listeners}
        self.dedicated = {listener.broker: listener for listener in listeners if listener.broker is not None}
        self._shared = next((listener for listener in listeners if listener.broker is None), None)

    def address_for(self, context: Context, broker: str, *, tool: bool = False) -> str:
        """Return `host:port` of the broker for this request's client. tool: for an operator's tool.

        Clients that name a broker in each request use the shared listener. Other clients, and tools, use the broker's
        dedicated listener, so that their requests need no broker name.
        """
        peer = context.channel.peer
        current = self._by_name.get(peer.listener)
        target = None if _names_brokers(context) and not tool else self.dedicated.get(broker)
        if target is None and current is not None and current.broker is not None:
            target = self._shared
        if target is None or current is None or target.name == current.name:
            return str(advertised(peer, current.advertise if current is not None else Advertise()))
        # Another listener than the client's: the same host with that listener's port.
        return str(advertised(replace(peer, local=HostPort(peer.local.host, target.port)), target.advertise))

    def shared(self, context: Context, brokers: Sequence[str]) -> Sequence[str]:
        """Return the brokers whose requests of this request's client come to the shared listener.

        Those that its routes do not give another listener; all if no broker is left.
        """
        if not self.dedicated or _names_brokers(context):
            return brokers
        return [broker for broker in brokers if broker not in self.dedicated] or brokers

    def advertised_address(self, peer: Peer) -> HostPort | None:
        """Return the advertised address of the client's listener; None if it is the one the client connected to."""
        listener = self._by_name.get(peer.listener)
        address = None if listener is None else advertised(peer, listener.advertise)
        return None if address == peer.local else address


def _names_brokers(context: Context) -> bool:
    command = context.command
    return command.language == LanguageCode.JAVA.name and command.version >= BROKER_NAME_VERSION
