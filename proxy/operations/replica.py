"""The interface of a running replica to operations. `proxy.app.App` implements it."""

from collections.abc import Collection
from typing import Protocol

from protocol_negotiation.peer import HostPort
from proxy.auth.authority import Authority
from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.client_registry import ClientRegistry
from proxy.core.connections import ConnectionListener
from proxy.core.messaging import Messaging
from proxy.core.remoting_channel import RemotingChannel
from proxy.embedded.backend import EmbeddedBackend
from proxy.frontends.certificates import Certificates
from proxy.frontends.grpc_frontend import GrpcFrontend
from proxy.frontends.replica_drain import ReplicaDrain
from proxy.observability.metrics import Metrics
from proxy.overload.monitor import Overload
from proxy.settings.model import Settings


class Replica(Protocol):
    """One replica: its parts, its state, and changes at run time."""

    settings: Settings
    core: Messaging
    authority: Authority | None
    overload: Overload
    registry: ClientRegistry
    metrics: Metrics
    grpc: GrpcFrontend
    certificates: Certificates
    drain: ReplicaDrain
    connection_listeners: list[ConnectionListener]
    backend: ClusterBackend | EmbeddedBackend

    @property
    def channels(self) -> Collection[RemotingChannel]:
        """Open remoting connections."""

    @property
    def addresses(self) -> list[HostPort]:
        """Bound addresses of all listeners."""

    @property
    def closed_listeners(self) -> list[str]:
        """Names of listeners that do not accept connections."""

    @property
    def storage_problem(self) -> str | None:
        """Why the embedded broker of this process stores no messages; None if it does, or without one."""

    @property
    def storage_failure(self) -> str | None:
        """Why the embedded broker of this process stores nothing until a restart; None if it does, or without one."""

    def apply(self, settings: Settings) -> None:
        """Apply settings that may change at run time."""

    async def refresh_certificates(self) -> None:
        """Load changed TLS certificate files."""
