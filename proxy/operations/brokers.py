"""Brokers and name servers: connection state and latency."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import Field

from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.embedded.backend import EmbeddedBackend
from proxy.operations import broker_links
from proxy.operations.broker_links import State
from proxy.operations.operation import operation
from proxy.operations.replica import Replica
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries, merge_by_key
from proxy.operations.values import Mergeable, Rules, concatenation, largest, total
from remoting.routes import MASTER_ID, Replicas

# The worst state first: a broker that one worker cannot reach needs attention.
_STATES: tuple[State, ...] = ("unreachable", "connected", "in-process", "idle")


def worst_state(values: list[State]) -> State:
    """Return the worst of the states that workers report."""
    return min(values, key=_STATES.index)


class BrokerAddress(Mergeable):
    """One process of a broker."""

    MERGE_KEY = ("id", "address")
    MERGE_RULES: ClassVar[Rules] = {
        "state": worst_state,
        "connections": total,
        "pending": total,
        "bytes_in": total,
        "bytes_out": total,
        "congested": any,
    }

    id: int = Field(description="0: the master")
    address: str = Field(examples=["192.0.2.20:10911"])
    state: State
    connections: int = Field(description="connections for requests, without those for memberships")
    pending: int = Field(description="requests without a response")
    bytes_in: int = Field(description="bytes received over the open connections")
    bytes_out: int
    congested: bool = Field(description="whether it does not read what it is sent; requests to it are delayed")


def merge_addresses(values: list[list[BrokerAddress]]) -> list[BrokerAddress]:
    """Merge the addresses of a broker."""
    merged = merge_by_key([(0, address) for address in concatenation(values)])
    return sorted(merged, key=lambda address: (address.id, address.address))


class Broker(Mergeable):
    """A broker by name. Latencies are those of all requests but polls, since the start."""

    MERGE_KEY = ("name",)
    MERGE_RULES: ClassVar[Rules] = {
        "healthy": all,
        "addresses": merge_addresses,
        "answers": total,
        "longest_milliseconds": largest,
    }

    name: str = Field(examples=["broker-a"])
    cluster: str = Field(examples=["DefaultCluster"])
    healthy: bool = Field(description="whether at least one process of it is not known to be unreachable")
    addresses: list[BrokerAddress]
    answers: int
    average_milliseconds: float | None = Field(description="moving average", examples=[1.4])
    longest_milliseconds: float | None = Field(examples=[210.0])

    @classmethod
    def merge(cls, items: Sequence[tuple[int, Self]]) -> Self:
        """Merge the fields; the average is weighted by answers."""
        measured = [
            (broker.average_milliseconds, broker.answers)
            for _, broker in items
            if broker.average_milliseconds is not None
        ]
        answers = sum(count for _, count in measured)
        average = round(sum(mean * count for mean, count in measured) / answers, 3) if answers else None
        return super().merge(items).model_copy(update={"average_milliseconds": average})


class NameServer(Mergeable):
    """A name server."""

    MERGE_KEY = ("address",)
    MERGE_RULES: ClassVar[Rules] = {"state": worst_state, "pending": total}

    address: str = Field(examples=["192.0.2.10:9876"])
    state: State
    pending: int


@operation("brokers.list")
async def list_brokers(services: AdminServices, _: None) -> Entries[Broker]:
    """Return all known brokers."""
    return Entries(services.workers.number, brokers(services.replica))


@operation("name_servers.list")
async def list_name_servers(services: AdminServices, _: None) -> Entries[NameServer]:
    """Return all name servers; there are none with an embedded broker."""
    backend = services.replica.backend
    servers = (
        []
        if isinstance(backend, EmbeddedBackend)
        else [
            NameServer(address=link.address, state=broker_links.state((link,)), pending=broker_links.pending((link,)))
            for link in backend.name_servers
        ]
    )
    return Entries(services.workers.number, servers)


def brokers(replica: Replica) -> list[Broker]:
    """Return all known brokers."""
    backend = replica.backend
    if isinstance(backend, EmbeddedBackend):
        return [_embedded(replica, backend)]
    return [_broker(replica, backend, replicas) for _, replicas in sorted(backend.broker_table.items())]


def _broker(replica: Replica, backend: ClusterBackend, replicas: Replicas) -> Broker:
    addresses = [
        _address(number, address, [link for link in backend.server_connections if link.address == address])
        for number, address in sorted(replicas.addresses.items())
    ]
    return Broker(
        name=replicas.name,
        cluster=replicas.cluster,
        healthy=broker_links.reachable(backend, replicas),
        addresses=addresses,
        **_latency(replica, replicas.name),
    )


def _embedded(replica: Replica, backend: EmbeddedBackend) -> Broker:
    settings = backend.broker.settings
    address = BrokerAddress(
        id=MASTER_ID,
        address=settings.address,
        state="in-process",
        connections=0,
        pending=0,
        bytes_in=0,
        bytes_out=0,
        congested=False,
    )
    return Broker(
        name=settings.name,
        cluster=settings.cluster,
        healthy=replica.storage_problem is None,
        addresses=[address],
        **_latency(replica, settings.name),
    )


def _address(number: int, address: str, links: list[ServerConnection]) -> BrokerAddress:
    connections = [link.connection for link in links if link.connection is not None]
    return BrokerAddress(
        id=number,
        address=address,
        state=broker_links.state(links),
        connections=len(connections),
        pending=broker_links.pending(links),
        bytes_in=sum(connection.received_bytes for connection in connections),
        bytes_out=sum(connection.sent_bytes for connection in connections),
        congested=any(connection.congested for connection in connections),
    )


def _latency(replica: Replica, name: str) -> dict[str, Any]:
    times = replica.metrics.requests.brokers.get(name)
    if times is None or not times.answers:
        return {"answers": 0, "average_milliseconds": None, "longest_milliseconds": None}
    return {
        "answers": times.answers,
        "average_milliseconds": round(times.average * 1000, 3),
        "longest_milliseconds": round(times.longest * 1000, 3),
    }
