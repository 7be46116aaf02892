"""Whether two findings have one cause: an ordered list of rules, of which the first that answers decides."""

from collections.abc import Callable

from analytics.incidents.finding import Finding
from analytics.incidents.kinds import KINDS, Kind
from analytics.incidents.names import host, tenant

# Seconds that related findings may be apart.
SLACK = 1200.0
# Least share of a drop in which the whole service is silent, if it is a consequence.
_PART = 0.25
# Seconds of a herd of clients, at most, or as long as the silence before it.
_HERD = 3600.0
# How far the onsets of a topic's and its group's findings may be apart, as a share of the longer one.
_ONSETS = 0.1
# Least common time, as a share of the shorter finding, of two findings of one cause.
_COMMON = 0.4
# Highest likelihood of a growth's remainder, as a share of the growth's.
_REMAINDER = 0.05
# Findings about these subjects are related if they have the subject in common.
_SHARED = frozenset({"client", "group", "topic", "broker", "replica", "network", "sdk"})

# Return whether two findings are related; None if the rule does not apply to them.
_Rule = Callable[[Finding, Finding], bool | None]


def related(one: Finding, other: Finding) -> bool:
    """Return whether two findings have one cause."""
    answers = (rule(one, other) for rule in _RULES)
    return next(answer for answer in answers if answer is not None)


def _either(test: Callable[[Finding, Finding], bool], answer: bool) -> _Rule:
    """Return a rule with this answer for findings that pass a test in either order."""

    def rule(one: Finding, other: Finding) -> bool | None:
        return answer if test(one, other) or test(other, one) else None

    return rule


def _same_rollout(one: Finding, other: Finding) -> bool | None:
    """Relate roll-outs of one version, also hours apart: the events between may belong to a fault of a replica."""
    if one.kind == other.kind == Kind.BAD_ROLLOUT:
        return one.about.get("version", "") == other.about.get("version", "")
    return None


def _apart(one: Finding, other: Finding) -> bool | None:
    """Separate findings of different times."""
    return False if one.start > other.end + SLACK or other.start > one.end + SLACK else None


def _same_clock(one: Finding, other: Finding) -> bool | None:
    """Relate wrong clocks of one host: a deployment gives its client another id."""
    if one.kind == other.kind == Kind.CLIENT_CLOCK and "client" in one.about and "client" in other.about:
        first, second = (host(each.about["client"], each.about.get("network", "")) for each in (one, other))
        return first == second
    return None


def _silence(one: Finding, other: Finding) -> bool | None:
    """Relate a silence with its consequences, and with no other finding."""
    if KINDS[one.kind].silence:
        return _follows_silence(one, other)
    return _follows_silence(other, one) if KINDS[other.kind].silence else None


def _same_subject(one: Finding, other: Finding) -> bool | None:
    """Relate findings about one subject, unless one detector made two kinds of them."""
    same = one.scope == other.scope and (one.kind == other.kind or not _same_family(one, other))
    return True if same else None


def _unconnected(one: Finding, other: Finding) -> bool | None:
    """Separate findings with little common time, of one detector, or about subjects of which neither has the other."""
    connected = _overlap(one, other) >= _COMMON and not _same_family(one, other) and _contains(one, other)
    return None if connected else False


def _other_onset(one: Finding, other: Finding) -> bool | None:
    """Separate findings about a topic and its groups that began at other times, except a group that falls behind in a
    surge: a topic has several groups, whose troubles have other causes.
    """
    if not any(name == "group" for name, _ in one.scope | other.scope):
        return None
    first, second = sorted((one, other), key=lambda finding: finding.start)
    same_group = any(name == "group" for name, _ in one.scope & other.scope)
    behind = KINDS[first.kind].gain and KINDS[second.kind].leaves_backlog
    if one.is_wide or other.is_wide or same_group or behind:
        return None
    longest = max(one.end - one.start, other.end - other.start)
    return False if second.start - first.start > max(SLACK, _ONSETS * longest) else None


def _own_cause(one: Finding, other: Finding) -> bool | None:
    """Separate the fault of a broker, a replica or a network from failures that it cannot cause."""
    wide, narrow = _by_width(one, other)
    separate = KINDS[narrow.kind].own_cause and not KINDS[wide.kind].own_cause and wide.is_wide
    return False if separate else None


def _other_symptom(one: Finding, other: Finding) -> bool | None:
    """Separate a version that fails from a slow broker, replica or network, and one that is slow from failures."""
    wide, narrow = _by_width(one, other)
    other_symptom = narrow.facts.get("symptom") != wide.facts.get("symptom")
    return not wide.is_wide if narrow.kind == Kind.BAD_ROLLOUT and other_symptom else None


def _part_of_wide(one: Finding, other: Finding) -> bool | None:
    """Relate all others, but to a wide fault only the findings that begin and end with it."""
    wide, narrow = _by_width(one, other)
    return not wide.is_wide or narrow.is_wide or _lasts_as_long(narrow, wide)


def _follows_silence(silence: Finding, other: Finding) -> bool:
    """Return whether another finding follows from a silence: it begins and ends with it."""
    spec = KINDS[other.kind]
    if _is_herd(silence, other) or _is_cut_off(silence, other):
        return True
    if not (spec.silence or spec.follows_silence):
        return False
    if not silence.about:
        # A topic that gets little at any time is short of messages for longer.
        inside = silence.start - SLACK <= other.start <= silence.end and other.end <= silence.end + SLACK
        common = min(silence.end, other.end) - max(silence.start, other.start)
        return inside or common >= _PART * (other.end - other.start)
    together = abs(silence.end - other.end) <= SLACK or (silence.open and other.open)
    return abs(silence.start - other.start) <= SLACK and together


def _is_herd(silence: Finding, other: Finding) -> bool:
    """Return whether all clients come back at once after a silence of the whole service."""
    after = silence.start <= other.start <= silence.end + SLACK
    brief = other.end - other.start <= max(_HERD, silence.end - silence.start)
    return not silence.about and KINDS[other.kind].herd and after and brief


def _is_cut_off(silence: Finding, storm: Finding) -> bool:
    """Return whether connections end because their range or replica is cut off: they do so at the beginning only."""
    same = bool(silence.about) and silence.about.items() <= storm.about.items()
    return storm.kind == Kind.CONNECTION_STORM and same and abs(silence.start - storm.start) <= SLACK


def _is_catch_up(stop: Finding, rewinding: Finding) -> bool:
    """Return whether a group takes its backlog after a stop; they are known to be close in time."""
    same = all(stop.about.get(name) == rewinding.about.get(name) for name in ("group", "topic"))
    kinds = rewinding.kind == Kind.CONSUMER_REWINDING and KINDS[stop.kind].leaves_backlog
    return kinds and same and stop.start < rewinding.start


def _is_refused(refusal: Finding, stop: Finding) -> bool:
    """Return whether something stops because its requests are refused: of a tenant, or of the clients of a topic or
    group, from the same time on.
    """
    if not KINDS[refusal.kind].refusal or not KINDS[stop.kind].follows_silence:
        return False
    owner = stop.about.get("group") or stop.about.get("topic") or ""
    subject = {"tenant": tenant(owner), **stop.about}
    wide = [name for name in ("client", "group", "topic", "tenant") if name in refusal.about][:1]
    shared = any(refusal.about.get(name) == subject.get(name) for name in (*wide, "group") if name in refusal.about)
    together = abs(refusal.start - stop.start) <= SLACK and (stop.open or stop.end <= refusal.end + SLACK)
    return shared and together and (refusal.open or not stop.open)


def _is_retried(refusal: Finding, surge: Finding) -> bool:
    """Return whether a topic gets more sends because they are refused, and sent again, meanwhile."""
    refused = KINDS[refusal.kind].refusal or refusal.kind == Kind.THROTTLING
    same = refusal.about.get("topic") == surge.about.get("topic") is not None or _is_of_tenant(surge, refusal)
    inside = refusal.start - SLACK <= surge.start and surge.end <= refusal.end + SLACK
    return refused and surge.kind == Kind.TRAFFIC_SURGE and same and inside


def _is_sent_elsewhere(fault: Finding, surge: Finding) -> bool:
    """Return whether a topic gets more sends because those to a broker fail, and are sent again, meanwhile."""
    inside = fault.start - SLACK <= surge.start and surge.end <= fault.end + SLACK
    return fault.kind == Kind.BROKER_FAULT and surge.kind == Kind.TRAFFIC_SURGE and inside


def _is_behind(surge: Finding, stop: Finding) -> bool:
    """Return whether a group is behind because a tenant sends more; the surge of one topic has the topic in common."""
    inside = surge.start - SLACK <= stop.start <= surge.end
    kinds = surge.kind == Kind.TRAFFIC_SURGE and KINDS[stop.kind].leaves_backlog
    return kinds and inside and _is_of_tenant(stop, surge)


def _is_of_tenant(narrow: Finding, wide: Finding) -> bool:
    """Return whether a finding about a tenant concerns the topic of another one."""
    topic = narrow.about.get("topic")
    return topic is not None and wide.scope == frozenset({("tenant", tenant(topic))})


def _is_part_of_all(whole: Finding, part: Finding) -> bool:
    """Return whether a finding is a part of one of the same kind about the whole service; that a server is busy is a
    limit to gRPC clients.
    """
    busy = part.kind == Kind.THROTTLING and whole.facts.get("response", "").startswith("2 ")
    return (whole.kind == part.kind or busy) and not whole.scope and _lasts_as_long(part, whole)


def _is_lost_too(churn: Finding, storm: Finding) -> bool:
    """Return whether clients that connect again and again lose some of these connections abnormally."""
    kinds = churn.kind == Kind.CONNECTION_CHURN and storm.kind == Kind.CONNECTION_STORM
    return kinds and churn.scope == storm.scope and _overlap(churn, storm) >= _COMMON


def _outlasts(stop: Finding, drop: Finding) -> bool:
    """Return whether a consumer's stop goes on long after sends to its topic resumed: the drop is not its cause."""
    lasts = stop.end - stop.start > 2 * (drop.end - drop.start) + SLACK
    return drop.kind == Kind.TRAFFIC_DROP and KINDS[stop.kind].leaves_backlog and lasts


def _is_remainder(growth: Finding, part: Finding) -> bool:
    """Return whether a finding is the rest of a growth: its first events, which were not plain yet."""
    kinds = growth.kind == Kind.LATENCY_GROWTH and part.kind in {Kind.LATENCY_GROWTH, Kind.LATENCY_SPIKE}
    inside = all(part.about.get(name) == value for name, value in growth.scope)
    weak = part.likelihood < _REMAINDER * growth.likelihood
    return kinds and inside and weak and _overlap(growth, part) >= _COMMON


_RULES: tuple[_Rule, ...] = (
    _same_rollout,
    _apart,
    _same_clock,
    _silence,
    _same_subject,
    _either(_is_catch_up, True),
    _either(_is_refused, True),
    _either(_is_retried, True),
    _either(_is_sent_elsewhere, True),
    _either(_is_behind, True),
    _either(_is_lost_too, True),
    _either(_outlasts, False),
    _either(_is_remainder, True),
    _either(_is_part_of_all, True),
    _unconnected,
    _other_onset,
    _own_cause,
    _other_symptom,
    # Answers for all.
    _part_of_wide,
)


def _by_width(one: Finding, other: Finding) -> tuple[Finding, Finding]:
    """Return a wide finding, if there is one, before the other."""
    return (one, other) if one.is_wide else (other, one)


def _lasts_as_long(narrow: Finding, wide: Finding) -> bool:
    """Return whether a finding begins and ends with that of a whole broker, replica or network, and so may be its
    consequence.
    """
    return wide.start - SLACK <= narrow.start and narrow.end <= wide.end + max(SLACK, 0.5 * (wide.end - wide.start))


def _same_family(one: Finding, other: Finding) -> bool:
    family = KINDS[one.kind].family
    return family is not None and family == KINDS[other.kind].family


def _contains(one: Finding, other: Finding) -> bool:
    """Return whether one finding's subject is a part of the other's: a queue of a group, a group of a topic."""
    first, second = one.scope, other.scope
    narrow, wide = (first, second) if len(first) >= len(second) else (second, first)
    about = one.about if narrow is first else other.about
    if not wide:
        # The whole service.
        return True
    inside = all(about.get(name) == value for name, value in wide)
    if inside and {name for name, _ in wide} & _SHARED:
        return True
    # Two queues, or a client and a queue, of one group.
    return ("group", one.about.get("group")) in second & first and one.about.get("group") is not None


def _overlap(one: Finding, other: Finding) -> float:
    """Return the common time as a share of the shorter finding."""
    common = min(one.end, other.end) - max(one.start, other.start)
    return common / max(min(one.end - one.start, other.end - other.start), 1.0)
