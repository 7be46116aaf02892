"""What is behind the replica: brokers and name servers, as it sees them."""

from pydantic import Field

from proxy.backends.cluster.backend import ClusterBackend
from proxy.backends.cluster.server_connection import ServerConnection
from proxy.embedded.backend import EmbeddedBackend
from proxy.operations import broker_links
from proxy.operations.broker_links import State
from proxy.operations.replica import Replica
from proxy.operations.values import Answer
from remoting.routes import MASTER_ID, Replicas


class BrokerAddress(Answer):
    """One process of a broker name."""

    id: int = Field(description="0: the master")
    address: str = Field(examples=["192.0.2.20:10911"])
    state: State
    connections: int = Field(description="for requests; memberships have their own")
    pending: int = Field(description="requests that it has not answered")
    bytes_in: int = Field(description="from it, over the open connections")
    bytes_out: int
    congested: bool = Field(description="it does not read what it is sent; clients that send to it are held up")


class Broker(Answer):
    """A broker by name. Latencies are of requests but polls, since the start."""

    name: str = Field(examples=["broker-a"])
    cluster: str = Field(examples=["DefaultCluster"])
    healthy: bool = Field(description="there is a process of it that is not known to be unreachable")
    addresses: list[BrokerAddress]
    answers: int
    average_milliseconds: float | None = Field(description="moving average", examples=[1.4])
    longest_milliseconds: float | None = Field(examples=[210.0])


class NameServer(Answer):
    """A name server."""

    address: str = Field(examples=["192.0.2.10:9876"])
    state: State
    pending: int


def brokers(replica: Replica) -> list[Broker]:
    """All brokers that are known."""
    backend = replica.backend
    if isinstance(backend, EmbeddedBackend):
        return [_embedded(replica, backend)]
    return [_broker(replica, backend, replicas) for _, replicas in sorted(backend.broker_table.items())]


def name_servers(replica: Replica) -> list[NameServer]:
    """All name servers; an embedded broker needs none."""
    if isinstance(replica.backend, EmbeddedBackend):
        return []
    return [
        NameServer(address=link.address, state=broker_links.state((link,)), pending=broker_links.pending((link,)))
        for link in replica.backend.name_servers
    ]


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
        healthy=replica.storage_failure is None,
        addresses=[address],
        **_latency(replica, settings.name),
    )


def _address(number: int, address: str, own: list[ServerConnection]) -> BrokerAddress:
    open_ones = [link.connection for link in own if link.connection is not None]
    return BrokerAddress(
        id=number,
        address=address,
        state=broker_links.state(own),
        connections=len(open_ones),
        pending=broker_links.pending(own),
        bytes_in=sum(connection.received_bytes for connection in open_ones),
        bytes_out=sum(connection.sent_bytes for connection in open_ones),
        congested=any(connection.congested for connection in open_ones),
    )


def _latency(replica: Replica, name: str) -> dict[str, int | float | None]:
    times = replica.metrics.requests.brokers.get(name)
    if times is None or not times.answers:
        return {"answers": 0, "average_milliseconds": None, "longest_milliseconds": None}
    return {
        "answers": times.answers,
        "average_milliseconds": round(times.average * 1000, 3),
        "longest_milliseconds": round(times.longest * 1000, 3),
    }
