import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.observability.metrics import requests as module
from proxy.observability.metrics.family import Distribution
from proxy.observability.metrics.label_limiter import OTHER
from proxy.observability.metrics.requests import (
    BODY_BYTES,
    BROKER_SECONDS,
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
    Requests,
)
from remoting.codes import ResponseCode
from remoting.names import is_system
from tests.proxy.fakes import Clock
from tests.proxy.observability.metrics.kit import observation, read


def test_by_protocol_code_answer_and_topic() -> None:
    requests = Requests()
    for response in (0, 0, 2):
        requests.observe(observation(response=response))
    requests.observe(observation("SendMessage", 20000, protocol="grpc", ok=True))
    requests.observe(observation("HEART_BEAT", topic=None))
    assert read(requests.read(), REQUEST_COUNT) == {
        ("remoting", "SEND_MESSAGE_V2", "0", "orders"): 2,
        ("remoting", "SEND_MESSAGE_V2", "2", "orders"): 1,
        ("grpc", "SendMessage", "20000", "orders"): 1,
        ("remoting", "HEART_BEAT", "0", ""): 1,
    }


def test_the_latency_has_rip_46s_labels_and_milliseconds() -> None:
    requests = Requests()
    requests.observe(observation(seconds=0.004))
    requests.observe(observation(seconds=60.0))
    requests.observe(observation("POP_MESSAGE", ResponseCode.PULL_NOT_FOUND, seconds=15.0, ok=True))
    requests.observe(observation("ReceiveMessage", Code.TOO_MANY_REQUESTS, protocol="grpc"))
    requests.observe(observation("SendMessage", 99999, protocol="grpc"))
    requests.observe(observation("ACK_MESSAGE", 99999))
    found = read(requests.read(), LATENCY)
    assert found.keys() == {
        ("remoting", "send_message_v2", "success", "false", "success"),
        ("remoting", "pop_message", "pull_not_found", "true", "success"),
        ("grpc", "ReceiveMessage", "too_many_requests", "true", "process_request_failed"),
        ("grpc", "SendMessage", "99999", "false", "process_request_failed"),
        ("remoting", "ack_message", "99999", "false", "process_request_failed"),
    }
    sends = found["remoting", "send_message_v2", "success", "false", "success"]
    bounds = LATENCY.bounds
    assert sends.total == pytest.approx(60_004.0)
    assert [bound for bound, count in zip((*bounds, None), sends.counts, strict=True) if count] == [5.0, None]


def test_a_traced_request_is_its_buckets_exemplar() -> None:
    requests = Requests()
    requests.observe(observation(seconds=0.004, trace_id="a" * 32))
    requests.observe(observation(seconds=0.0045, trace_id="b" * 32))
    requests.observe(observation(seconds=0.0042))
    (value,) = read(requests.read(), LATENCY).values()
    ((slot, (trace, milliseconds, _)),) = value.exemplars.items()
    assert (LATENCY.bounds[slot], trace, milliseconds) == (5.0, "b" * 32, 4.5)


def test_the_brokers_part_and_the_rest() -> None:
    requests = Requests()
    requests.observe(observation(seconds=0.02, broker="broker-a", broker_seconds=0.004))
    requests.observe(observation(response=1, seconds=0.3, broker="broker-b", broker_seconds=0.2))
    requests.observe(observation("HEART_BEAT", topic=None))
    families = list(requests.read())
    (broker,) = read(families, BROKER_SECONDS).values()
    (rest,) = read(families, QUEUEING_SECONDS).values()
    assert (broker.total, rest.total) == (pytest.approx(0.204), pytest.approx(0.116))
    assert (sum(broker.counts), sum(rest.counts)) == (2, 2)
    upstream = read(families, UPSTREAM_SECONDS)
    assert {key: value.total for key, value in upstream.items()} == {("broker-a",): 0.004, ("broker-b",): 0.2}
    assert read(families, UPSTREAM_ERRORS) == {("broker-b",): 1}


def test_messages_by_what_was_done_with_them() -> None:
    requests = Requests()
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
        ("ForwardMessageToDeadLetterQueue", "grpc"),
        ("PEEK_MESSAGE", "remoting"),
    ):
        requests.observe(observation(code, protocol=protocol, messages=3))
    assert read(requests.read(), MESSAGES) == {
        ("remoting", "sent"): 3,
        ("grpc", "sent"): 3,
        ("remoting", "pulled"): 3,
        ("grpc", "popped"): 3,
        ("remoting", "acknowledged"): 6,
        ("remoting", "invisible_changed"): 3,
        ("grpc", "invisible_changed"): 3,
        ("remoting", "sent_back"): 3,
        ("grpc", "dead_letter"): 3,
    }


def test_messages_in_and_out_as_rip_46_has_them() -> None:
    requests = Requests()
    requests.observe(observation(messages=2, bytes_in=300, bytes_out=0))
    requests.observe(observation("PULL_MESSAGE", messages=2, bytes_out=700, group="g"))
    requests.observe(observation("POP_MESSAGE", topic="%RETRY%g", messages=1, bytes_out=90, group="g", attempt=2))
    requests.observe(observation("PULL_MESSAGE", 19, ok=True, bytes_out=0, group="idle"))
    families = list(requests.read())
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


def test_topics_that_are_nowhere_are_no_labels() -> None:
    requests = Requests()
    for number in range(100):
        requests.observe(observation(response=17, topic=f"made-up-{number}"))
        requests.observe(observation("QueryRoute", 40402, f"made-up-{number}", "grpc"))
        requests.observe(observation("SendMessage", Code.ILLEGAL_TOPIC, f"made up {number}", "grpc"))
    assert read(requests.read(), REQUEST_COUNT) == {
        ("remoting", "SEND_MESSAGE_V2", "17", ""): 100,
        ("grpc", "QueryRoute", "40402", ""): 100,
        ("grpc", "SendMessage", "40002", ""): 100,
    }


def test_no_topic_and_an_empty_one_are_one_series() -> None:
    requests = Requests()
    for topic in (None, "", None, ""):
        requests.observe(observation("GET_ROUTEINFO_BY_TOPIC", 1, topic))
    assert read(requests.read(), REQUEST_COUNT) == {("remoting", "GET_ROUTEINFO_BY_TOPIC", "1", ""): 4}


def test_what_fails_leaves_room_for_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ROWS", 10)
    requests = Requests()
    for number in range(100):
        requests.observe(observation(response=1, topic=f"made-up-{number}"))
    requests.observe(observation(topic="orders"))
    counts = read(requests.read(), REQUEST_COUNT)
    assert counts["remoting", "SEND_MESSAGE_V2", "0", "orders"] == 1
    assert counts["remoting", "SEND_MESSAGE_V2", "1", OTHER] == 95
    assert sum(counts.values()) == 101


def test_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ROWS", 3)
    requests = Requests()
    for number in range(5):
        requests.observe(observation(topic=f"t{number}", group=f"g{number}"))
        requests.observe(observation("PULL_MESSAGE", topic="x" * 300, group="y" * 300, messages=1, bytes_out=1))
        requests.observe(observation(broker=f"b{number}", broker_seconds=0.1))
    families = list(requests.read())
    topics = {key[3] for key in read(families, REQUEST_COUNT)}
    assert topics == {"t0", "orders", OTHER}
    assert sum(read(families, REQUEST_COUNT).values()) == 15
    assert read(families, MESSAGES_OUT).keys() == {(OTHER, OTHER, "false", "false")}
    assert read(families, UPSTREAM_SECONDS).keys() == {("b0",), ("b1",), ("b2",), (OTHER,)}


def test_rows_of_silent_topics_are_dropped_but_not_from_the_sums() -> None:
    clock = Clock()
    requests = Requests(idle=100, clock=clock)
    requests.observe(observation(topic="old", messages=2, bytes_in=50))
    requests.observe(observation(topic=None))
    read(requests.read(), REQUEST_COUNT)
    clock.now += 101
    requests.observe(observation(messages=1, bytes_in=7))
    families = list(requests.read())
    assert {key[3] for key in read(families, REQUEST_COUNT)} == {"", "orders"}
    assert read(families, MESSAGES) == {("remoting", "sent"): 3}
    assert read(families, BODY_BYTES) == {("remoting", "SEND_MESSAGE_V2", "in"): 57}
    assert sum(requests.answers().values()) == 3


def test_all_of_a_protocol() -> None:
    requests = Requests()
    requests.observe(observation(seconds=0.1))
    requests.observe(observation(response=1, seconds=0.2))
    requests.observe(observation("SendMessage", 20000, protocol="grpc", seconds=5.0))
    assert requests.outcomes("remoting") == {True: 1, False: 1}
    latency = requests.latency("remoting")
    assert isinstance(latency, Distribution)
    assert sum(latency.counts) == 2
    assert latency.total == pytest.approx(0.3)


@pytest.mark.parametrize(("topic", "system"), [("rmq_sys_x", True), ("TBW102", True), ("orders", False)])
def test_system_topics(topic: str, system: bool) -> None:
    assert is_system(topic) is system


def test_polls_say_nothing_of_a_brokers_speed() -> None:
    requests = Requests()
    for seconds, response in ((0.001, 0), (0.003, 2)):
        requests.observe(observation(response=response, broker="b", broker_seconds=seconds))
    requests.observe(observation("POP_MESSAGE", broker="b", broker_seconds=20.0))
    broker = requests.brokers["b"]
    assert (broker.answers, broker.longest) == (2, 0.003)
    assert broker.average == pytest.approx(0.0011)


def test_by_code() -> None:
    requests = Requests()
    for response in (0, 0, 2):
        requests.observe(observation(response=response, seconds=0.5))
    found = requests.codes()["remoting", "SEND_MESSAGE_V2"]
    assert (found.answered, found.failed, found.seconds) == (3, 1, 1.5)
