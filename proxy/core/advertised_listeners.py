"""The address book: where a client is told to find a broker, that is, where it reaches us."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol_negotiation.advertised_address import Advertise, advertised
from protocol_negotiation.peer import HostPort, Peer
from proxy.core.context import Context
from remoting.codes import BROKER_NAME_VERSION, LanguageCode


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """One listener: its bound port, what it advertises, and the broker it is for (None: all)."""

    port: int
    advertise: Advertise
    broker: str | None
    name: str


class ListenerRoutes:
    """Doors by broker. `own` are the brokers that have a door of their own."""

    def __init__(self, doors: Sequence[AdvertisedListener] = ()) -> None:
        self._doors = {door.name: door for door in doors}
        self.dedicated = {door.broker: door for door in doors if door.broker is not None}
        self._main = next((door for door in doors if door.broker is None), None)

    def address_for(self, context: Context, broker: str) -> str:
        """`host:port` for this client and broker.

        Clients that name the broker of each request come to the common door. The others are told the
        broker's own door, so that what they ask there needs no name.
        """
        peer = context.channel.peer
        door = self._doors.get(peer.listener)
        wanted = None if _names_brokers(context) else self.dedicated.get(broker)
        if wanted is None and door is not None and door.broker is not None:
            wanted = self._main
        if wanted is None or door is None or wanted.name == door.name:
            return str(advertised(peer, door.advertise if door is not None else Advertise()))
        # Another door than the one it came by: same host, that door's port.
        return str(advertised(replace(peer, local=HostPort(peer.local.host, wanted.port)), wanted.advertise))

    def advertised_address(self, peer: Peer) -> HostPort | None:
        """What the door by which this client came advertises; None where that is what the client dialled."""
        door = self._doors.get(peer.listener)
        told = None if door is None else advertised(peer, door.advertise)
        return None if told == peer.local else told


def _names_brokers(context: Context) -> bool:
    command = context.command
    return command.language == LanguageCode.JAVA.name and command.version >= BROKER_NAME_VERSION
