"""Load, latency and roll-ups: sums, histograms, days."""

from datetime import UTC, datetime

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from analytics.transforms import histogram
from analytics.transforms.hot_topics import hot_topics
from analytics.transforms.latency import latency
from analytics.transforms.load import load
from analytics.transforms.periods import seconds, start
from analytics.transforms.rollup import SERVICE, SUMS, rollup
from tests.analytics import frames as kit


def test_load_by_protocol_and_hour(spark: SparkSession) -> None:
    rows = [
        kit.send(kit.at(59, 59.9)),
        kit.failed(kit.at(0)),
        kit.send(kit.at(60), protocol="remoting", messages=3),
        kit.send(kit.at(61), protocol=None, weight=2.5),
        kit.send(kit.at(62), protocol=None, weight=2.5),
    ]
    expected = kit.expected(
        spark,
        "time timestamp, protocol string, requests long, errors long, messages long, bytes_in long, bytes_out long, "
        "error_rate double",
        [
            (kit.at(0), "grpc", 2, 1, 1, 200, 0, 0.5),
            (kit.at(60), "remoting", 1, 0, 3, 100, 0, 0.0),
            # A sampled record counts with its weight.
            (kit.at(60), None, 5, 0, 5, 500, 0, 0.0),
        ],
    )
    assert_df_equality(load(kit.requests(spark, rows)), expected, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.parametrize(
    ("day", "hours"),
    [((2026, 10, 25), 25), ((2026, 3, 29), 23), ((2026, 10, 24), 24)],
    ids=["clocks go back", "clocks go forward", "an ordinary day"],
)
def test_a_local_day_has_the_hours_that_the_clock_gives_it(
    spark: SparkSession, day: tuple[int, int, int], hours: int
) -> None:
    noon = datetime(*day, 12, tzinfo=UTC).timestamp()
    # A request every half hour of the days around.
    times = spark.range(-96, 96).select(f.timestamp_seconds(f.col("id") * 1800 + noon).alias("time"))
    counts = times.groupBy(start("1 day", "Europe/Berlin").alias("day")).count()
    by_day = {f"{row['day']:%Y-%m-%d %H}": row["count"] for row in kit.contents(counts)}
    # Local midnight, in UTC.
    assert sorted(by_day.values()).count(48) >= 2
    local = {stamp: count for stamp, count in by_day.items() if count == 2 * hours}
    assert local, by_day
    first = datetime(*day, tzinfo=UTC).timestamp()
    assert any(abs(datetime.strptime(s, "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp() - first) <= 7200 for s in local)


@pytest.mark.parametrize("every", ["5", "0 minutes", "a day", "-1 hour"])
def test_invalid_period_raises_a_sentence(every: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        seconds(every)


def test_unknown_zone_raises_a_sentence(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="'Mars' is no time zone"):
        start("1 day", "Mars")
    with pytest.raises(ValueError, match="'1 day' and '1 week'"):
        start("2 days")


def test_percentiles_are_within_two_percent_and_extremes_have_a_place(spark: SparkSession) -> None:
    values = [0, 1, 7, 500_000_000, *range(1000, 11_000, 10)]
    rows = [kit.send(kit.at(0), latency_us=value) for value in values]
    answer = kit.only(latency(kit.requests(spark, rows), by=("topic",), every=None))
    ordered = sorted(values)
    for name, share in {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99}.items():
        exact = ordered[int(share * len(ordered))]
        assert answer[name] == pytest.approx(exact, rel=0.025)
    assert answer["requests"] == len(values)
    assert sum(entry["count"] for entry in answer["latency"]) == len(values)
    bounds = spark.range(1).select(
        *(histogram.value(histogram.bucket(f.lit(value))).alias(str(value)) for value in (1, 10, 10**6, 6 * 10**8))
    )
    for name, value in kit.only(bounds).items():
        assert value == pytest.approx(float(name), rel=histogram.ACCURACY + 1e-9)


def test_hours_add_up_to_days_and_halves_to_the_whole(spark: SparkSession) -> None:
    rows = [kit.send(kit.at(minute * 37), latency_us=minute**3, topic=f"t{minute % 3}") for minute in range(60)]
    records = kit.requests(spark, rows)
    at_once = rollup(records, SERVICE, "1 day")
    in_steps = rollup(rollup(records, SERVICE, "1 hour"), SERVICE, "1 day")
    early = f.col("time") < f.lit(kit.at(900))
    halves = rollup(records.where(early), SERVICE, "1 hour").unionByName(
        rollup(records.where(~early), SERVICE, "1 hour")
    )
    for merged in (in_steps, rollup(halves, SERVICE, "1 day")):
        assert_df_equality(merged, at_once, ignore_row_order=True, ignore_nullable=True)
    without = rollup(at_once, ("topic",), None, latency=False)
    assert without.columns == ["topic", *SUMS, "attempt"]
    with pytest.raises(ValueError, match="needs the column client_id; the frame has"):
        rollup(at_once, ("client_id",))


def test_hot_topics_are_ranked_with_their_share(spark: SparkSession) -> None:
    rows = [kit.send(kit.at(n), topic="a", messages=6) for n in range(2)]
    rows += [
        kit.send(kit.at(0), topic=topic, messages=messages) for topic, messages in (("b", 4), ("c", 4), (None, 99))
    ]
    answer = hot_topics(kit.requests(spark, rows), top=2).select("rank", "topic", "messages", "share")
    expected = kit.expected(
        spark, "rank int, topic string, messages long, share double", [(1, "a", 12, 0.6), (2, "b", 4, 0.2)]
    )
    assert_df_equality(answer, expected, ignore_row_order=True, ignore_nullable=True)
