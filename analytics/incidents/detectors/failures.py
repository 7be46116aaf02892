"""Requests that fail: at a broker, for a topic, a tenant, a client, a version, a replica, from a network."""

from collections.abc import Mapping

from analytics.incidents.candidates import Cluster
from analytics.incidents.clusters import (
    clusters,
    exposure,
    finding,
    new_sdks,
    onset,
    rolled_out,
    rollout_start,
    version,
)
from analytics.incidents.finding import Finding
from analytics.incidents.kinds import Kind
from analytics.incidents.spans import Limits
from analytics.incidents.tables import Tables
from analytics.transforms.operations import SEND
from analytics.transforms.responses import MEANINGS

_LIMITS = Limits(factor=2.5, events=8, share=0.01, ratio=3.0, likelihood=18.0, floor=2e-3)
# Kinds by response codes: their failures are separate from all others.
_KINDS: tuple[tuple[frozenset[int], Kind], ...] = (
    (frozenset({16, 40100, 40300}), Kind.CREDENTIALS),
    (frozenset({17, 40402}), Kind.MISSING_TOPIC),
    (frozenset({26, 40403}), Kind.MISSING_GROUP),
    # SYSTEM_BUSY, POLLING_FULL and FLOW_CONTROL of remoting are TOO_MANY_REQUESTS of gRPC.
    (frozenset({2, 209, 215, 42900}), Kind.THROTTLING),
)
_SYSTEM_BUSY, _TOO_MANY = 2, 42900
# Kinds by the scope, if the response says nothing and there is no growth.
_SCOPES: Mapping[str, Kind] = {"broker": Kind.BROKER_FAULT, "replica": Kind.REPLICA_FAULT}
_NAMED = frozenset(code for codes, _ in _KINDS for code in codes)


def failures(tables: Tables) -> list[Finding]:
    """Return findings about failed requests, each failure in one of them."""
    events = tables.events[tables.events["event"] == "failed"]
    over, sends, new = exposure(tables, "n"), exposure(tables, "sends"), new_sdks(tables)
    found = []
    for codes, kind in (*_KINDS, (None, None)):
        known = events["response"].isin(_NAMED if codes is None else codes)
        of_kind = events[known if codes is not None else ~known]
        parts = [(of_kind, over)]
        if kind == Kind.THROTTLING:
            # A quota rejects a part of the sends, while polls go on: among all requests that part would look small.
            sent = of_kind["op"] == SEND
            parts = [(of_kind[sent], sends), (of_kind[~sent], over)]
        for rows, requests in parts:
            found += [_finding(tables, each, kind, new) for each in clusters(tables, rows, requests, _LIMITS)]
    return found


def _finding(tables: Tables, cluster: Cluster, kind: Kind | None, new: Mapping[str, float]) -> Finding:
    code = _code(cluster)
    # A response with its own kind has its onset at the first one; only busy servers (SYSTEM_BUSY) may grow.
    start, growth = (cluster.start, False) if kind and code != _SYSTEM_BUSY else onset(tables, cluster)
    if growth:
        kind = None
    sdk = rolled_out(tables, cluster, new)
    facts = {"response": f"{code} ({MEANINGS.get(code, 'unknown')})"}
    if not kind and sdk is not None:
        kind, start = Kind.BAD_ROLLOUT, rollout_start(tables, cluster, new[sdk], start)
        facts["version"] = version(sdk)
    scope = "+".join(cluster.scope)
    if kind == Kind.THROTTLING and scope == "broker":
        # A broker that refuses the requests of all its topics is overloaded.
        kind = Kind.BROKER_FAULT
    kind = kind or (Kind.ERROR_GROWTH if growth else _SCOPES.get(scope, Kind.ERROR_BURST))
    return finding(tables, cluster, kind, start, facts)


def _code(cluster: Cluster) -> int:
    """Return the most frequent response. Both a busy server and a limit are TOO_MANY_REQUESTS to gRPC clients, so that
    the codes of the remoting clients among them decide.
    """
    codes = cluster.events.groupby("response")["n"].sum()
    if codes.idxmax() == _TOO_MANY and _SYSTEM_BUSY in codes and codes.drop(_TOO_MANY).idxmax() == _SYSTEM_BUSY:
        return _SYSTEM_BUSY
    return int(codes.idxmax())
