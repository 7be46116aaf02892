"""Seasons, capacity and quotas."""

from datetime import timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from analytics.facts import Limits
from analytics.transforms import globs, quotas
from analytics.transforms.capacity import daily, forecast
from analytics.transforms.quotas import unsupported_limits, what_if
from protos.apache.rocketmq.v2 import service_pb2
from proxy.traffic_rules.parsing import parse
from remoting.codes import RequestCode
from remoting.requests import REQUESTS
from tests.analytics import frames as kit


def test_forecast_gives_growth_and_day_of_the_limit(spark: SparkSession) -> None:
    rows = []
    for day in range(5):
        for hour in range(24):
            # 3600 requests an hour are one per second: the busy hour grows by one per second and day.
            per_second = (10 + day) if hour == 13 else 2
            rows.append(kit.send(kit.at(day * 1440 + hour * 60), weight=3600.0 * per_second, bytes_in=10))
    requests = kit.requests(spark, rows)
    limits = Limits(requests_per_s=20, messages_per_s=1000, bytes_per_s=1e6, replicas=2, headroom=0.5, ahead_days=30)
    answer = {row["measure"]: row for row in kit.contents(forecast(requests, limits, "Europe/Berlin"))}
    line = answer["requests_per_s"]
    # 13:00 UTC is 15:00 in Berlin's summer; its last day has not 24 hours in UTC, but 22.
    assert (line["busy_hour"], line["peak"], line["limit"]) == (15, 14.0, 20.0)
    assert line["per_day"] == pytest.approx(1.0)
    assert line["fit"] == pytest.approx(1.0)
    assert line["days_until_limit"] == pytest.approx(6.0)
    assert (line["replicas_needed"], line["replicas_ahead"]) == (2, 5)
    assert kit.contents(daily(requests.limit(1)))[0]["hours"] == 1
    one_day = kit.contents(forecast(requests.where(f.col("time") < f.lit(kit.at(1440))), limits))
    assert {(row["per_day"], row["days_until_limit"]) for row in one_day} == {(None, None)}


RULES = """
[[rule]]
name = "per-client"
kind = "limit"
messages = 10
burst = 2
per = ["client"]
match = { topics = ["shop%*"], networks = ["10.0.0.0/8"] }

[[rule]]
name = "reads"
kind = "limit"
bytes = 100
match = { groups = ["shop%orders-?illing"], version_below = "5.1" }

[[rule]]
name = "by-certificate"
kind = "limit"
requests = 1
match = { subjects = ["CN=a"] }
"""


def test_what_if_lists_subjects_over_a_limit(spark: SparkSession) -> None:
    rules = parse(RULES)
    burst = [kit.send(kit.at(0, second), client_id="bursty", messages=25) for second in (0, 1, 10)]
    steady = [kit.send(kit.at(0, second), client_id="steady", messages=10) for second in range(20)]
    elsewhere = [
        kit.send(kit.at(0), client_id="far", messages=500, address=address) for address in ("192.168.0.1", None, "::1")
    ]
    foreign = [kit.send(kit.at(0), client_id="foreign", messages=500, topic="bank%x")]
    readers = [
        kit.receive(kit.at(1), client_id="reader", bytes_out=150),
        kit.receive(kit.at(1, 1), client_id="reader", bytes_out=50, version=None),
        kit.receive(kit.at(1, 1), client_id="reader", bytes_out=500, group="shop%orders-search"),
    ]
    requests = kit.requests(spark, [*burst, *steady, *elsewhere, *foreign, *readers])
    answer = what_if(requests, rules)
    expected = kit.expected(
        spark,
        "rule string, unit string, subject string, limit double, peak double, seconds_over long, refused double, "
        "held double, over_share double, first timestamp, last timestamp",
        [
            # A bucket of 20: 5 beyond it, then 15 beyond the 10 that were refilled, then 5.
            ("per-client", "messages", "bursty", 10.0, 25.0, 3, 25.0, 0.0, 25 / 75, kit.at(0), kit.at(0, 10)),
            ("reads", "bytes", "*", 100.0, 150.0, 1, 0.0, 50.0, 50 / 150, kit.at(1), kit.at(1)),
        ],
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)
    assert unsupported_limits(rules) == {"by-certificate": "request records do not contain subjects"}


def test_rpcs_are_in_the_contract_and_map_to_known_requests() -> None:
    methods = {method.name for method in service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods}
    assert quotas._RPCS.keys() <= methods
    assert all(RequestCode[name] in REQUESTS for names in quotas._RPCS.values() for name in names)


def test_rpc_counts_for_limits_of_its_requests_only(spark: SparkSession) -> None:
    rows = [kit.send(kit.at(0), code=code) for code in ("QueryOffset", "QueryRoute") for _ in range(3)]
    names = '["GET_MAX_OFFSET", "GET_ROUTEINFO_BY_TOPIC"]'
    rules = parse(f'[[rule]]\nname = "few"\nkind = "limit"\nrequests = 1\nmatch.requests = {names}\n')
    assert kit.only(what_if(kit.requests(spark, rows), rules))["peak"] == 3.0


def test_a_whole_hour_within_the_limit_is_not_listed(spark: SparkSession) -> None:
    rules = parse('[[rule]]\nname = "all"\nkind = "limit"\nrequests = 1\n')
    rows = [kit.send(kit.at(0) + timedelta(seconds=second)) for second in range(0, 3600, 7)]
    assert what_if(kit.requests(spark, rows), rules).collect() == []
    assert what_if(kit.requests(spark, rows), parse("")).collect() == []


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("shop%*", ["shop%", "shop%a.b"], ["shop", "xshop%a"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("[ab]-[!0-9]", ["a-x", "b--"], ["c-x", "a-1"]),
        ("a.b+(c)|$", ["a.b+(c)|$"], ["aXb+(c)|$", "a.bb(c)"]),
        ("[", ["["], ["x"]),
    ],
)
def test_globs_equal_those_of_the_rules(spark: SparkSession, glob: str, yes: list[str], no: list[str]) -> None:
    frame = spark.createDataFrame([(text,) for text in (*yes, *no, None)], "text string")
    matched = frame.where(globs.any_glob(f.col("text"), [glob])).collect()
    assert [row.text for row in matched] == yes
