"""A zone of several address ranges in trouble: findings about topics, clients and ranges that begin and end together.

Ranges of addresses are /24 networks. A zone or a site has many of them, and each of its topics fails on its own.
"""

from collections.abc import Sequence
from dataclasses import replace

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import KINDS
from analytics.incidents.tables import Tables

# Scopes that are a part of a zone, if all their events come from it.
_PARTS = frozenset({"client", "topic", "group", "network"})
# Seconds by which onsets and ends may differ.
_TOGETHER = 600.0


def by_zone(tables: Tables, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with one in place of those of several ranges of one zone (/16) at the same time.

    A zone is one only if there are others: where all clients are in it, it explains nothing.
    """
    networks = tables.totals.loc[tables.totals["dimension"] == "network", "value"].astype(str)
    zones = {zone for network in networks.unique() if (zone := _zone(network))}
    if len(zones) < 2:
        return list(findings)
    found: list[Finding] = []
    rest = list(findings)
    while rest:
        first = rest.pop(0)
        together = [first, *(each for each in rest if _is_together(first, each))]
        same = [each for each in together if each.kind == first.kind]
        if len({each.about.get("network") for each in same}) < 2:
            found.append(first)
            continue
        # Findings of other kinds at that time are those of the zone too: failing requests are also slow.
        rest = [each for each in rest if each not in together]
        found += [_joined(same), *(_joined([each]) for each in together if each not in same)]
    return found


def _zone(network: str) -> str | None:
    """Return the /16 of an IPv4 /24."""
    parts = network.split(".")
    return f"{parts[0]}.{parts[1]}.0.0/16" if len(parts) == 4 and network.endswith("/24") else None


def _is_together(one: Finding, other: Finding) -> bool:
    if not (KINDS[one.kind].zone and KINDS[other.kind].zone):
        return False
    zone = _zone(one.about.get("network", ""))
    parts = all(set(each.facts.get("scope", "").split("+")) <= _PARTS for each in (one, other))
    same = zone is not None and zone == _zone(other.about.get("network", ""))
    return same and parts and max(abs(one.start - other.start), abs(one.end - other.end)) <= _TOGETHER


def _joined(findings: Sequence[Finding]) -> Finding:
    strongest = max(findings, key=lambda each: each.likelihood)
    affected = sum(each.affected for each in findings)
    observed = sum(each.observed * each.affected for each in findings) / max(affected, 1e-9)
    return replace(
        strongest,
        start=min(each.start for each in findings),
        end=max(each.end for each in findings),
        about={"network": str(_zone(strongest.about["network"]))},
        observed=observed,
        likelihood=sum(each.likelihood for each in findings),
        affected=affected,
        clients=sum(each.clients for each in findings),
        open=any(each.open for each in findings),
        facts={**strongest.facts, "scope": "network"},
    )
