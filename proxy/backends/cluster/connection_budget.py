"""Bound on the connections to brokers that carry memberships; one source address may have half of them.

Each member of a group needs a connection of its own, so clients choose their number. A connection is counted for the
address whose client was the first to need it.
"""

from collections.abc import Iterable

from protocol_negotiation.address_limit import source_of
from protocol_negotiation.peer import HostPort
from remoting.counts import count_down
from remoting.errors import Overloaded

_Source = str | int | None


class ConnectionBudget:
    """Counts connections by number and broker address. limit: the most of them. refused: reservations over it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.refused = 0
        self._count = 0
        self._sources: dict[int, dict[str, _Source]] = {}
        self._counts: dict[_Source, int] = {}

    def reserve(self, number: int, addresses: Iterable[str], client: HostPort) -> None:
        """Count the connections of this number to brokers' addresses, unless they are counted already.

        client: address of the client that needs them. Raises Overloaded, and counts none, if they are too many.
        """
        present = self._sources.get(number, {})
        added = {address for address in addresses if address not in present}
        source = source_of(client)
        share = self._counts.get(source, 0)
        if self._count + len(added) > self.limit:
            self._refuse(f"{self._count} in all")
        if source is not None and share + len(added) > max(self.limit // 2, 1):
            self._refuse(f"{share} for one address")
        if added:
            self._sources.setdefault(number, {}).update(dict.fromkeys(added, source))
            self._counts[source] = share + len(added)
            self._count += len(added)

    def release(self, number: int, addresses: Iterable[str]) -> None:
        """Count the connections of this number to brokers' addresses as closed."""
        sources = self._sources.get(number, {})
        for address in addresses:
            if address in sources:
                self._release(sources.pop(address))
        if not sources:
            self._sources.pop(number, None)

    def _release(self, source: _Source) -> None:
        self._count -= 1
        count_down(self._counts, source)

    def __len__(self) -> int:
        return self._count

    def _refuse(self, used: str) -> None:
        self.refused += 1
        raise Overloaded(
            f"too many connections to brokers for memberships: {used}, and further ones are over the maximum"
            " (cluster.membership_connections); retry later"
        )
