"""The bounds of one client's use of a cluster, by the settings."""

from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.client_bounds import ClientBounds
from proxy.core.creation_quota import CreationQuota
from proxy.core.poll_turns import BrokerPollTurns
from proxy.core.upstream_shares import UpstreamShares
from proxy.settings.model import Settings


def client_bounds(settings: Settings, backend: ClusterBackend) -> ClientBounds:
    """Return the bounds that the settings name."""
    limits, cluster = settings.limits, settings.cluster
    return ClientBounds(
        UpstreamShares(limits.broker_window) if limits.broker_window else None,
        BrokerPollTurns(limits.broker_polls, cluster.connections_per_broker, backend.has_broker, backend.received_bytes)
        if limits.broker_polls
        else None,
        CreationQuota(backend, cluster.creations_per_client, cluster.creations_per_address, cluster.creations_per_day),
    )
