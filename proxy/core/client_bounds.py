"""Bounds of one client's use of a cluster: requests in flight, polls at a broker, and topics and groups it creates."""

from typing import NamedTuple

from proxy.core.creation_quota import CreationQuota
from proxy.core.poll_turns import BrokerPollTurns
from proxy.core.upstream_shares import UpstreamShares


class ClientBounds(NamedTuple):
    """The bounds, each None if there is none.

    shares: divides brokers fairly among the clients, if several clients' requests wait at a broker. poll_turns: the
    same for long polls. creations: bounds the topics and groups that clients' requests create, where the backend does
    not.
    """

    shares: UpstreamShares | None = None
    poll_turns: BrokerPollTurns | None = None
    creations: CreationQuota | None = None
