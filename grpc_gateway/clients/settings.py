"""Settings: whether what a client says of itself can be, and what it is told to go by."""

import re

from google.protobuf.duration_pb2 import Duration

from grpc_gateway import validation
from grpc_gateway.options import Options
from grpc_gateway.routes import scheme
from grpc_gateway.status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    Address,
    ClientType,
    Code,
    CustomizedBackoff,
    Endpoints,
    ExponentialBackoff,
    FilterType,
    Language,
    Metric,
    RetryPolicy,
    Settings,
)
from remoting import topic_group_config
from remoting.topic_group_config import GroupConfig

PRODUCERS = frozenset({ClientType.PRODUCER})
CONSUMERS = frozenset(
    {
        ClientType.PUSH_CONSUMER,
        ClientType.SIMPLE_CONSUMER,
        ClientType.PULL_CONSUMER,
        ClientType.LITE_PUSH_CONSUMER,
        ClientType.LITE_SIMPLE_CONSUMER,
    }
)
LITE = frozenset({ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER})

# The contract's bounds of client_properties.
_MAX_PROPERTIES = 32
_PROPERTY_KEY = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}", re.ASCII)
_RESERVED_PREFIX = "rocketmq."
_LONGEST_PROPERTY = 256
_ALL_PROPERTIES = 4 * 2**10
# Bytes of settings, which are kept, sent back and told to brokers, and topics in them: each of a producer's is looked
# for at the name servers every half minute.
_LARGEST = 256 * 2**10
_MAX_TOPICS = 1_000
# How many lite topics a client may subscribe to where its group's configuration does not say (the brokers' default),
# and where it says that there is no bound (-1).
_LITE_QUOTA = 2_000
_NO_QUOTA = 2**31 - 1
# Times in a ladder that is made from an exponential policy, at most.
_LONGEST_LADDER = 32


def check(settings: Settings) -> None:
    """Whether settings can be as a client sent them. Raises Refused."""
    size = settings.ByteSize()
    named = len(settings.publishing.topics) + len(settings.subscription.subscriptions)
    if size > _LARGEST or named > _MAX_TOPICS:
        raise Refused(
            Code.BAD_REQUEST,
            f"settings have at most {_LARGEST} bytes and {_MAX_TOPICS} topics, not {size} bytes and {named} topics",
        )
    kind = settings.client_type
    if kind not in PRODUCERS and kind not in CONSUMERS:
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, f"there is no client type {kind}")
    part = settings.WhichOneof("pub_sub")
    wanted = "publishing" if kind in PRODUCERS else "subscription"
    if part != wanted:
        raise Refused(Code.BAD_REQUEST, f"settings of a {ClientType.Name(kind)} have {wanted}, not {part or 'nothing'}")
    if kind in PRODUCERS:
        for topic in settings.publishing.topics:
            validation.topic(topic)
    else:
        validation.group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            validation.topic(entry.topic)
            if entry.expression.type == FilterType.SQL and not entry.expression.expression.strip():
                raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, f"the SQL filter of topic {entry.topic.name} is empty")
    if settings.client_properties:
        _check_properties(settings)


def _check_properties(settings: Settings) -> None:
    found = settings.client_properties
    size = sum(len(key.encode()) + len(value.encode()) for key, value in found.items())
    if len(found) > _MAX_PROPERTIES or size > _ALL_PROPERTIES:
        raise Refused(
            Code.INVALID_CLIENT_PROPERTIES,
            f"there are {len(found)} client properties of {size} bytes, "
            f"at most {_MAX_PROPERTIES} of {_ALL_PROPERTIES} bytes are allowed",
        )
    for key, value in found.items():
        if not _PROPERTY_KEY.fullmatch(key) or key.startswith(_RESERVED_PREFIX):
            raise Refused(Code.INVALID_CLIENT_PROPERTIES, f"a client property cannot be named {key[:80]!r}")
        if len(value) > _LONGEST_PROPERTY:
            raise Refused(
                Code.INVALID_CLIENT_PROPERTIES,
                f"client property {key} has {len(value)} characters, at most {_LONGEST_PROPERTY} are allowed",
            )


def merged(settings: Settings, group: GroupConfig | None, options: Options) -> Settings:
    """What the client is told: its own settings, and ours over them. `group`: its consumer group's configuration."""
    told = Settings()
    told.CopyFrom(settings)
    told.metric.CopyFrom(_metric(options))
    if settings.client_type in PRODUCERS:
        told.backoff_policy.CopyFrom(_publishing_policy(options))
        told.publishing.max_body_size = options.max_body
        told.publishing.validate_message_type = options.validate_message_type
        return told
    group = GroupConfig(settings.subscription.group.name) if group is None else group
    told.backoff_policy.CopyFrom(_consuming_policy(settings.user_agent.language, group))
    subscription = told.subscription
    subscription.fifo = group.orderly
    subscription.receive_batch_size = options.receive_batch
    subscription.long_polling_timeout.CopyFrom(_duration(int(options.max_polling * 1000)))
    if settings.client_type in LITE:
        quota = _LITE_QUOTA if group.lite_subscription_quota is None else group.lite_subscription_quota
        # Without one clients take it for 0, and every subscription fails.
        subscription.lite_subscription_quota = min(quota, _NO_QUOTA) if quota >= 0 else _NO_QUOTA
        subscription.max_lite_topic_size = options.lite_topic_size
    return told


def _metric(options: Options) -> Metric:
    collector = options.metric_collector
    if collector is None:
        return Metric(on=False)
    address = Address(host=collector.host, port=collector.port)
    return Metric(on=True, endpoints=Endpoints(scheme=scheme(collector.host), addresses=(address,)))


def _publishing_policy(options: Options) -> RetryPolicy:
    attempts, initial, longest, multiplier = options.publishing_backoff
    # Never another one: the Node client's producers insist on it.
    return RetryPolicy(
        max_attempts=attempts,
        exponential_backoff=_exponential(topic_group_config.ExponentialBackoff(initial, longest, multiplier)),
    )


def _consuming_policy(language: Language, group: GroupConfig) -> RetryPolicy:
    """The group's own policy, in the form that the client understands."""
    backoff = group.backoff
    if language == Language.NODE_JS and isinstance(backoff, topic_group_config.CustomizedBackoff):
        backoff = _as_exponential(backoff)
    elif language == Language.PYTHON:
        backoff = _as_ladder(backoff, group.max_attempts)
    if isinstance(backoff, topic_group_config.ExponentialBackoff):
        return RetryPolicy(max_attempts=group.max_attempts, exponential_backoff=_exponential(backoff))
    return RetryPolicy(
        max_attempts=group.max_attempts, customized_backoff=CustomizedBackoff(next=map(_duration, backoff.delays))
    )


def _as_exponential(ladder: topic_group_config.CustomizedBackoff) -> topic_group_config.ExponentialBackoff:
    """As near as it gets: from the first to the last of the times.

    The Node client knows no ladder. Told one, it would deliver again at once, and give a message of a message group
    one attempt only.
    """
    return topic_group_config.ExponentialBackoff(ladder.delays[0], max(ladder.delays), 2.0)


def _as_ladder(backoff: topic_group_config.Backoff, attempts: int) -> topic_group_config.CustomizedBackoff:
    """The times of a policy one by one, in whole seconds: the Python client reads nothing else."""
    if isinstance(backoff, topic_group_config.ExponentialBackoff):
        delays = tuple(backoff.delay(attempt) for attempt in range(1, min(max(attempts, 2), _LONGEST_LADDER)))
    else:
        delays = backoff.delays
    return topic_group_config.CustomizedBackoff(tuple(-(-delay // 1000) * 1000 for delay in delays))


def _exponential(backoff: topic_group_config.ExponentialBackoff) -> ExponentialBackoff:
    return ExponentialBackoff(
        initial=_duration(backoff.initial), max=_duration(backoff.longest), multiplier=backoff.multiplier
    )


def _duration(milliseconds: int) -> Duration:
    seconds, rest = divmod(milliseconds, 1000)
    return Duration(seconds=seconds, nanos=rest * 1_000_000)
