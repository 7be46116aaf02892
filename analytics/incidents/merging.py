"""Findings of one cause become one incident."""

from collections.abc import Sequence

from analytics.incidents.detectors.silences import KINDS
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.wording import sentences

# Seconds that related findings may be apart.
_SLACK = 1200.0
# The kind that names the cause, before the kinds that follow from it.
_CAUSES = (
    *("service_silence", "broker_silence", "replica_silence", "network_silence"),
    *("credentials", "missing_topic", "missing_group", "throttling", "bad_rollout", "client_clock", "hot_key"),
    *(
        "large_messages",
        "dead_letters",
        "redelivery_storm",
        "poison_message",
        "broker_fault",
        "replica_fault",
        "connection_churn",
        "connection_storm",
    ),
    *("error_growth", "error_burst", "duplicate_sends", "traffic_growth", "traffic_surge", "silence", "traffic_drop"),
    *(
        "duplicate_deliveries",
        "consumer_rewinding",
        "consumer_stopped",
        "client_stopped",
        "queue_stopped",
        "commits_stopped",
    ),
    *("consumer_lagging", "latency_growth", "latency_spike", "queue_skew"),
)
# Kinds of one detector: its findings have different causes, unless they have the same subject.
_FAMILIES = (
    frozenset(
        {
            *("credentials", "missing_topic", "missing_group", "throttling", "error_growth", "error_burst"),
            *("broker_fault", "replica_fault"),
        }
    ),
    frozenset({"latency_growth", "latency_spike"}),
    frozenset({"traffic_growth", "traffic_surge", "silence", "traffic_drop"}),
    frozenset({"connection_storm", "connection_churn", "client_clock"}),
)
# Least share of a drop in which the whole service is silent, if it is a consequence.
_PART = 0.25
# Kinds that no trouble of a broker, a replica or a network causes.
_OWN_CAUSES = frozenset({"credentials", "missing_topic", "missing_group", "client_clock", "hot_key", "large_messages"})
# Highest likelihood of a growth's remainder, as a share of the growth's.
_REMAINDER = 0.05
# What follows from a silence of the whole service, a range of addresses, a replica or a broker.
_SILENCES = frozenset(KINDS.values())
_STOPPAGES = _SILENCES | {
    *("silence", "traffic_drop", "consumer_stopped", "consumer_lagging", "client_stopped", "queue_stopped"),
    *("commits_stopped", "connection_storm"),
}
# Findings about these subjects are related if they have the subject in common.
_SHARED = ("client", "group", "topic")


def incidents(findings: Sequence[Finding], total: float) -> list[Incident]:
    """Return the incidents of findings, ordered by time. total: requests of the records, for the severity."""
    ordered = sorted(findings, key=lambda finding: (finding.start, _CAUSES.index(finding.kind)))
    parents = list(range(len(ordered)))

    def root(place: int) -> int:
        while parents[place] != place:
            place = parents[place]
        return place

    for place, one in enumerate(ordered):
        for other in range(place):
            if _related(one, ordered[other]):
                parents[root(place)] = root(other)
    groups: dict[int, list[Finding]] = {}
    for place, finding in enumerate(ordered):
        groups.setdefault(root(place), []).append(finding)
    return sorted((_incident(group, total) for group in groups.values()), key=lambda each: (each.start, each.kind))


def _related(one: Finding, other: Finding) -> bool:
    if one.kind == other.kind == "bad_rollout":
        # Also hours apart: a fault of a whole replica between may have taken the events of its time.
        return _version(one) == _version(other)
    if one.start > other.end + _SLACK or other.start > one.end + _SLACK:
        return False
    if one.kind in _SILENCES or other.kind in _SILENCES:
        return _is_stoppage(one, other) if one.kind in _SILENCES else _is_stoppage(other, one)
    if _scope(one) == _scope(other) and (one.kind == other.kind or not _same_family(one, other)):
        return True
    if _is_catch_up(one, other) or _is_catch_up(other, one):
        return True
    if _is_refused(one, other) or _is_refused(other, one):
        return True
    if _is_retried(one, other) or _is_retried(other, one) or _is_behind(one, other) or _is_behind(other, one):
        return True
    if _outlasts(one, other) or _outlasts(other, one):
        return False
    if _overlap(one, other) >= 0.4 and (_is_remainder(one, other) or _is_remainder(other, one)):
        return True
    if _overlap(one, other) < 0.4 or _same_family(one, other) or not _contains(one, other):
        return False
    wide, narrow = (one, other) if _is_wide(one) else (other, one)
    if narrow.kind in _OWN_CAUSES and wide.kind not in _OWN_CAUSES and _is_wide(wide):
        return False
    if narrow.kind == "bad_rollout" and narrow.facts.get("symptom") != wide.facts.get("symptom"):
        # A version that fails is no consequence of a slow replica.
        return not _is_wide(wide)
    return not _is_wide(wide) or _is_wide(narrow) or _follows(narrow, wide)


def _is_stoppage(silence: Finding, other: Finding) -> bool:
    """Return whether another finding follows from a silence: it begins and ends with it."""
    if other.kind not in _STOPPAGES:
        return False
    if not silence.about:
        # A topic that gets little at any time is short of messages for longer.
        inside = silence.start - _SLACK <= other.start <= silence.end and other.end <= silence.end + _SLACK
        common = min(silence.end, other.end) - max(silence.start, other.start)
        return inside or common >= _PART * (other.end - other.start)
    together = abs(silence.end - other.end) <= _SLACK or (silence.open and other.open)
    return abs(silence.start - other.start) <= _SLACK and together


def _is_catch_up(stop: Finding, rewinding: Finding) -> bool:
    """Return whether a group takes what was left lying; the caller knows that one begins where the other ends."""
    same = all(stop.about.get(name) == rewinding.about.get(name) for name in ("group", "topic"))
    kinds = rewinding.kind == "consumer_rewinding" and stop.kind in _STOPS_BEFORE
    return kinds and same and stop.start < rewinding.start


def _is_refused(refusal: Finding, stop: Finding) -> bool:
    """Return whether something stops because its requests are refused: of a tenant, or of the clients of a topic or
    group, from the same time on.
    """
    if refusal.kind not in _REFUSALS or stop.kind not in _STOPPAGES - _SILENCES:
        return False
    owner = stop.about.get("group") or stop.about.get("topic") or ""
    subject = {"tenant": owner.partition("%")[0] if "%" in owner else "default", **stop.about}
    wide = [name for name in ("client", "group", "topic", "tenant") if name in refusal.about][:1]
    shared = any(refusal.about.get(name) == subject.get(name) for name in (*wide, "group") if name in refusal.about)
    together = abs(refusal.start - stop.start) <= _SLACK and (stop.open or stop.end <= refusal.end + _SLACK)
    return shared and together and (refusal.open or not stop.open)


def _is_retried(refusal: Finding, surge: Finding) -> bool:
    """Return whether a topic gets more sends because they are refused, and sent again, meanwhile."""
    same = refusal.about.get("topic") == surge.about.get("topic") is not None or _is_of_tenant(surge, refusal)
    inside = refusal.start - _SLACK <= surge.start and surge.end <= refusal.end + _SLACK
    return refusal.kind in _REFUSALS | {"throttling"} and surge.kind == "traffic_surge" and same and inside


def _is_behind(surge: Finding, stop: Finding) -> bool:
    """Return whether a group is behind because a tenant sends more; that a topic sends more is known by the topic."""
    inside = surge.start - _SLACK <= stop.start <= surge.end
    return surge.kind == "traffic_surge" and stop.kind in _STOPS_BEFORE and inside and _is_of_tenant(stop, surge)


def _is_of_tenant(narrow: Finding, wide: Finding) -> bool:
    """Return whether a finding about a tenant concerns the topic of another one."""
    topic = narrow.about.get("topic")
    if topic is None:
        return False
    owner, separator, _ = topic.partition("%")
    return _scope(wide) == frozenset({("tenant", owner if separator else "default")})


# Kinds after which what is refused stops, or is sent again.
_REFUSALS = frozenset({"credentials", "missing_topic", "missing_group"})


def _outlasts(stop: Finding, drop: Finding) -> bool:
    """Return whether a consumer's stop goes on long after sends to its topic resumed: the drop is not its cause."""
    lasts = stop.end - stop.start > 2 * (drop.end - drop.start) + _SLACK
    return drop.kind == "traffic_drop" and stop.kind in _STOPS_BEFORE and lasts


def _follows(narrow: Finding, wide: Finding) -> bool:
    """Return whether a finding begins and ends with that of a whole broker, replica or network, and so may be its
    consequence.
    """
    return wide.start - _SLACK <= narrow.start and narrow.end <= wide.end + max(_SLACK, 0.5 * (wide.end - wide.start))


def _is_remainder(growth: Finding, part: Finding) -> bool:
    """Return whether a finding is what is left of a growth: its first events, which were not plain yet."""
    same = growth.kind == "latency_growth" and part.kind in ("latency_growth", "latency_spike")
    inside = all(part.about.get(name) == value for name, value in _scope(growth))
    return same and inside and part.likelihood < _REMAINDER * growth.likelihood


def _same_family(one: Finding, other: Finding) -> bool:
    return any(one.kind in family and other.kind in family for family in _FAMILIES)


def _scope(finding: Finding) -> frozenset[tuple[str, str]]:
    """Return the attributes by which the finding was made; the others are what its events have in common."""
    names = finding.facts.get("scope", "+".join(finding.about)).split("+")
    return frozenset((name, finding.about[name]) for name in names if name in finding.about and name != "key")


def _contains(one: Finding, other: Finding) -> bool:
    """Return whether one finding's subject is a part of the other's: a queue of a group, a group of a topic."""
    first, second = _scope(one), _scope(other)
    narrow, wide = (first, second) if len(first) >= len(second) else (second, first)
    about = dict(one.about) if narrow is first else dict(other.about)
    if not wide:
        # The whole service.
        return True
    inside = all(about.get(name) == value for name, value in wide)
    names = {name for name, _ in wide}
    if inside and names & {*_SHARED, "broker", "replica", "network", "sdk"}:
        return True
    # Two queues, or a client and a queue, of one group.
    return ("group", one.about.get("group")) in second & first and one.about.get("group") is not None


def _overlap(one: Finding, other: Finding) -> float:
    """Return the common time as a share of the shorter finding."""
    common = min(one.end, other.end) - max(one.start, other.start)
    return common / max(min(one.end - one.start, other.end - other.start), 1.0)


def _version(finding: Finding) -> str:
    return finding.about.get("version", "")


def _incident(findings: list[Finding], total: float) -> Incident:
    causes = sorted(findings, key=lambda each: (not _is_wide(each), _CAUSES.index(each.kind), -each.likelihood))
    first = _cause(causes)
    causes.sort(key=lambda each: each is not first)
    same = [each for each in findings if each.kind == first.kind]
    words = sentences(first)
    # A weak finding does not move the onset.
    sure = [each for each in same if each.likelihood >= 0.2 * max(one.likelihood for one in same)]
    start = min(each.start for each in sure)
    end = max(each.end for each in same)
    still = any(each.open for each in same)
    affected = max(each.affected for each in findings)
    clients = max(each.clients for each in findings)
    about: dict[str, str] = {
        name: value for name, value in first.about.items() if all(each.about.get(name) == value for each in same)
    }
    severity = _severity(first, affected, total, still)
    happened = words.happened + (" It goes on." if still else "")
    return Incident(
        first.kind,
        severity,
        start,
        end,
        still,
        about or first.about,
        happened,
        words.advice,
        affected,
        clients,
        tuple(causes),
    )


def _is_wide(finding: Finding) -> bool:
    """Return whether a broker, a replica, a network or the service as a whole is concerned."""
    return {name for name, _ in _scope(finding)} <= {"broker", "replica", "network"}


def _cause(findings: list[Finding]) -> Finding:
    """Return the finding that names the cause, of findings in the order of _CAUSES."""
    first = findings[0]
    stopped = [each for each in findings if each.kind in ("silence", "traffic_drop", "consumer_stopped")]
    if first.kind == "network_silence" and len(stopped) == 1 and len(findings) == 2:
        # The only topic or group of a range of addresses says more than the range.
        return stopped[0]
    storms = [each for each in findings if each.kind == "redelivery_storm"]
    if first.kind == "dead_letters" and storms and first.affected < 0.1 * storms[0].affected:
        # Some of many redelivered messages always become dead letters.
        return storms[0]
    poison = [each for each in findings if each.kind == "poison_message"]
    if first.kind == "redelivery_storm" and any(each.affected >= _POISON * first.affected for each in poison):
        # Few messages are most of the redelivered ones.
        return poison[0]
    hung = [each for each in findings if each.kind == "client_stopped"]
    if first.kind == "consumer_stopped" and any(each.end - each.start > 2 * (first.end - first.start) for each in hung):
        # A group of which one consumer hangs stands still now and then, and lags meanwhile.
        return max(hung, key=lambda each: each.likelihood)
    stops = [each for each in findings if each.kind in _STOPS_BEFORE and each.start < first.start]
    if first.kind == "consumer_rewinding" and any(each.end >= first.start - _SLACK for each in stops):
        # What was left lying is taken at last.
        return max(stops, key=lambda each: each.likelihood)
    lagging = [each for each in findings if each.kind == "consumer_lagging"]
    if first.kind == "consumer_stopped" and any(
        each.end - each.start > 2 * (first.end - first.start) for each in lagging
    ):
        # A group that lags for long stands still now and then.
        return lagging[0]
    if first.kind in ("queue_stopped", "commits_stopped") and lagging:
        # A slow group leaves single queues behind too, or many of them.
        queues = [each for each in findings if each.kind == first.kind]
        few = len(queues) <= 2 and lagging[0].affected <= 2 * sum(each.affected for each in queues)
        return first if few else lagging[0]
    return first


# Least share of the redelivered messages that are of a late attempt, where a message that always fails is the cause.
_POISON = 0.7
# Kinds after which a group catches up.
_STOPS_BEFORE = frozenset({"consumer_stopped", "client_stopped", "queue_stopped", "consumer_lagging"})
# Kinds that stop a service for someone.
_STOPS = frozenset(
    {
        *("consumer_stopped", "silence", "broker_fault", "missing_topic", "credentials", "dead_letters"),
        *("client_stopped", "service_silence", "broker_silence", "network_silence"),
    }
)


def _severity(first: Finding, affected: float, total: float, still: bool) -> str:
    """Return a severity by the share of all requests that are affected, and by what has stopped."""
    share = affected / max(total, 1.0)
    if share >= 0.01 or (first.kind in _STOPS and (still or share >= 0.001)):
        return "critical"
    return "warning" if share >= 1e-4 or first.kind in _STOPS or still else "info"
