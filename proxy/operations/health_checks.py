"""The checks of the replica's health."""

from collections.abc import Iterator

from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.health import Aspect, Check
from proxy.operations.broker_links import reachable
from proxy.operations.replica import Replica
from proxy.overload.monitor import Level


def all_checks(replica: Replica) -> list[Check]:
    """Return all checks, without forced failures."""
    return [
        _listeners(replica),
        *_backend(replica),
        _memory(replica),
        _certificates(replica),
        _users(replica),
        _drain(replica),
    ]


def backend_works(replica: Replica) -> bool:
    """Return whether brokers can be reached, or the embedded broker stores messages."""
    return all(check.status != "fail" for check in _backend(replica))


def checks_for_restart(replica: Replica) -> list[Check]:
    """Return the failures that end only with a restart of the process."""
    failure = replica.storage_failure
    return [] if failure is None else [Check(Aspect.BACKEND, "fail", failure)]


def _backend(replica: Replica) -> Iterator[Check]:
    backend = replica.backend
    return _cluster(backend) if isinstance(backend, ClusterBackend) else _storage(replica)


def _listeners(replica: Replica) -> Check:
    closed = replica.closed_listeners
    # During shutdown listeners are closed, which the drain check reports.
    if not closed or replica.core.drain.announced:
        return Check(Aspect.LISTENERS, "pass")
    return Check(Aspect.LISTENERS, "fail", f"not listening on {', '.join(closed)}")


def _certificates(replica: Replica) -> Check:
    # A warning: clients without TLS and open connections still work.
    problems = replica.certificates.problems()
    return Check(Aspect.CERTIFICATES, "warn" if problems else "pass", "; ".join(problems))


def _users(replica: Replica) -> Check:
    # A warning: the last users and policies remain in force.
    sources = () if replica.authority is None else replica.authority.sources
    problems = [f"{source.name}: {source.error}" for source in sources if source.error is not None]
    return Check(Aspect.USERS, "warn" if problems else "pass", "; ".join(problems))


def _memory(replica: Replica) -> Check:
    overload = replica.overload
    if overload.level is Level.NORMAL:
        return Check(Aspect.MEMORY, "pass")
    if overload.level is Level.SOFT:
        return Check(Aspect.MEMORY, "warn", f"connections that hold much are not read: {overload.usage()}")
    return Check(Aspect.MEMORY, "fail", f"load is shed: {overload.usage()}")


def _drain(replica: Replica) -> Check:
    if replica.core.drain.announced:
        return Check(Aspect.DRAIN, "fail", "clients are being sent elsewhere")
    return Check(Aspect.DRAIN, "pass")


def _storage(replica: Replica) -> Iterator[Check]:
    problem = replica.storage_problem
    yield Check(Aspect.BACKEND, "pass" if problem is None else "fail", problem or "")


def _cluster(backend: ClusterBackend) -> Iterator[Check]:
    """Yield the checks of a cluster. The replica can work without name servers, but not without brokers."""
    yield _name_servers(backend)
    lost = [name for name, replicas in backend.broker_table.items() if not reachable(backend, replicas)]
    if not backend.broker_table:
        yield Check(Aspect.BACKEND, "fail", "no broker is known: no name server has reported one")
    elif len(lost) == len(backend.broker_table):
        yield Check(Aspect.BACKEND, "fail", "no broker can be reached")
    else:
        yield Check(Aspect.BACKEND, "pass")
    if lost:
        yield Check(Aspect.BROKERS, "warn", f"cannot be reached: {', '.join(sorted(lost))}")
    elif backend.denied_by:
        yield Check(Aspect.BROKERS, "warn", f"deny Gantry's own requests: {', '.join(sorted(backend.denied_by))}")
    else:
        yield Check(Aspect.BROKERS, "pass")


def _name_servers(backend: ClusterBackend) -> Check:
    lost = [link.address for link in backend.name_servers if link.connection is None and link.failed_at is not None]
    if lost:
        return Check(Aspect.NAME_SERVERS, "warn", f"cannot be reached: {', '.join(lost)}")
    return Check(Aspect.NAME_SERVERS, "pass")
