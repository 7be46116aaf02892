"""Metrics of consumer groups, from the latest survey."""

from collections import Counter
from collections.abc import Iterator

from proxy.observability.metrics.family import Family, Kind, Labels, Merge, Samples, Value
from proxy.operations.group_survey import GroupState, GroupSurvey

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
SECONDS = Family(
    "gantry_consumer_survey_seconds", Kind.GAUGE, "Duration of the latest survey of consumer groups.", (), Merge.MAX
)


def read(survey: GroupSurvey) -> Iterator[tuple[Family, Samples]]:
    """Yield all families; without samples before the first survey, and in workers that take none."""
    statuses = survey.latest.values()
    lag: dict[Labels, Value] = {}
    seconds: dict[Labels, Value] = {}
    for status in statuses:
        for topic, of_topic in status.lag.items():
            lag[status.name, topic] = of_topic.messages
            seconds[status.name, topic] = of_topic.seconds
    states = Counter(status.state for status in statuses)
    yield LAG, lag
    yield LAG_SECONDS, seconds
    yield RETRY_BACKLOG, {(status.name,): status.retry_backlog for status in statuses}
    yield DEAD_LETTERS, {(status.name,): status.dead_letters for status in statuses}
    yield MEMBERS, {(status.name,): status.members for status in statuses}
    yield GROUPS, {(str(state),): states[state] for state in GroupState} if statuses else {}
    yield SECONDS, {(): survey.seconds} if statuses else {}
