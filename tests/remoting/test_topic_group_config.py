import orjson
import pytest

from remoting.errors import BodyError
from remoting.properties import MessageType
from remoting.topic_group_config import (
    DEFAULT_BACKOFF,
    CustomizedBackoff,
    ExponentialBackoff,
    GroupConfig,
    TopicConfig,
)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (None, MessageType.NORMAL),
        ({}, MessageType.NORMAL),
        ({"message.type": "FIFO"}, MessageType.FIFO),
        ({"message.type": "mixed"}, MessageType.MIXED),
        ({"message.type": "QUANTUM"}, MessageType.UNSPECIFIED),
    ],
)
def test_topic_config_reads_the_message_type(attributes: object, expected: MessageType) -> None:
    body = orjson.dumps({"topicName": "orders", "attributes": attributes, "perm": 6})
    assert TopicConfig.parse(body) == TopicConfig("orders", expected)


def test_group_config_of_a_default_group() -> None:
    assert GroupConfig.parse(b'{"groupName":"g"}') == GroupConfig("g")
    assert GroupConfig("g").max_attempts == 17


def test_group_config_with_all_fields() -> None:
    body = orjson.dumps(
        {
            "groupName": "g",
            "consumeMessageOrderly": True,
            "retryMaxTimes": 3,
            "consumeEnable": False,
            "attributes": {"lite.sub.client.quota": "9", "lite.bind.topic": "rooms"},
            "groupRetryPolicy": {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 1000, "max": 60000, "multiplier": 3},
            },
        }
    )
    backoff = ExponentialBackoff(1000, 60000, 3.0)
    assert GroupConfig.parse(body) == GroupConfig("g", True, 3, backoff, False, 9, "rooms")


def test_group_config_with_customized_retry_delays() -> None:
    body = b'{"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000]}}}'
    assert GroupConfig.parse(body).backoff == CustomizedBackoff((1000, 2000))
    empty = b'{"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[]}}}'
    assert GroupConfig.parse(empty).backoff == CustomizedBackoff(DEFAULT_BACKOFF)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"retryMaxTimes":"many"}',
        b'{"attributes":[1]}',
        b'{"groupRetryPolicy":{"customizedRetryPolicy":{"next":["x"]}}}',
        b'{"groupRetryPolicy":[1]}',
    ],
)
def test_an_invalid_group_config_is_a_body_error(body: bytes) -> None:
    with pytest.raises(BodyError):
        GroupConfig.parse(body)


def test_an_invalid_topic_config_is_a_body_error() -> None:
    with pytest.raises(BodyError):
        TopicConfig.parse(b'{"attributes":[1]}')


@pytest.mark.parametrize(("attempt", "delay"), [(0, 1000), (1, 1000), (2, 2000), (3, 4000), (9, 60000), (10**9, 60000)])
def test_exponential_backoff_delays(attempt: int, delay: int) -> None:
    assert ExponentialBackoff(1000, 60000, 2.0).delay(attempt) == delay


@pytest.mark.parametrize(("attempt", "delay"), [(0, 1000), (1, 1000), (2, 5000), (18, 7_200_000), (99, 7_200_000)])
def test_customized_backoff_delays(attempt: int, delay: int) -> None:
    assert CustomizedBackoff().delay(attempt) == delay


@pytest.mark.parametrize("multiplier", [1e308, float("inf"), float("nan")])
def test_an_overflowing_multiplier_gives_the_longest_delay(multiplier: float) -> None:
    assert ExponentialBackoff(1000, 60000, multiplier).delay(3) == 60000


@pytest.mark.parametrize(("retries", "attempts"), [(-1, 1), (0, 1), (16, 17), (2**31 - 1, 2**31 - 1)])
def test_max_attempts_is_at_least_one(retries: int, attempts: int) -> None:
    assert GroupConfig("g", retries=retries).max_attempts == attempts
