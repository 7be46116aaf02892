"""Counts and samples of requests."""

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.observability.metrics import dead_letters, request_counts, request_samples
from proxy.observability.metrics.family import Distribution
from proxy.observability.metrics.label_limiter import OTHER
from proxy.observability.metrics.request_counts import RequestCounts
from proxy.observability.metrics.request_families import (
    BODY_BYTES,
    BROKER_SECONDS,
    DEAD_LETTERS,
    LATENCY,
    MESSAGES,
    MESSAGES_IN,
    MESSAGES_OUT,
    QUEUEING_SECONDS,
    REDELIVERIES,
    REQUEST_COUNT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    UPSTREAM_ERRORS,
    UPSTREAM_SECONDS,
)
from remoting.codes import ResponseCode
from remoting.names import is_system
from tests.proxy.fakes import Clock
from tests.proxy.observability.metrics.samples import observation, read


def test_requests_are_counted_by_protocol_code_response_and_topic() -> None:
    counts = RequestCounts()
    for response in (0, 0, 2):
        counts.observe(observation(response=response))
    counts.observe(observation("SendMessage", 20000, protocol="grpc", ok=True))
    counts.observe(observation("HEART_BEAT", topic=None))
    assert read(request_samples.read(counts), REQUEST_COUNT) == {
        ("remoting", "SEND_MESSAGE_V2", "0", "orders"): 2,
        ("remoting", "SEND_MESSAGE_V2", "2", "orders"): 1,
        ("grpc", "SendMessage", "20000", "orders"): 1,
        ("remoting", "HEART_BEAT", "0", ""): 1,
    }


def test_the_latency_histogram_has_rip_46s_labels_and_milliseconds() -> None:
    counts = RequestCounts()
    counts.observe(observation(seconds=0.004))
    counts.observe(observation(seconds=60.0))
    counts.observe(observation("POP_MESSAGE", ResponseCode.PULL_NOT_FOUND, seconds=15.0, ok=True))
    counts.observe(observation("ReceiveMessage", Code.TOO_MANY_REQUESTS, protocol="grpc"))
    counts.observe(observation("SendMessage", 99999, protocol="grpc"))
    counts.observe(observation("ACK_MESSAGE", 99999))
    latencies = read(request_samples.read(counts), LATENCY)
    assert latencies.keys() == {
        ("remoting", "send_message_v2", "success", "false", "success"),
        ("remoting", "pop_message", "pull_not_found", "true", "success"),
        ("grpc", "ReceiveMessage", "too_many_requests", "true", "process_request_failed"),
        ("grpc", "SendMessage", "99999", "false", "process_request_failed"),
        ("remoting", "ack_message", "99999", "false", "process_request_failed"),
    }
    sends = latencies["remoting", "send_message_v2", "success", "false", "success"]
    bounds = LATENCY.bounds
    assert sends.total == pytest.approx(60_004.0)
    assert [bound for bound, count in zip((*bounds, None), sends.counts, strict=True) if count] == [5.0, None]


def test_the_latest_traced_request_is_the_exemplar_of_its_bucket() -> None:
    counts = RequestCounts()
    counts.observe(observation(seconds=0.004, trace_id="a" * 32))
    counts.observe(observation(seconds=0.0045, trace_id="b" * 32))
    counts.observe(observation(seconds=0.0042))
    (value,) = read(request_samples.read(counts), LATENCY).values()
    ((bucket, (trace, milliseconds, _)),) = value.exemplars.items()
    assert (LATENCY.bounds[bucket], trace, milliseconds) == (5.0, "b" * 32, 4.5)


def test_the_latency_of_forwarded_requests_is_split_into_broker_and_queueing_time() -> None:
    counts = RequestCounts()
    counts.observe(observation(seconds=0.02, broker="broker-a", broker_seconds=0.004))
    counts.observe(observation(response=1, seconds=0.3, broker="broker-b", broker_seconds=0.2))
    counts.observe(observation("HEART_BEAT", topic=None))
    families = list(request_samples.read(counts))
    (broker,) = read(families, BROKER_SECONDS).values()
    (queueing,) = read(families, QUEUEING_SECONDS).values()
    assert (broker.total, queueing.total) == (pytest.approx(0.204), pytest.approx(0.116))
    assert (sum(broker.counts), sum(queueing.counts)) == (2, 2)
    upstream = read(families, UPSTREAM_SECONDS)
    assert {key: value.total for key, value in upstream.items()} == {("broker-a",): 0.004, ("broker-b",): 0.2}
    assert read(families, UPSTREAM_ERRORS) == {("broker-b",): 1}


def test_messages_are_counted_by_action() -> None:
    counts = RequestCounts()
    for code, protocol in (
        ("SEND_BATCH_MESSAGE", "remoting"),
        ("SendMessage", "grpc"),
        ("PULL_MESSAGE", "remoting"),
        ("ReceiveMessage", "grpc"),
        ("ACK_MESSAGE", "remoting"),
        ("BATCH_ACK_MESSAGE", "remoting"),
        ("CHANGE_MESSAGE_INVISIBLETIME", "remoting"),
        ("ChangeInvisibleDuration", "grpc"),
        ("CONSUMER_SEND_MSG_BACK", "remoting"),
        ("PEEK_MESSAGE", "remoting"),
    ):
        counts.observe(observation(code, protocol=protocol, messages=3))
    assert read(request_samples.read(counts), MESSAGES) == {
        ("remoting", "sent"): 3,
        ("grpc", "sent"): 3,
        ("remoting", "pulled"): 3,
        ("grpc", "popped"): 3,
        ("remoting", "acknowledged"): 6,
        ("remoting", "invisible_changed"): 3,
        ("grpc", "invisible_changed"): 3,
        ("remoting", "sent_back"): 3,
    }


def test_dead_letters_are_counted_by_group_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_MAX_ROWS", 2)
    counts = RequestCounts()
    for protocol, group, topic in (
        ("grpc", "g", "orders"),
        ("remoting", "g", "%RETRY%g_orders"),
        ("grpc", "g", "%RETRY%g+orders"),
        ("grpc", "g", "invented"),
        ("grpc", "h", "orders"),
    ):
        counts.dead_letters.add(protocol, group, topic)
    families = list(request_samples.read(counts))
    assert read(families, MESSAGES) == {("grpc", "dead_letter"): 4, ("remoting", "dead_letter"): 1}
    assert read(families, DEAD_LETTERS) == {("orders", "g", "false"): 3, (OTHER, OTHER, "false"): 2}


def test_messages_in_and_out_have_rip_46s_labels() -> None:
    counts = RequestCounts()
    counts.observe(observation(messages=2, bytes_in=300, bytes_out=0))
    counts.observe(observation("PULL_MESSAGE", messages=2, bytes_out=700, group="g"))
    counts.observe(observation("POP_MESSAGE", topic="%RETRY%g", messages=1, bytes_out=90, group="g", attempt=2))
    counts.observe(observation("PULL_MESSAGE", 19, ok=True, bytes_out=0, group="idle"))
    families = list(request_samples.read(counts))
    assert read(families, MESSAGES_IN) == {("orders", "false"): 2}
    assert read(families, THROUGHPUT_IN) == {("orders", "false"): 300}
    assert read(families, MESSAGES_OUT) == {
        ("orders", "g", "false", "false"): 2,
        ("%RETRY%g", "g", "false", "true"): 1,
    }
    assert read(families, THROUGHPUT_OUT) == {
        ("orders", "g", "false", "false"): 700,
        ("%RETRY%g", "g", "false", "true"): 90,
    }
    assert read(families, REDELIVERIES) == {("remoting",): 1}
    assert read(families, BODY_BYTES)["remoting", "SEND_MESSAGE_V2", "in"] == 300


def test_topics_that_do_not_exist_are_not_used_as_labels() -> None:
    counts = RequestCounts()
    for number in range(100):
        counts.observe(observation(response=17, topic=f"invented-{number}"))
        counts.observe(observation("QueryRoute", 40402, f"invented-{number}", "grpc"))
        counts.observe(observation("SendMessage", Code.ILLEGAL_TOPIC, f"invented {number}", "grpc"))
    assert read(request_samples.read(counts), REQUEST_COUNT) == {
        ("remoting", "SEND_MESSAGE_V2", "17", ""): 100,
        ("grpc", "QueryRoute", "40402", ""): 100,
        ("grpc", "SendMessage", "40002", ""): 100,
    }


def test_a_missing_and_an_empty_topic_share_a_series() -> None:
    counts = RequestCounts()
    for topic in (None, "", None, ""):
        counts.observe(observation("GET_ROUTEINFO_BY_TOPIC", 1, topic))
    assert read(request_samples.read(counts), REQUEST_COUNT) == {("remoting", "GET_ROUTEINFO_BY_TOPIC", "1", ""): 4}


def test_failed_requests_use_at_most_half_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "_MAX_ROWS", 10)
    counts = RequestCounts()
    for number in range(100):
        counts.observe(observation(response=1, topic=f"invented-{number}"))
    counts.observe(observation(topic="orders"))
    requests = read(request_samples.read(counts), REQUEST_COUNT)
    assert requests["remoting", "SEND_MESSAGE_V2", "0", "orders"] == 1
    assert requests["remoting", "SEND_MESSAGE_V2", "1", OTHER] == 95
    assert sum(requests.values()) == 101


def test_the_number_of_rows_groups_and_brokers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "_MAX_ROWS", 3)
    counts = RequestCounts()
    for number in range(5):
        counts.observe(observation(topic=f"t{number}", group=f"g{number}"))
        counts.observe(observation("PULL_MESSAGE", topic="x" * 300, group="y" * 300, messages=1, bytes_out=1))
        counts.observe(observation(broker=f"b{number}", broker_seconds=0.1))
    families = list(request_samples.read(counts))
    topics = {key[3] for key in read(families, REQUEST_COUNT)}
    assert topics == {"t0", "orders", OTHER}
    assert sum(read(families, REQUEST_COUNT).values()) == 15
    assert read(families, MESSAGES_OUT).keys() == {(OTHER, OTHER, "false", "false")}
    assert read(families, UPSTREAM_SECONDS).keys() == {("b0",), ("b1",), ("b2",), (OTHER,)}


def test_evicted_rows_of_idle_topics_remain_in_the_sums() -> None:
    clock = Clock()
    counts = RequestCounts(idle=100, clock=clock)
    counts.observe(observation(topic="old", messages=2, bytes_in=50))
    counts.observe(observation(topic=None))
    read(request_samples.read(counts), REQUEST_COUNT)
    clock.now += 101
    counts.observe(observation(messages=1, bytes_in=7))
    families = list(request_samples.read(counts))
    assert {key[3] for key in read(families, REQUEST_COUNT)} == {"", "orders"}
    assert read(families, MESSAGES) == {("remoting", "sent"): 3}
    assert read(families, BODY_BYTES) == {("remoting", "SEND_MESSAGE_V2", "in"): 57}
    assert sum(counts.answers().values()) == 3


def test_outcomes_and_latency_are_totals_of_a_protocol() -> None:
    counts = RequestCounts()
    counts.observe(observation(seconds=0.1))
    counts.observe(observation(response=1, seconds=0.2))
    counts.observe(observation("SendMessage", 20000, protocol="grpc", seconds=5.0))
    assert counts.outcomes("remoting") == {True: 1, False: 1}
    latency = counts.latency("remoting")
    assert isinstance(latency, Distribution)
    assert sum(latency.counts) == 2
    assert latency.total == pytest.approx(0.3)


@pytest.mark.parametrize(("topic", "system"), [("rmq_sys_x", True), ("TBW102", True), ("orders", False)])
def test_is_system_recognizes_system_topics(topic: str, system: bool) -> None:
    assert is_system(topic) is system


def test_long_polls_do_not_affect_a_brokers_average() -> None:
    counts = RequestCounts()
    for seconds, response in ((0.001, 0), (0.003, 2)):
        counts.observe(observation(response=response, broker="b", broker_seconds=seconds))
    counts.observe(observation("POP_MESSAGE", broker="b", broker_seconds=20.0))
    broker = counts.brokers["b"]
    assert (broker.answers, broker.longest) == (2, 0.003)
    assert broker.average == pytest.approx(0.0011)


def test_codes_returns_the_totals_of_a_code() -> None:
    counts = RequestCounts()
    for response in (0, 0, 2):
        counts.observe(observation(response=response, seconds=0.5))
    totals = counts.codes()["remoting", "SEND_MESSAGE_V2"]
    assert (totals.answered, totals.failed, totals.seconds) == (3, 1, 1.5)
