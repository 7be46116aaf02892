import pytest

from grpc_gateway.clients.client_settings import check_settings, effective_settings
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
from tests.grpc_gateway.kit import ENDPOINTS, consumer_settings, producer_settings

OPTIONS = GatewayOptions()
EVERY_CONSUMER = [kind for kind in ClientType.values() if kind > ClientType.PRODUCER]
LITE = (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER)


def refusal(settings: Settings) -> int:
    with pytest.raises(Refused) as refused:
        check_settings(settings)
    return refused.value.code


def seconds(policy: RetryPolicy) -> list[int]:
    return [one.seconds for one in policy.customized_backoff.next]


# What is refused.


@pytest.mark.parametrize("kind", EVERY_CONSUMER)
def test_every_kind_of_client_is_taken(kind: ClientType) -> None:
    check_settings(consumer_settings(kind=kind))
    check_settings(producer_settings())


@pytest.mark.parametrize("kind", [ClientType.CLIENT_TYPE_UNSPECIFIED, 99])
def test_an_unknown_kind_is_not(kind: int) -> None:
    settings = producer_settings()
    settings.client_type = kind  # type: ignore[assignment]
    assert refusal(settings) == Code.UNRECOGNIZED_CLIENT_TYPE


def test_the_kind_and_the_settings_agree() -> None:
    assert refusal(Settings(client_type=ClientType.PRODUCER)) == Code.BAD_REQUEST
    subscription = Subscription(group=Resource(name="g"))
    assert refusal(Settings(client_type=ClientType.PRODUCER, subscription=subscription)) == Code.BAD_REQUEST
    assert refusal(Settings(client_type=ClientType.PUSH_CONSUMER, publishing=Publishing())) == Code.BAD_REQUEST


def test_names_are_looked_at() -> None:
    assert refusal(producer_settings("no such topic")) == Code.ILLEGAL_TOPIC
    assert refusal(consumer_settings("")) == Code.ILLEGAL_CONSUMER_GROUP
    assert refusal(consumer_settings(topics=("TBW102",))) == Code.ILLEGAL_TOPIC


def test_a_producer_may_have_no_topic_yet() -> None:
    check_settings(Settings(client_type=ClientType.PRODUCER, publishing=Publishing()))


def test_an_empty_sql_filter_filters_nothing() -> None:
    settings = consumer_settings()
    expression = settings.subscription.subscriptions[0].expression
    expression.type, expression.expression = FilterType.SQL, " "
    assert refusal(settings) == Code.ILLEGAL_FILTER_EXPRESSION


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
def test_client_properties_are_bounded(properties: dict[str, str]) -> None:
    settings = producer_settings()
    settings.client_properties.update(properties)
    assert refusal(settings) == Code.INVALID_CLIENT_PROPERTIES


def test_client_properties_at_the_bounds_are_taken() -> None:
    settings = producer_settings()
    settings.client_properties.update({f"{'k' * 62}{number:02}": "ё" * 20 for number in range(32)})
    settings.client_properties.update({"a.b_c-D": "v"} if len(settings.client_properties) < 32 else {})
    check_settings(settings)


# What is told.


def test_what_the_client_said_comes_back() -> None:
    settings = consumer_settings()
    settings.access_point.CopyFrom(ENDPOINTS)
    settings.request_timeout.seconds = 3
    settings.subscription.group.resource_namespace = "ns"
    told = effective_settings(settings, None, OPTIONS)
    assert told.access_point == ENDPOINTS
    assert told.request_timeout.seconds == 3
    assert told.user_agent == settings.user_agent
    assert told.subscription.group == settings.subscription.group
    assert told.subscription.subscriptions == settings.subscription.subscriptions
    assert not settings.HasField("metric")


def test_a_producer_is_told_how_to_repeat_and_what_is_too_large() -> None:
    told = effective_settings(producer_settings(), None, OPTIONS)
    policy = told.backoff_policy
    assert policy.max_attempts == 3
    # Node's producers insist on it.
    assert policy.WhichOneof("strategy") == "exponential_backoff"
    assert policy.exponential_backoff.initial.nanos == 10_000_000
    assert policy.exponential_backoff.max.seconds == 1
    assert policy.exponential_backoff.multiplier == 2
    assert told.publishing.max_body_size == 4 * 2**20
    assert told.publishing.validate_message_type
    assert told.WhichOneof("pub_sub") == "publishing"


def test_a_consumer_is_told_what_its_group_is_like() -> None:
    group = GroupConfig("g", orderly=True, retries=2, backoff=ExponentialBackoff(1_500, 9_000, 3.0))
    told = effective_settings(consumer_settings(), group, OPTIONS)
    assert told.subscription.fifo
    assert told.subscription.receive_batch_size == 32
    assert told.subscription.long_polling_timeout.seconds == 20
    assert told.backoff_policy.max_attempts == 3
    backoff = told.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.initial.nanos) == (1, 500_000_000)
    assert (backoff.max.seconds, backoff.multiplier) == (9, 3.0)
    assert not told.subscription.HasField("lite_subscription_quota")


def test_without_a_configuration_the_defaults_are_told() -> None:
    told = effective_settings(consumer_settings(), None, OPTIONS)
    assert not told.subscription.fifo
    assert told.backoff_policy.max_attempts == 17
    assert seconds(told.backoff_policy)[:4] == [1, 5, 10, 30]
    assert len(seconds(told.backoff_policy)) == 18


@pytest.mark.parametrize("language", Language.values())
@pytest.mark.parametrize("backoff", [CustomizedBackoff((500,)), CustomizedBackoff(), ExponentialBackoff()])
def test_no_client_is_left_without_a_strategy_that_it_understands(
    language: Language, backoff: CustomizedBackoff | ExponentialBackoff
) -> None:
    settings = consumer_settings(language=language)
    policy = effective_settings(settings, GroupConfig("g", backoff=backoff), OPTIONS).backoff_policy
    strategy = policy.WhichOneof("strategy")
    own = "customized_backoff" if isinstance(backoff, CustomizedBackoff) else "exponential_backoff"
    wanted = {Language.NODE_JS: "exponential_backoff", Language.PYTHON: "customized_backoff"}
    assert strategy == wanted.get(language, own)
    if strategy == "customized_backoff":
        assert policy.customized_backoff.next


def test_a_ladder_for_node_is_a_curve() -> None:
    backoff = CustomizedBackoff((1_000, 5_000, 60_000))
    policy = effective_settings(
        consumer_settings(language=Language.NODE_JS), GroupConfig("g", backoff=backoff), OPTIONS
    )
    curve = policy.backoff_policy.exponential_backoff
    assert (curve.initial.seconds, curve.max.seconds, curve.multiplier) == (1, 60, 2.0)


def test_a_curve_for_python_is_a_ladder_of_whole_seconds() -> None:
    group = GroupConfig("g", retries=4, backoff=ExponentialBackoff(1_500, 10_000, 2.0))
    told = effective_settings(consumer_settings(language=Language.PYTHON), group, OPTIONS)
    assert seconds(told.backoff_policy) == [2, 3, 6, 10]
    assert not any(one.nanos for one in told.backoff_policy.customized_backoff.next)
    many = GroupConfig("g", retries=1_000, backoff=ExponentialBackoff())
    assert (
        len(seconds(effective_settings(consumer_settings(language=Language.PYTHON), many, OPTIONS).backoff_policy))
        <= 32
    )


@pytest.mark.parametrize("kind", LITE)
@pytest.mark.parametrize(("quota", "told"), [(None, 2_000), (7, 7), (0, 0), (-1, 2**31 - 1)])
def test_lite_consumers_are_told_their_quota(kind: ClientType, quota: int | None, told: int) -> None:
    group = GroupConfig("g", lite_subscription_quota=quota)
    subscription = effective_settings(consumer_settings(kind=kind), group, OPTIONS).subscription
    assert subscription.lite_subscription_quota == told
    assert subscription.max_lite_topic_size == 64


@pytest.mark.parametrize("settings", [producer_settings(), consumer_settings()])
def test_metrics_go_where_somebody_takes_them(settings: Settings) -> None:
    settings.metric.on = True
    assert not effective_settings(settings, None, OPTIONS).metric.on
    told = effective_settings(settings, None, GatewayOptions(metric_collector=HostPort("otel.test", 4317))).metric
    assert told.on
    assert (told.endpoints.scheme, told.endpoints.addresses[0].port) == (AddressScheme.DOMAIN_NAME, 4317)
    assert isinstance(told.endpoints, Endpoints)


def test_settings_are_bounded() -> None:
    check_settings(producer_settings(*map(str, range(1_000))))
    check_settings(consumer_settings(topics=[*map(str, range(1_000))]))
    assert refusal(producer_settings(*map(str, range(1_001)))) == Code.BAD_REQUEST
    assert refusal(consumer_settings(topics=[*map(str, range(1_001))])) == Code.BAD_REQUEST
    large = producer_settings()
    large.user_agent.hostname = "x" * 2**18
    assert refusal(large) == Code.BAD_REQUEST


def test_a_group_may_retry_for_ever() -> None:
    told = effective_settings(consumer_settings(), GroupConfig("g", retries=2**31 - 1), OPTIONS)
    assert told.backoff_policy.max_attempts == 2**31 - 1
