"""Incidents: both engines sum the same, a small seed of field incidents is found, findings become incidents, mutes."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from analytics import records
from analytics.incidents import mutes
from analytics.incidents.baseline import usual_range
from analytics.incidents.detection import detect
from analytics.incidents.detectors.queues import clients, queues
from analytics.incidents.detectors.volume import volume
from analytics.incidents.engines import by_spark
from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.kinds import Kind
from analytics.incidents.merging import incidents
from analytics.incidents.tables import Tables
from analytics.incidents.wording import sentences
from analytics.jobs.incidents import find, lines
from analytics.jobs.report import Order
from tests.analytics import frames as kit
from tests.analytics.field import zscores
from tests.analytics.field.judging import judge
from tests.analytics.field.records import generate
from tests.analytics.field.truth import Planted
from tests.analytics.jobs.record_files import write
from tests.analytics.score import tables

_HOUR = 3600.0


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Planted]]:
    """Yield records of one seed of field incidents, with few of them and a third of the traffic."""
    root = tmp_path_factory.mktemp("field")
    return root, generate(root, 4, 0.35, 14)


def test_field_incidents_of_a_small_seed_are_found(field: tuple[Path, list[Planted]]) -> None:
    root, planted = field
    made = tables(root)
    judgement, simple = judge(detect(made), planted), judge(zscores.detect(made), planted)
    assert len(planted) >= 12
    assert judgement.recall >= 0.7
    assert judgement.precision >= 0.7
    assert simple.recall < judgement.recall


def test_a_version_that_stays_slow_does_not_make_slow_sends_usual(tmp_path: Path) -> None:
    """For a third of the time, half of a topic's sends take four times as long."""
    random = np.random.default_rng(1)
    rows = []
    for minute in range(0, 3 * 1440, 2):
        new = minute >= 2 * 1440 and minute % 4 == 0
        took = 5000 * np.exp(0.5 * random.standard_normal()) * (4 if new else 1)
        rows.append(kit.send(kit.at(minute), latency_us=int(took), version="6.0.0" if new else "5.0.7"))
    write(tmp_path, rows)
    made = tables(tmp_path)
    slow = made.events[made.events["event"] == "slow"].groupby("sdk")["n"].sum()
    assert slow["grpc JAVA 6.0.0"] > 0.25 * 360
    assert slow["grpc JAVA 5.0.7"] < 0.03 * 1800
    (incident,) = detect(made)
    assert (incident.kind, incident.about["version"]) == ("bad_rollout", "6.0.0")
    assert abs(incident.start - kit.at(2 * 1440).timestamp()) <= 900


def _rows() -> list[kit.Row]:
    rows = [kit.send(kit.at(minute), latency_us=1000 + minute, queue=minute % 4) for minute in range(0, 600, 3)]
    rows += [kit.failed(kit.at(300 + minute / 4), topic=None, broker=None) for minute in range(40)]
    rows += [kit.receive(kit.at(minute, 2), attempt=1 + minute % 2, queue=1) for minute in range(0, 600, 6)]
    rows += [
        kit.send(kit.at(9), delay_ms=60_000, weight=2.5, key_hash=7, topic="plain", address="::1") for _ in range(9)
    ]
    rows += [kit.send(kit.at(9), client_id=None, version=None, protocol=None, queue=None)]
    return rows


def _comparable(made: Tables, name: str) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(made, name)
    shown = frame.reindex(sorted(frame.columns), axis=1).astype(object)
    text: pd.DataFrame = shown.map(_text)
    return text.sort_values(list(text.columns)).reset_index(drop=True)


def _text(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return "null"
    return f"{float(value):.4f}" if isinstance(value, int | float | np.number) else str(value)


def test_spark_and_duckdb_make_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, _rows())
    closes = [kit.connection(kit.at(minute), event="close", cause="reset", connection=minute) for minute in range(9)]
    write(tmp_path, closes, of="connections")
    requests, connections = (records.read(spark, str(tmp_path), name).frame for name in ("requests", "connections"))
    by_engine = by_spark(requests, connections), tables(tmp_path)
    for name in Tables.__slots__:
        spark_made, duckdb_made = (_comparable(made, name) for made in by_engine)
        pd.testing.assert_frame_equal(spark_made, duckdb_made, check_dtype=False, obj=name)


def test_detect_finds_the_failing_requests_and_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, _rows())
    found = find(lambda: nullcontext(spark), str(tmp_path), Order())
    (incident,) = [each for each in found.incidents if each.kind.startswith("error")]
    assert incident.affected == 40
    text = list(lines(found.incidents, Order(zone="Europe/Berlin"), as_json=False))
    assert any(line.startswith("2026-10-19 07:00 to") and "internal server error" in line for line in text)
    assert [line for line in lines(found.incidents, Order(), as_json=True) if '"kind": "error_burst"' in line]


def test_empty_tables_have_no_incidents(spark: SparkSession) -> None:
    assert detect(by_spark(kit.requests(spark, []), kit.connections(spark, []))) == []


# Merging and wording.


def _finding(kind: str, start: float, end: float, **about: str) -> Finding:
    facts = {
        "response": "1",
        "backlog": "5",
        "cause": "reset",
        "size": "9 KiB",
        "usual": "1 KiB",
        "times": "2",
        "scope": "+".join(about),
    }
    return Finding(Kind(kind), start * _HOUR, end * _HOUR, about, 0.5, 0.1, 50.0, 200.0, 1, False, facts)


@pytest.mark.parametrize(
    ("findings", "kinds"),
    [
        # A hot key, its queue, and the surge that it makes.
        (
            [
                _finding("hot_key", 1, 3, topic="a"),
                _finding("traffic_surge", 1, 3, topic="a"),
                _finding("queue_skew", 1, 3, topic="a", broker="b", queue="1"),
            ],
            ["hot_key"],
        ),
        # A consumer hangs: its queues stop, and its group lags.
        (
            [
                _finding("client_stopped", 1, 3, group="g", topic="a", client="c"),
                _finding("queue_stopped", 1, 3, group="g", topic="a", broker="b", queue="1"),
                _finding("consumer_lagging", 1, 3, group="g", topic="a"),
            ],
            ["client_stopped"],
        ),
        ([_finding("error_burst", 1, 2, topic="a"), _finding("error_burst", 5, 6, topic="a")], ["error_burst"] * 2),
        ([_finding("credentials", 1, 2, client="c"), _finding("broker_fault", 1, 2, broker="b")], None),
        ([_finding("latency_spike", 1, 2, broker="b"), _finding("broker_fault", 1, 2, broker="b")], ["broker_fault"]),
        # A queue stopped hours before its broker was slow.
        (
            [
                _finding("commits_stopped", 1, 9, group="g", topic="a", broker="b", queue="1"),
                _finding("latency_spike", 5, 6, broker="b"),
            ],
            ["commits_stopped", "latency_spike"],
        ),
        (
            [
                replace(
                    _finding("credentials", 1, 3, client="c", broker="b"), facts={"response": "1", "scope": "client"}
                ),
                _finding("latency_growth", 1, 3, broker="b"),
            ],
            ["credentials", "latency_growth"],
        ),
        (
            [
                replace(_finding("latency_growth", 1, 9, topic="a"), likelihood=9000.0),
                _finding("latency_growth", 1, 3, client="c", topic="a"),
            ],
            ["latency_growth"],
        ),
        # A tenant's credentials expire: a group of it takes nothing any more.
        (
            [
                _finding("credentials", 1, 5, tenant="acme"),
                _finding("consumer_stopped", 1, 5, group="acme%g", topic="acme%a"),
                _finding("silence", 1, 5, topic="acme%a"),
            ],
            ["credentials"],
        ),
        (
            [
                _finding("credentials", 1, 5, tenant="acme"),
                _finding("consumer_stopped", 3, 5, group="acme%g", topic="acme%a"),
            ],
            ["credentials", "consumer_stopped"],
        ),
    ],
    ids=[
        *("hot key", "hanging consumer", "two times", "two causes", "one broker", "a slow broker later"),
        *("credentials at a slow broker", "the beginning of a growth", "refused and stopped", "stopped hours later"),
    ],
)
def test_findings_of_one_cause_are_one_incident(findings: list[Finding], kinds: list[str] | None) -> None:
    found = [incident.kind for incident in incidents(findings, 1e6)]
    assert found == (kinds if kinds is not None else sorted(found))
    assert len(found) == (len(kinds) if kinds is not None else 2)


def test_group_that_catches_up_after_a_stopped_queue_does_not_rewind() -> None:
    about = {"group": "shop%orders-billing", "topic": "shop%orders"}
    stopped = Finding(Kind.QUEUE_STOPPED, 0, 4 * _HOUR, about | {"queue": "5", "broker": "a"}, 0, 90, 90.0)
    rewinding = Finding(Kind.CONSUMER_REWINDING, 4.1 * _HOUR, 4.3 * _HOUR, about, 200, 70, 120.0)
    (incident,) = incidents([stopped, rewinding], 1e6)
    assert (incident.kind, incident.about["queue"]) == ("queue_stopped", "5")


def test_queue_that_stops_at_the_end_of_an_outage_is_another_incident() -> None:
    outage = Finding(Kind.SERVICE_SILENCE, 0, _HOUR / 2, {}, 0, 900, 900.0)
    drop = Finding(Kind.TRAFFIC_DROP, 0, _HOUR / 2, {"topic": "shop%orders"}, 0, 90, 90.0)
    queue = {"group": "shop%orders-billing", "topic": "shop%orders", "queue": "5", "broker": "a"}
    stopped = Finding(Kind.QUEUE_STOPPED, _HOUR / 2, 5 * _HOUR, queue, 0, 90, 90.0)
    assert [each.kind for each in incidents([outage, drop, stopped], 1e6)] == ["service_silence", "queue_stopped"]


def test_findings_about_one_version_are_one_incident_also_hours_apart() -> None:
    early, late = (_finding("bad_rollout", start, start + 1, client="c", version="6") for start in (1, 9))
    other = _finding("bad_rollout", 9, 10, client="d", version="7")
    assert sorted(len(each.findings) for each in incidents([early, late, other], 1e6)) == [1, 2]


@pytest.mark.parametrize(("symptom", "kinds"), [("slow", ["bad_rollout", "replica_fault"]), ("", ["replica_fault"])])
def test_a_version_that_fails_is_no_consequence_of_a_slow_replica(symptom: str, kinds: list[str]) -> None:
    fault = _finding("replica_fault", 1, 9, replica="r")
    fault = replace(fault, facts={**fault.facts, "symptom": symptom} if symptom else fault.facts)
    rollout = _finding("bad_rollout", 1, 9, client="c", replica="r", version="6")
    assert [each.kind for each in incidents([fault, rollout], 1e6)] == kinds


def test_an_upload_in_the_evening_does_not_last_all_night() -> None:
    """The night after it is a little busier than others, so that both together are a long surge."""
    random = np.random.default_rng(3)
    times = np.arange(5 * 288)
    usual = 4.0 + 3.0 * np.sin(2 * np.pi * (times / 288 - 0.4))
    upload, night = slice(2 * 288 + 266, 2 * 288 + 285), slice(2 * 288 + 285, 3 * 288 + 48)
    rate = usual.copy()
    rate[upload] *= 20
    rate[night] *= 2
    flows = pd.DataFrame({"t": times, "op": "send", "topic": "a", "n": random.poisson(rate), "rows_": 1.0})
    flows["rows_"] = flows["n"]
    blank = pd.DataFrame()
    made = Tables(pd.DataFrame({"t": times}), blank, flows, blank, blank, blank, blank, blank)
    (surge,) = volume(made)
    assert surge.kind == "traffic_surge"
    assert abs(surge.start / 300 - upload.start) <= 2
    assert abs(surge.end / 300 - upload.stop) <= 2


def test_a_queue_that_stands_still_for_most_of_the_records_is_found() -> None:
    """Two thirds of a day: its usual share is that of the time before."""
    times, places = np.meshgrid(np.arange(144), np.arange(8))
    sent = pd.DataFrame({"t": times.ravel(), "queue": places.ravel(), "op": "send", "topic": "a", "broker": "b"})
    sent = sent.assign(grp=None, m=9.0, n=9.0, rows_=9.0)
    taken = sent.assign(op="receive", grp="g")
    taken = taken[(taken["queue"] != 3) | (taken["t"] < 48)]
    blank = pd.DataFrame({"topic": []})
    rows = pd.concat([sent, taken], ignore_index=True)
    made = Tables(pd.DataFrame({"t": np.arange(288)}), blank, blank, rows, blank, blank, blank, blank)
    (stop,) = queues(made)
    assert (stop.kind, stop.about["queue"], stop.start // 600, stop.open) == ("queue_stopped", "3", 48, True)


def test_a_queue_that_stops_in_records_of_a_few_hours_is_found() -> None:
    """Half of six hours, at a queue whose messages come at random."""
    random = np.random.default_rng(3)
    times, places = np.meshgrid(np.arange(37), np.arange(8))
    sent = pd.DataFrame({"t": times.ravel(), "queue": places.ravel(), "op": "send", "topic": "a", "broker": "b"})
    sent = sent.assign(grp=None, m=random.poisson(240.0, times.size).astype(float))
    sent["n"] = sent["rows_"] = sent["m"]
    taken = sent.assign(op="receive", grp="g")
    taken = taken[(taken["queue"] != 1) | (taken["t"] < 18)]
    blank = pd.DataFrame({"topic": []})
    rows = pd.concat([sent, taken], ignore_index=True)
    made = Tables(pd.DataFrame({"t": np.arange(74)}), blank, blank, rows, blank, blank, blank, blank)
    (stop,) = queues(made)
    assert (stop.kind, stop.about["queue"], stop.start // 600) == ("queue_stopped", "1", 18)


def test_a_tenant_whose_topics_all_send_more_is_one_finding_on_the_only_day() -> None:
    random = np.random.default_rng(5)
    times = np.arange(144)
    busy = (times >= 60) & (times < 84)
    parts = []
    for tenant in ("acme", "dunlin", "fjord"):
        for name in range(3):
            rate = (4.0 + name) * np.where(busy & (tenant == "acme"), 7.0, 1.0) * (1.0 + times / 144)
            parts.append(pd.DataFrame({"t": times, "topic": f"{tenant}%{name}", "n": random.poisson(rate)}))
    flows = pd.concat(parts, ignore_index=True).assign(op="send")
    flows["rows_"] = flows["n"]
    blank = pd.DataFrame()
    (surge,) = volume(Tables(pd.DataFrame({"t": times}), blank, flows, blank, blank, blank, blank, blank))
    assert (surge.kind, dict(surge.about), surge.start // 300) == ("traffic_surge", {"tenant": "acme"}, 60)


def test_dead_letters_are_no_surge_of_their_topic() -> None:
    times = np.arange(5 * 288)
    rate = np.where((times > 600) & (times < 640), 50, 0)
    flows = pd.DataFrame({"t": times, "op": "send", "topic": "%DLQ%g", "n": rate, "rows_": rate})
    blank = pd.DataFrame()
    assert volume(Tables(pd.DataFrame({"t": times}), blank, flows, blank, blank, blank, blank, blank)) == []


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_whole_sentences(kind: str) -> None:
    words = sentences(_finding(kind, 1, 2, topic="a", group="g", broker="b", queue="1", client="c", version="5.1"))
    for sentence in (words.happened, words.advice):
        assert "{" not in sentence
        assert sentence[0].isupper() or sentence[0].isdigit()
        assert sentence.endswith(".")


def test_advice_for_a_single_client_is_about_the_client() -> None:
    slow = sentences(_finding("latency_spike", 1, 2, client="c"))
    assert (slow.happened.partition(" were")[0], "this client" in slow.advice) == (
        "50% of the requests of client c",
        True,
    )
    assert "broker" in sentences(_finding("latency_spike", 1, 2, broker="b")).advice


@pytest.mark.parametrize(("facts", "trouble"), [({"symptom": "slow"}, "were slow"), ({}, "failed")])
def test_a_fault_of_a_replica_says_what_is_wrong(facts: dict[str, str], trouble: str) -> None:
    fault = _finding("replica_fault", 1, 4, replica="edge-1")
    assert f"at replica edge-1 {trouble} (" in sentences(replace(fault, facts={**fault.facts, **facts})).happened


@pytest.mark.parametrize(("taken_over", "found"), [(False, 1), (True, 0)])
def test_consumer_that_took_a_little_is_found_when_it_hangs(taken_over: bool, found: int) -> None:
    """One of four consumers takes nothing for 17 of 432 periods; the others may take its share."""
    silent = range(200, 217)
    times, names = np.meshgrid(np.arange(432), ["c1", "c2", "c3", "c4"])
    members = pd.DataFrame({"t": times.ravel(), "client": names.ravel(), "op": "receive", "grp": "g", "topic": "a"})
    hangs = (members["client"] == "c1") & members["t"].isin(silent)
    members = members[~hangs].assign(m=1.0, n=1.0, rows_=1)
    steps = np.arange(0, 864, 2)
    due = pd.DataFrame({"t": steps, "op": "due", "topic": "a", "grp": None, "m": 4.0, "n": 4.0, "rows_": 4})
    less = np.isin(steps // 2, silent) & (not taken_over)
    taken = due.assign(op="receive", grp="g", m=np.where(less, 3.0, 4.0))
    blank = pd.DataFrame()
    flows = pd.concat([due, taken], ignore_index=True)
    made = Tables(pd.DataFrame({"t": np.arange(864)}), blank, flows, blank, members, blank, blank, blank)
    assert [each.about["client"] for each in clients(made)] == ["c1"] * found


def test_one_consumer_that_hangs_is_the_cause_of_its_groups_lag() -> None:
    hung = _finding("client_stopped", 1, 6, group="g", topic="a", client="c")
    stopped = _finding("consumer_stopped", 2, 3, group="g", topic="a")
    lagging = _finding("consumer_lagging", 1, 6, group="g", topic="a")
    (incident,) = incidents([hung, stopped, lagging], 1e6)
    assert (incident.kind, incident.about["client"]) == ("client_stopped", "c")


# The mute file.

_MUTES = """
[[mute]]
kind = "traffic_surge"
about = { topic = "a" }
until = 1970-01-01
reason = "yearly export"
"""


def _incident(kind: str, start: float = 1) -> Incident:
    (incident,) = incidents([_finding(kind, start, start + 1, topic="a")], 1e6)
    return incident


def test_mutes_match_kind_subject_and_day() -> None:
    entries = mutes.parse(_MUTES)
    assert entries[0].until == date(1970, 1, 1)
    found = mutes.applied(
        [_incident("traffic_surge"), _incident("error_burst"), _incident("traffic_surge", 30)], entries
    )
    assert [incident.muted for incident in found] == ["yearly export", None, None]
    assert len(list(lines(found, Order(), as_json=False))) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mute = 1", "mute: "),
        ("[[mute]]\n", "mute.0.reason: Field required"),
        ('[[mute]]\nreason = "x"\nkind = "odd"', "'odd' is no kind of incident"),
        ('[[mute]]\nreason = "x"\nabout = { colour = "red" }', "'colour' is no attribute"),
        ("[[", "it is no TOML"),
    ],
)
def test_invalid_mute_file_names_the_key(text: str, sentence: str) -> None:
    with pytest.raises(mutes.MutesError, match=sentence):
        mutes.parse(text)


# Statistics.


def test_records_of_one_period_have_no_usual_range() -> None:
    assert np.isnan(usual_range(np.array([[8.0]]), 0, 300).high).all()


def test_a_nightly_batch_and_a_weekend_are_usual() -> None:
    """Five days from a Thursday on: a batch at 2:00, half the load at the weekend; one batch an hour later."""
    hours = np.arange(5 * 24)
    counts = np.where(hours % 24 == 2, 900.0, 100.0) * np.where((hours // 24 == 2) | (hours // 24 == 3), 0.5, 1.0)
    # 1970-01-01 was a Thursday.
    usual = usual_range(np.roll(counts, 0)[None, :], 0, 3600)
    assert (counts <= usual.high[0]).all()
    assert (counts >= usual.low[0]).all()


@pytest.mark.parametrize("periods", [280, 289, 320, 430, 600])
@pytest.mark.parametrize(("factor", "kind"), [(8.0, "traffic_surge"), (0.0, "traffic_drop")])
def test_surges_and_drops_are_found_in_records_of_any_length(periods: int, factor: float, kind: str) -> None:
    """From one day to two, few periods have another day."""
    generator = np.random.default_rng(1)
    course = 40 + 15 * np.sin(np.arange(periods) * 2 * np.pi / 288)
    rows = []
    for place in range(6):
        counts = generator.poisson(course * (1 + place / 5)).astype(float)
        if not place:
            counts[periods // 2 : periods // 2 + 24] *= factor
        rows.append(pd.DataFrame({"t": np.arange(periods) + 5_800_100, "n": counts, "topic": f"t{place}"}))
    sends = pd.concat(rows)
    flows = sends.assign(op="send", rows_=sends["n"])
    blank = pd.DataFrame()
    spans = pd.DataFrame({"t": sends["t"].unique()})
    found = volume(Tables(spans, blank, flows, blank, blank, blank, blank, blank))
    assert [(each.kind, each.about["topic"]) for each in found] == [(kind, "t0")]
    assert found[0].start == pytest.approx((5_800_100 + periods // 2) * 300, abs=600)


def _volume(rates: Mapping[str, np.ndarray]) -> list[Finding]:
    """Return the findings about sends to topics at these rates by period."""
    generator = np.random.default_rng(2)
    parts = []
    for topic, rate in rates.items():
        times = np.arange(rate.size) + 5_800_100
        parts.append(pd.DataFrame({"t": times, "n": generator.poisson(rate).astype(float), "topic": topic}))
    sends = pd.concat(parts)
    blank = pd.DataFrame()
    flows = sends.assign(op="send", rows_=sends["n"])
    spans = pd.DataFrame({"t": sends["t"].unique()})
    return volume(Tables(spans, blank, flows, blank, blank, blank, blank, blank))


@pytest.mark.parametrize(("left", "kind"), [(0.0, "silence"), (0.12, "traffic_drop")])
def test_a_topic_is_silent_only_if_nothing_is_sent_to_it(left: float, kind: str) -> None:
    """Both last to the end of the records."""
    rate = np.full(4 * 288, 40.0)
    rate[-30:] *= left
    (found,) = _volume({"a": rate, "b": np.full(4 * 288, 40.0)})
    assert (found.kind, found.open, found.about["topic"]) == (kind, True, "a")


def test_a_new_topic_has_sent_nothing_before() -> None:
    rate = np.full(4 * 288, 40.0)
    new = np.where(np.arange(rate.size) < 500, 0.0, rate)
    assert _volume({"new": new, "b": rate, "c": rate}) == []


def test_queues_of_a_new_group_have_not_stopped_before() -> None:
    """The group takes all messages from the first one on, two days later, and then keeps up."""
    times, places = np.meshgrid(np.arange(400), np.arange(4))
    sent = pd.DataFrame({"t": times.ravel(), "queue": places.ravel(), "op": "send", "topic": "a", "broker": "b"})
    sent = sent.assign(grp=None, m=9.0, n=9.0, rows_=9.0)
    taken = sent[sent["t"] >= 288].assign(op="receive", grp="g")
    taken.loc[taken["t"] == 288, "m"] *= 288
    blank = pd.DataFrame({"topic": []})
    rows = pd.concat([sent, taken], ignore_index=True)
    spans = pd.DataFrame({"t": np.arange(800)})
    assert queues(Tables(spans, blank, blank, rows, blank, blank, blank, blank)) == []
