"""The finding that names the cause of an incident."""

from collections.abc import Callable, Sequence

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import KINDS, Kind, rank
from analytics.incidents.relations import SLACK

# Least share of the redelivered messages that are of a late attempt, where a message that always fails is the cause.
_POISON = 0.7
# Highest ratio of dead letters to redelivered messages, where the redeliveries are the cause.
_BURIED = 0.1
# Single queues that stop and messages they miss, as a multiple of the group's, where the queues are the cause.
_QUEUES, _MISSED = 2, 2.0

# Return the finding that names the cause instead of the first; None for the first.
_Rule = Callable[[Finding, Sequence[Finding]], Finding | None]


def by_cause(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of one incident, that which names the cause first."""
    # The whole service before its brokers, replicas and networks.
    ordered = sorted(findings, key=lambda each: (bool(each.scope), not each.is_wide, rank(each.kind), -each.likelihood))
    cause = _cause(ordered)
    return sorted(ordered, key=lambda each: each is not cause)


def _cause(findings: Sequence[Finding]) -> Finding:
    first = findings[0]
    answers = (rule(first, findings) for kind, rule in _RULES if kind == first.kind)
    return next((answer for answer in answers if answer is not None), first)


def _only_subject(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer the only topic or group of a range of addresses, which says more than the range."""
    kinds = {Kind.SILENCE, Kind.TRAFFIC_DROP, Kind.CONSUMER_STOPPED}
    stopped = [each for each in findings if each.kind in kinds]
    return stopped[0] if len(stopped) == 1 and len(findings) == 2 else None


def _redeliveries(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer a storm of redeliveries to its dead letters: some of many redelivered messages always become these."""
    storms = _of_kind(findings, Kind.REDELIVERY_STORM)
    return storms[0] if storms and first.affected < _BURIED * storms[0].affected else None


def _poison(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer few messages that always fail, if they are most of the redelivered ones."""
    poison = _of_kind(findings, Kind.POISON_MESSAGE)
    return poison[0] if any(each.affected >= _POISON * first.affected for each in poison) else None


def _hung_client(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer a consumer that hangs: its group stands still now and then, and lags meanwhile."""
    hung = _of_kind(findings, Kind.CLIENT_STOPPED)
    return _likeliest(hung) if any(_lasts_longer(each, first) for each in hung) else None


def _stop_before(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer the stop before a group consumes many messages: these are its backlog."""
    stops = [each for each in findings if KINDS[each.kind].leaves_backlog and each.start < first.start]
    return _likeliest(stops) if any(each.end >= first.start - SLACK for each in stops) else None


def _long_lag(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer a long lag: a group that lags for long stands still now and then."""
    lags = _of_kind(findings, Kind.CONSUMER_LAGGING)
    return lags[0] if any(_lasts_longer(each, first) for each in lags) else None


def _slow_group(first: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Prefer the group's lag, unless few queues have most of it: a slow group leaves single queues behind too."""
    lags, queues = _of_kind(findings, Kind.CONSUMER_LAGGING), _of_kind(findings, first.kind)
    if not lags:
        return None
    few = len(queues) <= _QUEUES and lags[0].affected <= _MISSED * sum(each.affected for each in queues)
    return None if few else lags[0]


# Rules by the kind of the first finding, in the order in which they are asked.
_RULES: tuple[tuple[Kind, _Rule], ...] = (
    (Kind.NETWORK_SILENCE, _only_subject),
    (Kind.DEAD_LETTERS, _redeliveries),
    (Kind.REDELIVERY_STORM, _poison),
    (Kind.CONSUMER_STOPPED, _hung_client),
    (Kind.CONSUMER_REWINDING, _stop_before),
    (Kind.CONSUMER_STOPPED, _long_lag),
    (Kind.QUEUE_STOPPED, _slow_group),
    (Kind.COMMITS_STOPPED, _slow_group),
)


def _of_kind(findings: Sequence[Finding], kind: Kind) -> list[Finding]:
    return [each for each in findings if each.kind == kind]


def _likeliest(findings: Sequence[Finding]) -> Finding:
    return max(findings, key=lambda each: each.likelihood)


def _lasts_longer(one: Finding, other: Finding) -> bool:
    """Return whether a finding lasts more than twice as long as another."""
    return one.end - one.start > 2 * (other.end - other.start)
