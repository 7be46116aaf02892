import pytest

from grpc_gateway.clients.client_settings import check_settings, client_type_of, effective_settings
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import (
    AddressScheme,
    ClientType,
    Code,
    Endpoints,
    FilterType,
    Language,
    Publishing,
    Resource,
    RetryPolicy,
    Settings,
    Subscription,
)
from remoting.topic_group_config import CustomizedBackoff, ExponentialBackoff, GroupConfig
from tests.grpc_gateway.fakes import ENDPOINTS
from tests.grpc_gateway.messages import consumer_settings, producer_settings

OPTIONS = GatewayOptions()
CONSUMER_TYPES = [kind for kind in ClientType.values() if kind > ClientType.PRODUCER]
LITE_CONSUMER_TYPES = (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER)


def rejection_code(settings: Settings) -> int:
    with pytest.raises(Refused) as refused:
        check_settings(settings)
    return refused.value.code


def seconds(policy: RetryPolicy) -> list[int]:
    return [item.seconds for item in policy.customized_backoff.next]


# Validation.


@pytest.mark.parametrize("kind", CONSUMER_TYPES)
def test_settings_of_every_client_type_are_valid(kind: ClientType) -> None:
    check_settings(consumer_settings(kind=kind))
    check_settings(producer_settings())


@pytest.mark.parametrize("kind", [ClientType.CLIENT_TYPE_UNSPECIFIED, 99])
def test_unknown_client_type_of_a_consumer_is_rejected(kind: int) -> None:
    settings = consumer_settings()
    settings.client_type = kind  # type: ignore[assignment]
    assert rejection_code(settings) == Code.UNRECOGNIZED_CLIENT_TYPE


def test_settings_with_publishing_are_those_of_a_producer_without_a_client_type() -> None:
    settings = producer_settings()
    settings.ClearField("client_type")
    check_settings(settings)
    assert client_type_of(settings) == ClientType.PRODUCER
    effective = effective_settings(settings, None, GatewayOptions())
    assert effective.publishing.max_body_size > 0
    assert effective.backoff_policy.HasField("exponential_backoff")


@pytest.mark.parametrize("kind", [ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PRODUCER])
def test_settings_without_publishing_and_subscription_are_rejected(kind: ClientType) -> None:
    with pytest.raises(Refused, match=r"^there is no publishing or subscription data in settings$"):
        check_settings(Settings(client_type=kind))


def test_filter_without_tags_is_rejected() -> None:
    with pytest.raises(Refused, match=r"^expression format is not correct$") as refused:
        check_settings(consumer_settings(expression="||"))
    assert refused.value.code == Code.ILLEGAL_FILTER_EXPRESSION


def test_client_type_that_does_not_match_pub_sub_is_rejected() -> None:
    assert rejection_code(Settings(client_type=ClientType.PRODUCER)) == Code.BAD_REQUEST
    subscription = Subscription(group=Resource(name="g"))
    assert rejection_code(Settings(client_type=ClientType.PRODUCER, subscription=subscription)) == Code.BAD_REQUEST
    assert rejection_code(Settings(client_type=ClientType.PUSH_CONSUMER, publishing=Publishing())) == Code.BAD_REQUEST


def test_invalid_topic_and_group_names_are_rejected() -> None:
    assert rejection_code(producer_settings("no such topic")) == Code.ILLEGAL_TOPIC
    assert rejection_code(consumer_settings("")) == Code.ILLEGAL_CONSUMER_GROUP
    assert rejection_code(consumer_settings(topics=("TBW102",))) == Code.ILLEGAL_TOPIC


def test_producer_without_topics_is_valid() -> None:
    check_settings(Settings(client_type=ClientType.PRODUCER, publishing=Publishing()))


def test_blank_sql_filter_is_rejected() -> None:
    settings = consumer_settings()
    expression = settings.subscription.subscriptions[0].expression
    expression.type, expression.expression = FilterType.SQL, " "
    assert rejection_code(settings) == Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize(
    "properties",
    [
        {f"k{number}": "" for number in range(33)},
        {"": "v"},
        {"1st": "v"},
        {"k" * 65: "v"},
        {"rocketmq.x": "v"},
        {"ключ": "v"},
        {"k": "v" * 257},
        {f"k{number}": "v" * 250 for number in range(20)},
    ],
)
def test_client_properties_beyond_the_limits_are_rejected(properties: dict[str, str]) -> None:
    settings = producer_settings()
    settings.client_properties.update(properties)
    assert rejection_code(settings) == Code.INVALID_CLIENT_PROPERTIES


def test_client_properties_at_the_limits_are_valid() -> None:
    settings = producer_settings()
    settings.client_properties.update({f"{'k' * 62}{number:02}": "ё" * 20 for number in range(32)})
    settings.client_properties.update({"a.b_c-D": "v"} if len(settings.client_properties) < 32 else {})
    check_settings(settings)


# Effective settings.


def test_effective_settings_keep_the_fields_of_the_client() -> None:
    settings = consumer_settings()
    settings.access_point.CopyFrom(ENDPOINTS)
    settings.request_timeout.seconds = 3
    settings.subscription.group.resource_namespace = "ns"
    effective = effective_settings(settings, None, OPTIONS)
    assert effective.access_point == ENDPOINTS
    assert effective.request_timeout.seconds == 3
    assert effective.user_agent == settings.user_agent
    assert effective.subscription.group == settings.subscription.group
    assert effective.subscription.subscriptions == settings.subscription.subscriptions
    assert not settings.HasField("metric")


def test_effective_settings_of_a_producer_have_backoff_and_maximum_body_size() -> None:
    effective = effective_settings(producer_settings(), None, OPTIONS)
    policy = effective.backoff_policy
    assert policy.max_attempts == 3
    # Required by the Node client's producers.
    assert policy.WhichOneof("strategy") == "exponential_backoff"
    assert policy.exponential_backoff.initial.nanos == 10_000_000
    assert policy.exponential_backoff.max.seconds == 1
    assert policy.exponential_backoff.multiplier == 2
    assert effective.publishing.max_body_size == 4 * 2**20
    assert effective.publishing.validate_message_type
    assert effective.WhichOneof("pub_sub") == "publishing"


def test_effective_settings_of_a_consumer_follow_its_group_configuration() -> None:
    group = GroupConfig("g", orderly=True, retries=2, backoff=ExponentialBackoff(1_500, 9_000, 3.0))
    effective = effective_settings(consumer_settings(), group, OPTIONS)
    assert effective.subscription.fifo
    assert effective.subscription.receive_batch_size == 32
    assert effective.subscription.long_polling_timeout.seconds == 20
    assert effective.backoff_policy.max_attempts == 3
    backoff = effective.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.initial.nanos) == (1, 500_000_000)
    assert (backoff.max.seconds, backoff.multiplier) == (9, 3.0)
    assert not effective.subscription.HasField("lite_subscription_quota")


def test_effective_settings_without_group_configuration_have_defaults() -> None:
    effective = effective_settings(consumer_settings(), None, OPTIONS)
    assert not effective.subscription.fifo
    assert effective.backoff_policy.max_attempts == 17
    assert seconds(effective.backoff_policy)[:4] == [1, 5, 10, 30]
    assert len(seconds(effective.backoff_policy)) == 18


@pytest.mark.parametrize("language", Language.values())
@pytest.mark.parametrize("backoff", [CustomizedBackoff((500,)), CustomizedBackoff(), ExponentialBackoff()])
def test_backoff_is_of_a_type_that_the_client_supports(
    language: Language, backoff: CustomizedBackoff | ExponentialBackoff
) -> None:
    settings = consumer_settings(language=language)
    policy = effective_settings(settings, GroupConfig("g", backoff=backoff), OPTIONS).backoff_policy
    strategy = policy.WhichOneof("strategy")
    group_strategy = "customized_backoff" if isinstance(backoff, CustomizedBackoff) else "exponential_backoff"
    overrides = {Language.NODE_JS: "exponential_backoff", Language.PYTHON: "customized_backoff"}
    assert strategy == overrides.get(language, group_strategy)
    if strategy == "customized_backoff":
        assert policy.customized_backoff.next


def test_customized_backoff_for_node_becomes_exponential() -> None:
    backoff = CustomizedBackoff((1_000, 5_000, 60_000))
    policy = effective_settings(
        consumer_settings(language=Language.NODE_JS), GroupConfig("g", backoff=backoff), OPTIONS
    )
    exponential = policy.backoff_policy.exponential_backoff
    assert (exponential.initial.seconds, exponential.max.seconds, exponential.multiplier) == (1, 60, 2.0)


def test_exponential_backoff_for_python_becomes_customized_in_whole_seconds() -> None:
    group = GroupConfig("g", retries=4, backoff=ExponentialBackoff(1_500, 10_000, 2.0))
    effective = effective_settings(consumer_settings(language=Language.PYTHON), group, OPTIONS)
    assert seconds(effective.backoff_policy) == [2, 3, 6, 10]
    assert not any(item.nanos for item in effective.backoff_policy.customized_backoff.next)
    many = GroupConfig("g", retries=1_000, backoff=ExponentialBackoff())
    assert (
        len(seconds(effective_settings(consumer_settings(language=Language.PYTHON), many, OPTIONS).backoff_policy))
        <= 32
    )


@pytest.mark.parametrize("kind", LITE_CONSUMER_TYPES)
@pytest.mark.parametrize(("quota", "expected"), [(None, 2_000), (7, 7), (0, 0), (-1, 2**31 - 1)])
def test_lite_consumers_get_the_quota_of_their_group(kind: ClientType, quota: int | None, expected: int) -> None:
    group = GroupConfig("g", lite_subscription_quota=quota)
    subscription = effective_settings(consumer_settings(kind=kind), group, OPTIONS).subscription
    assert subscription.lite_subscription_quota == expected
    assert subscription.max_lite_topic_size == 64


@pytest.mark.parametrize("settings", [producer_settings(), consumer_settings()])
def test_metrics_are_on_only_with_a_collector(settings: Settings) -> None:
    settings.metric.on = True
    assert not effective_settings(settings, None, OPTIONS).metric.on
    effective = effective_settings(settings, None, GatewayOptions(metric_collector=HostPort("otel.test", 4317))).metric
    assert effective.on
    assert (effective.endpoints.scheme, effective.endpoints.addresses[0].port) == (AddressScheme.DOMAIN_NAME, 4317)
    assert isinstance(effective.endpoints, Endpoints)


def test_settings_beyond_the_size_limits_are_rejected() -> None:
    check_settings(producer_settings(*map(str, range(1_000))))
    check_settings(consumer_settings(topics=[*map(str, range(1_000))]))
    assert rejection_code(producer_settings(*map(str, range(1_001)))) == Code.BAD_REQUEST
    assert rejection_code(consumer_settings(topics=[*map(str, range(1_001))])) == Code.BAD_REQUEST
    large_settings = producer_settings()
    large_settings.user_agent.hostname = "x" * 2**18
    assert rejection_code(large_settings) == Code.BAD_REQUEST


def test_maximum_number_of_attempts_is_kept() -> None:
    effective = effective_settings(consumer_settings(), GroupConfig("g", retries=2**31 - 1), OPTIONS)
    assert effective.backoff_policy.max_attempts == 2**31 - 1
