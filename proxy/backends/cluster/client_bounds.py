"""Bounds of one client's use of a cluster: its requests in flight at a broker, and the topics and groups it creates."""

from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.creation_quota import CreationQuota
from proxy.core.messaging import Messaging
from proxy.core.upstream_shares import UpstreamShares


def bound_clients(core: Messaging, backend: ClusterBackend) -> None:
    """Let the core keep the bounds that its settings name."""
    if core.settings.limits.broker_window:
        core.shares = UpstreamShares(core.settings.limits.broker_window)
    cluster = core.settings.cluster
    core.creations = CreationQuota(
        lambda: backend, cluster.creations_per_client, cluster.creations_per_address, cluster.creations_per_day
    )
