"""Metrics of consumer groups, from the latest survey."""

from collections import Counter
from collections.abc import Iterator

from proxy.observability.metrics.family import Family, Kind, Labels, Merge, Samples, Value
from proxy.operations.groups.group_survey import GroupState, GroupSurvey

LAG = Family(
    "gantry_consumer_lag_messages",
    Kind.GAUGE,
    "Messages that wait for a consumer group in a topic, without retries, at the latest survey.",
    ("consumer_group", "topic"),
)
LAG_SECONDS = Family(
    "gantry_consumer_lag_seconds",
    Kind.GAUGE,
    "Age of the oldest message that waits for a consumer group in a topic, at the latest survey.",
    ("consumer_group", "topic"),
    Merge.MAX,
)
RETRY_BACKLOG = Family(
    "gantry_consumer_retry_backlog",
    Kind.GAUGE,
    "Messages that wait in the retry topics of a consumer group, at the latest survey.",
    ("consumer_group",),
)
DEAD_LETTERS = Family(
    "gantry_dead_letters",
    Kind.GAUGE,
    "Messages in the dead letter queue of a consumer group, at the latest survey.",
    ("consumer_group",),
)
MEMBERS = Family(
    "gantry_consumer_group_members",
    Kind.GAUGE,
    "Members of a consumer group at all replicas, at the latest survey.",
    ("consumer_group",),
)
GROUPS = Family(
    "gantry_consumer_groups",
    Kind.GAUGE,
    "Consumer groups by state: online, offline, lagging or stuck, at the latest survey.",
    ("state",),
)
LEFT_OUT = Family(
    "gantry_consumer_groups_left_out",
    Kind.GAUGE,
    "Consumer groups beyond admin.survey_groups, which the latest survey left out: they have no other metrics here.",
)
SECONDS = Family(
    "gantry_consumer_survey_seconds", Kind.GAUGE, "Duration of the latest survey of consumer groups.", (), Merge.MAX
)


def read(survey: GroupSurvey) -> Iterator[tuple[Family, Samples]]:
    """Yield all families; without samples before the first survey, and in workers that take none.

    A group has no samples while a broker does not answer: a lag of 0 would end alerts.
    """
    statuses = [status for status in survey.latest.values() if not status.unanswered]
    lag: dict[Labels, Value] = {}
    seconds: dict[Labels, Value] = {}
    for status in statuses:
        for topic, of_topic in status.lag.items():
            lag[status.name, topic] = of_topic.messages
            seconds[status.name, topic] = of_topic.seconds
    states = Counter(status.state for status in statuses)
    yield LAG, lag
    yield LAG_SECONDS, seconds
    yield RETRY_BACKLOG, {(s.name,): s.retry_backlog for s in statuses if s.retry_backlog is not None}
    yield DEAD_LETTERS, {(s.name,): s.dead_letters for s in statuses if s.dead_letters is not None}
    yield MEMBERS, {(status.name,): status.members for status in statuses}
    yield GROUPS, {(str(state),): states[state] for state in GroupState} if statuses else {}
    yield LEFT_OUT, {(): len(survey.left_out)} if survey.latest else {}
    yield SECONDS, {(): survey.seconds} if survey.latest else {}
