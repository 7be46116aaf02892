"""How connections to brokers and name servers are, told from their links."""

from collections.abc import Iterable
from typing import Literal

from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.server_connection import ServerConnection
from remoting.routes import Replicas

# connected: a connection is open; unreachable: the last try to connect failed; idle: nobody has tried lately;
# in-process: there is nothing to connect to.
State = Literal["connected", "unreachable", "idle", "in-process"]


def state(links: Iterable[ServerConnection]) -> State:
    """What all links to one address say of it."""
    links = list(links)
    if any(link.connection is not None for link in links):
        return "connected"
    return "unreachable" if any(link.failed_at is not None for link in links) else "idle"


def pending(links: Iterable[ServerConnection]) -> int:
    """Requests that have not been answered."""
    return sum(link.connection.pending for link in links if link.connection is not None)


def reachable(backend: ClusterBackend, replicas: Replicas) -> bool:
    """Whether some process of a broker is not known to be unreachable."""
    by_address: dict[str, list[ServerConnection]] = {address: [] for address in replicas.addresses.values()}
    for link in backend.server_connections:
        if link.address in by_address:
            by_address[link.address].append(link)
    return any(state(links) != "unreachable" for links in by_address.values())
