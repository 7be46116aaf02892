"""One source address's share of the waiting polls, locks and pops that the embedded broker keeps."""

from protocol_negotiation.address_limit import source_of
from proxy.core.channel import Channel

# The key of a source address.
Source = str | int | None

# Places of one source as long as there is any place.
_FEW = 16


def source_of_client(channel: Channel | None) -> Source:
    """Return the source address of a client; None for this process itself and for Unix sockets."""
    return None if channel is None else source_of(channel.peer.address)


def has_place(own: int, taken: int, maximum: int) -> bool:
    """Return whether a source may have another of `maximum` places, `taken` of which are not free, `own` by itself.

    It may have twice as many as are still free, so that it never takes all places: the dynamic threshold of Choudhury
    and Hahne (Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998).
    """
    free = maximum - taken
    return free > 0 and own < max(_FEW, 2 * free)
