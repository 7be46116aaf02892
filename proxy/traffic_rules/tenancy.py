"""Tenancy: namespaces and topic aliases of new connections."""

from collections.abc import Sequence

from protocol_negotiation.peer import Peer
from proxy.core.channel import ChannelProtocol
from proxy.traffic_rules.effects import ActiveRule
from proxy.traffic_rules.model import Alias, Namespace
from proxy.traffic_rules.name_mapping import NameMapping
from proxy.traffic_rules.request_attributes import ConnectionAttributes


class ActiveNameRule(ActiveRule[Namespace | Alias]):
    """A namespace or alias in force."""


def name_mapping(
    rules: Sequence[ActiveNameRule], peer: Peer, protocol: ChannelProtocol, user: str | None
) -> NameMapping | None:
    """Return the name mapping of a connection's clients; None if they use the brokers' names.

    user: the authenticated user; None if none is known.

    The first matching namespace applies, and every matching alias whose names are not mapped yet.
    """
    connection = ConnectionAttributes(peer, protocol, user)
    namespace = ""
    topics: dict[str, str] = {}
    for active in rules:
        if not active.matches(connection):
            continue
        active.counts.matched += 1
        rule = active.rule
        if isinstance(rule, Namespace):
            if not namespace and active.hit():
                namespace = rule.namespace
        elif rule.topic not in topics and rule.real not in topics.values() and active.hit():
            topics[rule.topic] = rule.real
    return NameMapping(namespace, tuple(topics.items())) if namespace or topics else None
