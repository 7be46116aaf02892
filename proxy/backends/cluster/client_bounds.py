"""Bounds of one client's use of a cluster: requests in flight, polls at a broker, and topics and groups it creates."""

from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.creation_quota import CreationQuota
from proxy.core.messaging import Messaging
from proxy.core.poll_turns import BrokerPollTurns
from proxy.core.upstream_shares import UpstreamShares


def bound_clients(core: Messaging, backend: ClusterBackend) -> None:
    """Let the core keep the bounds that its settings name."""
    limits, cluster = core.settings.limits, core.settings.cluster
    if limits.broker_window:
        core.shares = UpstreamShares(limits.broker_window)
    if limits.broker_polls:
        core.poll_turns = BrokerPollTurns(
            limits.broker_polls, cluster.connections_per_broker, backend.has_broker, backend.received_bytes
        )
    core.creations = CreationQuota(
        lambda: backend, cluster.creations_per_client, cluster.creations_per_address, cluster.creations_per_day
    )
