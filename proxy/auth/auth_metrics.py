"""Metrics of authentication and authorization."""

from collections.abc import Iterable

from proxy.auth.authority import Authority
from proxy.observability.metrics.family import Family, Kind, Merge, Samples

_REQUESTS = Family(
    "gantry_auth_requests",
    Kind.COUNTER,
    "Decisions about requests, by method of authentication and result.",
    ("method", "result"),
)
_USERS = Family(
    "gantry_auth_users", Kind.GAUGE, "Users that the sources of users and policies have.", ("source",), Merge.MAX
)
_ERRORS = Family(
    "gantry_auth_source_failed",
    Kind.GAUGE,
    "1 if the source's last version could not be loaded.",
    ("source",),
    Merge.MAX,
)
_SLOWED = Family(
    "gantry_auth_failing_sources", Kind.GAUGE, "Client addresses with failed authentications that are remembered."
)


def read(authority: Authority) -> Iterable[tuple[Family, Samples]]:
    """Yield the present values."""
    allowed: Samples = {(method.value, "allowed"): count for method, count in authority.allowed.items() if count}
    denied: Samples = {(method, reason): count for (method, reason), count in authority.counts.items()}
    yield _REQUESTS, {**allowed, **denied}
    yield _USERS, {(source.name,): len(source.directory.users) for source in authority.sources}
    yield _ERRORS, {(source.name,): int(source.error is not None) for source in authority.sources}
    yield _SLOWED, {(): len(authority.failures)}
