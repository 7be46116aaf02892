"""Settings of clients: validation of received settings, and the effective settings for the response."""

import re

from google.protobuf.duration_pb2 import Duration

from grpc_gateway import validation
from grpc_gateway.endpoints import endpoints_of
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    ClientType,
    Code,
    CustomizedBackoff,
    ExponentialBackoff,
    FilterExpression,
    FilterType,
    Language,
    Metric,
    RetryPolicy,
    Settings,
)
from remoting import topic_group_config
from remoting.tag_expression import tags_of
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
LITE_CONSUMERS = frozenset({ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER})

# Bounds of client_properties in the contract.
_MAX_PROPERTIES = 32
_PROPERTY_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}", re.ASCII)
_RESERVED_PREFIX = "rocketmq."
_MAX_PROPERTY_LENGTH = 256
_MAX_PROPERTIES_BYTES = 4 * 2**10
# Characters of an invalid name that are shown in the error.
_MAX_SHOWN = 80
# Settings are kept, sent back and sent to brokers; the route of each of a producer's topics is queried every half
# minute.
_MAX_SETTINGS_BYTES = 256 * 2**10
_MAX_TOPICS = 1_000
# Settings of all clients of one connection. Official clients, which have a connection each, send less than a KiB.
MAX_CONNECTION_SETTINGS_BYTES = 4 * _MAX_SETTINGS_BYTES
# Delays of a customized backoff that replaces an exponential one.
_MAX_DELAYS = 32


def check_settings(settings: Settings) -> None:
    """Validate settings from a client. Raises Refused."""
    size = settings.ByteSize()
    topics = len(settings.publishing.topics) + len(settings.subscription.subscriptions)
    if size > _MAX_SETTINGS_BYTES:
        raise Refused(Code.BAD_REQUEST, f"the settings have {size} bytes; the maximum is {_MAX_SETTINGS_BYTES}")
    if topics > _MAX_TOPICS:
        raise Refused(Code.BAD_REQUEST, f"the settings have {topics} topics; the maximum is {_MAX_TOPICS}")
    actual = settings.WhichOneof("pub_sub")
    if actual is None:
        raise Refused(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
    client_type = client_type_of(settings)
    if client_type not in PRODUCERS and client_type not in CONSUMERS:
        name = ClientType.Name(client_type) if client_type in ClientType.values() else client_type
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, f"Client type is not consumer, type: {name}")
    expected = "publishing" if client_type in PRODUCERS else "subscription"
    if actual != expected:
        raise Refused(
            Code.BAD_REQUEST, f"settings of a {ClientType.Name(client_type)} must have {expected}, not {actual}"
        )
    if client_type in PRODUCERS:
        for topic in settings.publishing.topics:
            validation.topic(topic)
    else:
        validation.group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            validation.topic(entry.topic)
            if not _is_filter(entry.expression):
                raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "expression format is not correct")
    if settings.client_properties:
        _check_properties(settings)


def client_type_of(settings: Settings) -> ClientType:
    """Return the type of a client with these settings: a producer if they have none, and `publishing`."""
    if settings.client_type == ClientType.CLIENT_TYPE_UNSPECIFIED and settings.HasField("publishing"):
        return ClientType.PRODUCER
    return settings.client_type


def _is_filter(expression: FilterExpression) -> bool:
    if expression.type == FilterType.SQL:
        return bool(expression.expression.strip())
    try:
        tags_of(expression.expression)
    except ValueError:
        return False
    return True


def _check_properties(settings: Settings) -> None:
    properties = settings.client_properties
    size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    if len(properties) > _MAX_PROPERTIES or size > _MAX_PROPERTIES_BYTES:
        raise Refused(
            Code.INVALID_CLIENT_PROPERTIES,
            f"there are {len(properties)} client_properties with {size} bytes; "
            f"the maximum is {_MAX_PROPERTIES} with {_MAX_PROPERTIES_BYTES} bytes",
        )
    for name, value in properties.items():
        if not _PROPERTY_NAME.fullmatch(name) or name.startswith(_RESERVED_PREFIX):
            raise Refused(
                Code.INVALID_CLIENT_PROPERTIES, f"the client_properties name {name[:_MAX_SHOWN]!r} is invalid"
            )
        if len(value) > _MAX_PROPERTY_LENGTH:
            raise Refused(
                Code.INVALID_CLIENT_PROPERTIES,
                f"the value of {name} in client_properties has {len(value)} characters; "
                f"the maximum is {_MAX_PROPERTY_LENGTH}",
            )


def effective_settings(settings: Settings, group: GroupConfig | None, options: GatewayOptions) -> Settings:
    """Return a client's settings, overridden by the options and by its group's configuration.

    group: None if the configuration is unknown; its defaults apply then.
    """
    effective = Settings()
    effective.CopyFrom(settings)
    effective.metric.CopyFrom(_metric(options))
    if client_type_of(settings) in PRODUCERS:
        effective.backoff_policy.CopyFrom(_publishing_policy(options))
        effective.publishing.max_body_size = options.max_body
        effective.publishing.validate_message_type = options.validate_message_type
        return effective
    group = GroupConfig(settings.subscription.group.name) if group is None else group
    effective.backoff_policy.CopyFrom(_consuming_policy(settings.user_agent.language, group))
    subscription = effective.subscription
    subscription.fifo = group.orderly
    subscription.receive_batch_size = options.receive_batch
    subscription.long_polling_timeout.CopyFrom(_duration(int(options.max_polling * 1000)))
    if settings.client_type in LITE_CONSUMERS:
        # Always set: clients read a missing quota as 0, and every subscription fails.
        subscription.lite_subscription_quota = group.max_lite_subscriptions
        subscription.max_lite_topic_size = options.lite_topic_size
    return effective


def _metric(options: GatewayOptions) -> Metric:
    collector = options.metric_collector
    if collector is None:
        return Metric(on=False)
    return Metric(on=True, endpoints=endpoints_of(collector))


def _publishing_policy(options: GatewayOptions) -> RetryPolicy:
    attempts, initial, maximum, multiplier = options.publishing_backoff
    # Always exponential: the Node client's producers require it.
    return RetryPolicy(
        max_attempts=attempts,
        exponential_backoff=_exponential(topic_group_config.ExponentialBackoff(initial, maximum, multiplier)),
    )


def _consuming_policy(language: Language, group: GroupConfig) -> RetryPolicy:
    """Return the group's retry policy, in a form that the client supports."""
    backoff = group.backoff
    if language == Language.NODE_JS and isinstance(backoff, topic_group_config.CustomizedBackoff):
        backoff = _to_exponential(backoff)
    elif language == Language.PYTHON:
        backoff = _to_customized(backoff, group.max_attempts)
    if isinstance(backoff, topic_group_config.ExponentialBackoff):
        return RetryPolicy(max_attempts=group.max_attempts, exponential_backoff=_exponential(backoff))
    return RetryPolicy(
        max_attempts=group.max_attempts, customized_backoff=CustomizedBackoff(next=map(_duration, backoff.delays))
    )


def _to_exponential(backoff: topic_group_config.CustomizedBackoff) -> topic_group_config.ExponentialBackoff:
    """Approximate a customized backoff, from its first to its longest delay.

    The Node client does not support a customized backoff: it would redeliver at once, and deliver a message of a
    message group only once.
    """
    return topic_group_config.ExponentialBackoff(backoff.delays[0], max(backoff.delays), 2.0)


def _to_customized(backoff: topic_group_config.Backoff, attempts: int) -> topic_group_config.CustomizedBackoff:
    """Return the delays of a backoff in whole seconds: the Python client supports no other form."""
    if isinstance(backoff, topic_group_config.ExponentialBackoff):
        delays = tuple(backoff.delay(attempt) for attempt in range(1, min(max(attempts, 2), _MAX_DELAYS)))
    else:
        delays = backoff.delays
    return topic_group_config.CustomizedBackoff(tuple(-(-delay // 1000) * 1000 for delay in delays))


def _exponential(backoff: topic_group_config.ExponentialBackoff) -> ExponentialBackoff:
    return ExponentialBackoff(
        initial=_duration(backoff.initial), max=_duration(backoff.max_delay), multiplier=backoff.multiplier
    )


def _duration(milliseconds: int) -> Duration:
    seconds, rest = divmod(milliseconds, 1000)
    return Duration(seconds=seconds, nanos=rest * 1_000_000)
