"""Metrics of consumer groups, from the latest survey."""

from collections import Counter
from collections.abc import Iterator

from proxy.observability.metrics.family import Family, Kind, Labels, Merge, Samples, Value
from proxy.operations.groups.group_survey import GroupState, GroupStatus, GroupSurvey, TopicLag

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
UNCONSUMED_RETRIES = Family(
    "gantry_consumer_groups_unconsumed_retries",
    Kind.GAUGE,
    "Consumer groups without members that have messages in their retry topics, at the latest survey.",
    (),
    Merge.MAX,
)
DEAD_LETTERS = Family(
    "gantry_dead_letters",
    Kind.GAUGE,
    "Messages in the dead letter queue of a consumer group, at the latest survey.",
    ("consumer_group",),
)
NEW_DEAD_LETTERS = Family(
    "gantry_new_dead_letters",
    Kind.COUNTER,
    "Messages that were added to the dead letter queues of all consumer groups since the first survey.",
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
SILENT = Family(
    "gantry_consumer_survey_silent_brokers",
    Kind.GAUGE,
    "1 for each broker that the latest survey of consumer groups asked no further, after unanswered requests.",
    ("broker",),
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

    While a broker does not answer, a group keeps its last complete values for some time: a lag of 0, or none, would end
    alerts. A higher lag at the brokers that answer replaces it.
    """
    lag: dict[Labels, Value] = {}
    seconds: dict[Labels, Value] = {}
    retry_backlog: dict[Labels, Value] = {}
    dead_letters: dict[Labels, Value] = {}
    members: dict[Labels, Value] = {}
    unconsumed_retries = 0
    states: Counter[GroupState] = Counter()
    for name, status in survey.latest.items():
        complete = survey.complete(name) if status.unanswered else status
        state = complete.state if status.state is None and complete is not None else status.state
        if state is not None:
            states[state] += 1
        for topic, of_topic in _highest(status, complete):
            lag[name, topic] = of_topic.messages
            seconds[name, topic] = of_topic.seconds
        if complete is None:
            continue
        members[(name,)] = max(status.members, complete.members)
        retry_backlog[(name,)] = complete.known_retry_backlog
        dead_letters[(name,)] = complete.known_dead_letters
        unconsumed_retries += complete.known_retry_backlog > 0 and not members[(name,)]
    yield LAG, lag
    yield LAG_SECONDS, seconds
    yield RETRY_BACKLOG, retry_backlog
    yield UNCONSUMED_RETRIES, {(): unconsumed_retries} if survey.latest else {}
    yield DEAD_LETTERS, dead_letters
    yield NEW_DEAD_LETTERS, {(): survey.dead_letters.total} if survey.taken else {}
    yield MEMBERS, members
    yield GROUPS, {(str(state),): states[state] for state in GroupState} if states else {}
    yield SILENT, {(broker,): 1 for broker in survey.silent}
    yield LEFT_OUT, {(): len(survey.left_out)} if survey.latest else {}
    yield SECONDS, {(): survey.seconds} if survey.latest else {}


def _highest(status: GroupStatus, complete: GroupStatus | None) -> Iterator[tuple[str, TopicLag]]:
    """Yield the lag by topic: the higher one of the two."""
    former = {} if complete is None else complete.lag
    for topic in {**former, **status.lag}:
        values = [lag[topic] for lag in (former, status.lag) if topic in lag]
        yield topic, TopicLag(max(value.messages for value in values), max(value.seconds for value in values))
