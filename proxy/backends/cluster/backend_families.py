"""The metrics of a cluster's backend."""

from typing import Final

from proxy.observability.metrics.family import Family, Kind, Merge

DIVERTED: Final = Family(
    "gantry_diverted", Kind.COUNTER, "Requests not routed to their primary target, by reason.", ("reason",)
)
SENT_BACK: Final = Family(
    "gantry_send_back",
    Kind.COUNTER,
    "CONSUMER_SEND_MSG_BACK requests by target: master, acting_master, none (rejected).",
    ("route",),
)
ROUTE_CACHE: Final = Family(
    "gantry_route_cache",
    Kind.COUNTER,
    "Route look-ups (hit, miss; listed: decided by the list of all topics) and loads (refresh, error).",
    ("event",),
)
SIGNED: Final = Family(
    "gantry_signed_requests",
    Kind.COUNTER,
    "Requests to brokers signed with Gantry's credentials, by their origin (gantry, client).",
    ("origin",),
)
DENYING: Final = Family("gantry_brokers_denying", Kind.GAUGE, "Broker addresses that deny Gantry's own requests.")
UNRESPONSIVE: Final = Family(
    "gantry_unresponsive_brokers",
    Kind.GAUGE,
    "1 for each broker whose master answers nothing although requests wait; gRPC sends and receives avoid it.",
    ("broker",),
    Merge.MAX,
)
ROUTES: Final = Family("gantry_routes", Kind.GAUGE, "Topics in the route cache.")
MEMBERSHIPS: Final = Family(
    "gantry_membership_connections", Kind.GAUGE, "Connections to brokers that carry the memberships of clients."
)
MEMBERSHIPS_REFUSED: Final = Family(
    "gantry_membership_connections_refused",
    Kind.COUNTER,
    "Connections for memberships that were not opened: cluster.membership_connections, or half of it for one address.",
)
