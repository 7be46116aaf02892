"""Detectors of errors, redelivery, stalls, hot keys, skewed queues and noisy neighbours, with their common factors."""

from typing import Any

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from analytics.transforms.balance import balance, stalls
from analytics.transforms.episodes import without_overlaps
from analytics.transforms.errors import bursts, errors
from analytics.transforms.hot_keys import findings, hot_keys
from analytics.transforms.neighbours import neighbours, noisy
from analytics.transforms.queues import queues, skewed
from analytics.transforms.redelivery import redelivery, storms
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


def test_error_burst_names_its_client(spark: SparkSession) -> None:
    rows = []
    for minute in range(0, 300, 5):
        rows += [kit.send(kit.at(minute), client_id=f"p{n % 3}", broker=f"broker-{n % 2}") for n in range(12)]
        if 100 <= minute < 120 or 200 <= minute < 205:
            rows += [kit.failed(kit.at(minute), client_id="p1", broker=f"broker-{n % 2}") for n in range(12)]
    found = sorted(kit.contents(bursts(kit.requests(spark, rows))), key=lambda finding: finding["start"])
    assert [(each["start"], each["end"]) for each in found] == [(kit.at(100), kit.at(120)), (kit.at(200), kit.at(205))]
    assert {(each["topic"], each["client_id"], each["broker"]) for each in found} == {("shop%orders", "p1", None)}
    assert found[0]["text"] == (
        "50.0 % of the requests at topic shop%orders failed (48 of 96; usually 0.2 %); 100 % of it at client p1"
    )


def test_failing_broker_is_reported_once(spark: SparkSession) -> None:
    rows = []
    for minute in range(0, 300, 5):
        for topic in ("a", "b"):
            rows += [
                kit.send(kit.at(minute), topic=topic, broker=f"broker-{n % 2}", client_id=f"p{n % 5}")
                for n in range(20)
            ]
            if minute == 100:
                rows += [
                    kit.failed(kit.at(minute), topic=topic, broker="broker-1", client_id=f"p{n}") for n in range(10)
                ]
    found = kit.only(bursts(kit.requests(spark, rows)))
    assert (found["subject"], found["broker"], found["topic"]) == ("broker-1", "broker-1", None)


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


def test_redelivery_storm_names_the_failing_consumer(spark: SparkSession) -> None:
    rows = []
    for minute in range(0, 600, 5):
        storm = 200 <= minute < 240
        for consumer in ("c1", "c2", "c3"):
            bad = storm and consumer == "c2"
            rows += [kit.receive(kit.at(minute), client_id=consumer, attempt=5 if bad else 1) for _ in range(8)]
            rows += [
                kit.receive(kit.at(minute), client_id=consumer, code="ForwardMessageToDeadLetterQueue")
                for _ in range(6 if bad else 0)
            ]
    # Windows of either length contain it, and it is reported once.
    found = kit.contents(storms(kit.requests(spark, rows)))
    assert sorted(each["kind"] for each in found) == ["dlq_storm", "redelivery_storm"]
    for each in found:
        assert (each["group"], each["client_id"]) == ("shop%orders-billing", "c2")
        assert (each["start"], each["end"]) == (kit.at(200), kit.at(240))


def _refusals(group: str, bad: set[int]) -> list[kit.Row]:
    """Return eight answers every ten minutes; in some windows three are refusals by one consumer."""
    rows = []
    for minute in range(0, 600, 10):
        refused = 3 if minute in bad else 0
        rows += [kit.receive(kit.at(minute), group=group, client_id=f"c{n % 3}") for n in range(8 - refused)]
        refusal = {"code": "ChangeInvisibleDuration", "messages": 0, "client_id": "c2"}
        rows += [kit.receive(kit.at(minute), group=group, **refusal) for _ in range(refused)]
    return rows


def test_thin_storm_is_found_in_longer_overlapping_windows(spark: SparkSession) -> None:
    rows = [
        *_refusals("in-one", {200, 210, 220, 230}),
        # Neither of two consecutive windows is remarkable alone.
        *_refusals("across-two", {220, 230, 240, 250}),
        *_refusals("now-and-then", {0, 130, 200, 390, 410, 590}),
    ]
    requests = kit.requests(spark, rows)
    short, long = ("10 minutes", "0 minutes"), ("40 minutes", "0 minutes")
    assert storms(requests, [short]).collect() == []
    assert [found["group"] for found in kit.contents(storms(requests, [short, long]))] == ["in-one"]
    found = {each["group"]: each for each in kit.contents(storms(requests))}
    times = {group: (each["start"], each["end"]) for group, each in found.items()}
    assert times == {"in-one": (kit.at(200), kit.at(240)), "across-two": (kit.at(220), kit.at(260))}
    for each in found.values():
        assert (each["kind"], each["client_id"]) == ("redelivery_storm", "c2")
        assert (each["observed"], each["severity"]) == (12 / 32, "warning")


def test_without_overlaps_drops_episodes_of_earlier_frames(spark: SparkSession) -> None:
    columns = "subject string, start timestamp, end timestamp"
    frames: list[list[tuple[Any, ...]]] = [
        [
            ("a", kit.at(40), kit.at(50)),
            ("a", kit.at(60), kit.at(70)),
            ("c", kit.at(40), kit.at(50)),
        ],
        [("a", kit.at(40), kit.at(60)), ("b", kit.at(40), kit.at(60)), ("b", kit.at(120), kit.at(140))],
        [
            # Around two of the first frame; of a subject only in the second; of one in no other frame.
            ("a", kit.at(40), kit.at(80)),
            ("b", kit.at(0), kit.at(80)),
            ("d", kit.at(40), kit.at(80)),
            # Adjacent spans do not overlap.
            ("c", kit.at(0), kit.at(40)),
            ("c", kit.at(50), kit.at(80)),
            (None, kit.at(40), kit.at(80)),
        ],
    ]
    answer = without_overlaps([kit.expected(spark, columns, rows) for rows in frames], ["subject"])
    told = [*frames[0], *frames[1][1:], *frames[2][2:]]
    assert_df_equality(answer, kit.expected(spark, columns, told), ignore_row_order=True, ignore_nullable=True)


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


def test_stall_is_found_while_producers_continue(spark: SparkSession) -> None:
    rows = []
    for minute in range(0, 600, 2):
        silent = minute >= 500
        rows += [] if silent else [kit.send(kit.at(minute), messages=10)]
        if not (200 <= minute < 240 or silent):
            rows += [kit.receive(kit.at(minute), messages=10)]
        # Another group of the topic keeps up.
        rows += [] if silent else [kit.receive(kit.at(minute), group="shop%orders-search", messages=10)]
    found = kit.only(stalls(kit.requests(spark, rows)))
    assert (found["group"], found["start"], found["end"]) == ("shop%orders-billing", kit.at(200), kit.at(240))
    assert found["text"].startswith("group shop%orders-billing took 0 messages of topic shop%orders, where 200 were")


def test_hot_key_is_found(spark: SparkSession) -> None:
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
    found = kit.only(findings(requests))
    assert (found["topic"], found["start"], found["end"]) == ("shop%orders", kit.at(120), kit.at(150))
    assert "75 % of what came to topic shop%orders with a key had one, hash fffffffffffffffb" in found["text"]
    shares = kit.contents(queues(requests.where("hour(time) = 0")))
    assert {(row["queue"], row["share"], row["fair_share"]) for row in shares} == {(n, 0.125, 0.125) for n in range(8)}
    skew = kit.only(skewed(requests))
    assert (skew["topic"], skew["broker"], skew["start"]) == ("shop%orders", "broker-a", kit.at(120))
    assert skew["text"].startswith("queue 3 of shop%orders at broker-a got 65 % of the messages")


def test_a_key_is_hot_in_a_small_topic_too_unless_it_may_be_chance(spark: SparkSession) -> None:
    rows = []
    for half_hour in range(8):
        for topic, messages, hot in (("small", 36, 24), ("chance", 80, 22), ("tiny", 12, 12)):
            keys = [-5 if half_hour == 4 and n < hot else n % 12 for n in range(messages)]
            rows += [kit.send(kit.at(half_hour * 30), topic=topic, key_hash=key) for key in keys]
    found = kit.only(findings(kit.requests(spark, rows)))
    assert (found["topic"], found["start"], found["end"]) == ("small", kit.at(120), kit.at(150))
    assert (found["observed"], found["expected"]) == (24 / 36, 3 / 36)


def test_a_neighbour_is_noisy_against_its_own_past(spark: SparkSession) -> None:
    rows = []
    for minute in range(0, 300, 5):
        rows += [kit.send(kit.at(minute), client_id="large") for _ in range(100)]
        rows += [kit.send(kit.at(minute), client_id="loud") for _ in range(24 if 100 <= minute < 110 else 2)]
        # Fifteen times its usual load, but below the minimum.
        rows += [kit.send(kit.at(minute), client_id="brief") for _ in range(15 if minute == 200 else 1)]
        rows += [kit.send(kit.at(minute), client_id=None) for _ in range(40)]
    requests = kit.requests(spark, rows)
    found = kit.only(noisy(requests))
    assert (found["client_id"], found["tenant"], found["start"], found["end"]) == (
        "loud",
        "shop",
        kit.at(100),
        kit.at(110),
    )
    loudest = max(kit.contents(neighbours(requests).where("client_id = 'loud'")), key=lambda row: row["ratio"])
    assert (loudest["client_id"], loudest["requests"], loudest["usual"], loudest["ratio"]) == ("loud", 24, 2.0, 12.0)
