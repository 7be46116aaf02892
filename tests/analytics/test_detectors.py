"""Detectors of errors, redelivery, stalls, hot keys, skewed queues and noisy neighbours, with their common factors."""

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from analytics.transforms.balance import balance
from analytics.transforms.errors import errors
from analytics.transforms.hot_keys import hot_keys
from analytics.transforms.neighbours import neighbours
from analytics.transforms.queues import queues
from analytics.transforms.redelivery import redelivery
from tests.analytics import frames as kit


def test_errors_have_meanings(spark: SparkSession) -> None:
    rows = [kit.failed(kit.at(0)), kit.failed(kit.at(1)), kit.send(kit.at(2))]
    rows += [kit.failed(kit.at(3)) | {"response": 215, "protocol": "remoting", "code": "SEND_MESSAGE_V2"}]
    rows += [kit.failed(kit.at(3)) | {"response": 777}]
    answer = errors(kit.requests(spark, rows), None).select("protocol", "response", "meaning", "requests")
    expected = kit.expected(
        spark,
        "protocol string, response int, meaning string, requests long",
        [
            ("grpc", 50001, "internal server error", 2),
            ("remoting", 215, "flow control", 1),
            ("grpc", 777, "code 777", 1),
        ],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)


def test_redelivery_counts_each_way_of_trying_again(spark: SparkSession) -> None:
    rows = [
        kit.receive(kit.at(0), messages=3),
        kit.receive(kit.at(0), messages=2, attempt=4),
        kit.receive(kit.at(0), messages=0, attempt=None),
        kit.receive(kit.at(0), code="CONSUMER_SEND_MSG_BACK"),
        kit.receive(kit.at(0), code="ChangeInvisibleDuration"),
        kit.receive(kit.at(0), code="ForwardMessageToDeadLetterQueue"),
        kit.receive(kit.at(0), code="PULL_MESSAGE", topic="%RETRY%shop%orders-billing", attempt=None, messages=7),
    ]
    answer = redelivery(kit.requests(spark, rows), None)
    expected = kit.expected(
        spark,
        "group string, topic string, delivered long, redelivered long, send_backs long, nacks long, dead_letters long, "
        "highest_attempt int, redelivery_rate double",
        [
            ("shop%orders-billing", "shop%orders", 5, 2, 1, 1, 1, 4, 0.4),
            ("shop%orders-billing", "%RETRY%shop%orders-billing", 7, 7, 0, 0, 0, None, 1.0),
        ],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)


def test_backlog_is_sent_minus_received(spark: SparkSession) -> None:
    rows = [
        kit.send(kit.at(0), messages=10),
        kit.receive(kit.at(1), messages=4),
        kit.receive(kit.at(1), messages=2, attempt=2),
        kit.receive(kit.at(2), code="AckMessage", messages=4),
        kit.send(kit.at(6), messages=5),
        # More than was sent: messages from before the records.
        kit.receive(kit.at(11), messages=20),
        kit.send(kit.at(16), messages=1),
        kit.send(kit.at(0), topic="nobody-reads-this"),
    ]
    answer = balance(kit.requests(spark, rows)).drop("topic", "group")
    expected = kit.expected(
        spark,
        "time timestamp, sent long, received long, redelivered long, acked long, backlog long, wait_s double",
        [
            (kit.at(0), 10, 4, 2, 4, 6, 6 / (4 / 300)),
            (kit.at(5), 5, 0, 0, 0, 11, None),
            (kit.at(10), 0, 20, 0, 0, 0, 0.0),
            (kit.at(15), 1, 0, 0, 0, 1, None),
        ],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)


def test_hot_keys_and_queues_have_shares(spark: SparkSession) -> None:
    rows = []
    for half_hour in range(8):
        hot = half_hour == 4
        rows += [
            kit.send(kit.at(half_hour * 30 + n / 10), key_hash=-5 if hot and n % 4 else n % 50, queue=n % 8)
            for n in range(200)
        ]
        rows += [kit.send(kit.at(half_hour * 30), key_hash=None, queue=3) for _ in range(300 if hot else 0)]
    requests = kit.requests(spark, rows)
    first = kit.contents(hot_keys(requests.where("minute(time) < 30 AND hour(time) = 2"), top=1))
    assert [(row["key_hash"], row["messages"], row["share"]) for row in first] == [(-5, 150, 0.75)]
    shares = kit.contents(queues(requests.where("hour(time) = 0")))
    assert {(row["queue"], row["share"], row["fair_share"]) for row in shares} == {(n, 0.125, 0.125) for n in range(8)}


def test_a_neighbour_is_compared_with_its_own_past(spark: SparkSession) -> None:
    rows = []
    for minute in range(0, 300, 5):
        rows += [kit.send(kit.at(minute), client_id="large") for _ in range(100)]
        rows += [kit.send(kit.at(minute), client_id="loud") for _ in range(24 if 100 <= minute < 110 else 2)]
        # Fifteen times its usual load, but below the minimum.
        rows += [kit.send(kit.at(minute), client_id="brief") for _ in range(15 if minute == 200 else 1)]
        rows += [kit.send(kit.at(minute), client_id=None) for _ in range(40)]
    requests = kit.requests(spark, rows)
    loudest = max(kit.contents(neighbours(requests).where("client_id = 'loud'")), key=lambda row: row["ratio"])
    assert (loudest["client_id"], loudest["requests"], loudest["usual"], loudest["ratio"]) == ("loud", 24, 2.0, 12.0)
