"""The state of connections to brokers and name servers."""

from collections.abc import Iterable
from typing import Literal

from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.server_connection import ServerConnection
from remoting.routes import Replicas

# connected: a connection is open; unreachable: none is open, and the last attempt failed; idle: none is open, without a
# failed attempt; in-process: an embedded broker needs no connection.
State = Literal["connected", "unreachable", "idle", "in-process"]


def state(links: Iterable[ServerConnection]) -> State:
    """Return the state of an address from all links to it."""
    links = list(links)
    if any(link.connection is not None for link in links):
        return "connected"
    return "unreachable" if any(link.failed_at is not None for link in links) else "idle"


def pending(links: Iterable[ServerConnection]) -> int:
    """Return the number of requests without a response."""
    return sum(link.connection.pending for link in links if link.connection is not None)


def reachable(backend: ClusterBackend, replicas: Replicas) -> bool:
    """Return whether at least one process of a broker is not known to be unreachable."""
    by_address: dict[str, list[ServerConnection]] = {address: [] for address in replicas.addresses.values()}
    for link in backend.server_connections:
        if link.address in by_address:
            by_address[link.address].append(link)
    return any(state(links) != "unreachable" for links in by_address.values())
