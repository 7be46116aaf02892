"""Observations of remoting requests, made from requests and replies as clients and brokers encode them."""

import time
from typing import Any

import pytest

from proxy.core.context import Context
from proxy.core.events import Observation
from proxy.core.events.request import attempt, count, delay, of_request
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.messages import BatchMessage, StoredMessage
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import complete, java, request


def observed(
    command: RemotingCommand, response: int = 0, reply: RemotingCommand | None = None, **noted: Any
) -> Observation:
    context = Context(FakeChannel(), command, REQUESTS.get(command.code), 10.0)
    for name, value in noted.items():
        setattr(context, name, value)
    return of_request(context, response, reply, 10.5)


def send(**pairs: str) -> RemotingCommand:
    text = properties.encode(pairs)
    return commands.request(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": "orders", "e": "3", "i": text}, b"12345")


def stored(times: int = 0, host: str = "10.0.0.1") -> StoredMessage:
    return StoredMessage(
        topic="orders", body=b"x" * 50, reconsume_times=times, born_host=(host, 1), store_host=(host, 1)
    )


def test_send_is_observed_with_queue_and_key() -> None:
    seen = observed(send(KEYS="k1 k2"), sent=10.1, broker="broker-a")
    assert (seen.protocol, seen.code, seen.response, seen.ok) == ("remoting", "SEND_MESSAGE_V2", 0, True)
    assert (seen.topic, seen.group, seen.broker, seen.queue) == ("orders", "p", "broker-a", 3)
    assert (seen.messages, seen.bytes_in, seen.bytes_out) == (1, 5, 0)
    assert (seen.started, seen.seconds) == (10.0, 0.5)
    assert seen.broker_seconds == pytest.approx(0.4)
    assert (seen.key, seen.delay_ms, seen.attempt) == ("k1", None, None)


def test_long_names_are_cut() -> None:
    long = "x" * 100_000
    command = send(KEYS=f"{long} k2")
    command.fields.update(a=long, b=long)
    seen = observed(command)
    assert (seen.topic, seen.group, seen.key) == ("x" * 255,) * 3
    assert observed(send(__SHARDINGKEY=long)).key == "x" * 255


def test_send_v1_is_observed_like_v2() -> None:
    fields = {"producerGroup": "p", "topic": "orders", "queueId": "1", "properties": properties.encode({"KEYS": "k"})}
    seen = observed(commands.request(RequestCode.SEND_MESSAGE, fields, b"1"))
    assert (seen.topic, seen.group, seen.queue, seen.key, seen.messages) == ("orders", "p", 1, "k", 1)


def test_sharding_key_is_the_key_of_a_message_without_keys() -> None:
    assert observed(send(__SHARDINGKEY="s")).key == "s"
    assert observed(send(TAGS="KEYS")).key is None


def test_rejected_messages_are_not_counted() -> None:
    seen = observed(send(), ResponseCode.TOPIC_NOT_EXIST)
    assert (seen.ok, seen.messages, seen.topic) == (False, 0, "orders")


def test_messages_of_a_batch_are_counted() -> None:
    body = messages.encode_batch([BatchMessage(0, b"y" * 200, "") for _ in range(3)])
    seen = observed(commands.request(RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": "orders", "e": "0"}, body))
    assert (seen.messages, seen.bytes_in) == (3, len(body))


@pytest.mark.parametrize(
    ("code", "topic", "highest"),
    [
        (RequestCode.PULL_MESSAGE, "orders", 1),
        (RequestCode.PULL_MESSAGE, "%RETRY%g", 5),
        (RequestCode.LITE_PULL_MESSAGE, "%RETRY%g", 5),
        (RequestCode.POP_MESSAGE, "orders", 5),
    ],
)
@pytest.mark.parametrize("host", ["10.0.0.1", "fe80::1"])
def test_deliveries_are_counted_with_their_highest_attempt(code: int, topic: str, highest: int, host: str) -> None:
    body = b"".join(messages.encode_message(stored(times, host)) for times in (0, 4, 1))
    seen = observed(complete(REQUESTS[code], queueId="7", topic=topic), 0, commands.success(body=body))
    assert (seen.messages, seen.attempt, seen.bytes_out, seen.queue) == (3, highest, len(body), 7)


@pytest.mark.parametrize("response", [19, 20, 210, 22])
def test_not_found_is_ok(response: int) -> None:
    seen = observed(complete(REQUESTS[RequestCode.PULL_MESSAGE]), response, commands.response(response))
    assert (seen.ok, seen.messages, seen.attempt) == (True, 0, None)


def test_acknowledgements_are_counted() -> None:
    assert observed(complete(REQUESTS[RequestCode.ACK_MESSAGE])).messages == 1
    handles = [pop.ExtraInfo.parse(f"5 1700000000000 60000 0 0 broker-a 1 {offset}") for offset in (5, 6, 9)]
    body = BatchAckBody("broker-a", batch_acks("orders", "g", handles)).encode()
    seen = observed(commands.request(RequestCode.BATCH_ACK_MESSAGE, {}, body))
    assert (seen.messages, seen.topic, seen.group) == (3, "orders", "g")
    assert observed(commands.request(RequestCode.BATCH_ACK_MESSAGE, {}, b"nonsense")).messages == 0


def test_unknown_code_is_observed_as_unknown() -> None:
    seen = observed(request(4711, topic="t"), ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert (seen.code, seen.topic, seen.ok, seen.broker_seconds) == ("unknown", None, False, None)


def test_invalid_numbers_are_ignored() -> None:
    for queue in ("-1", "", "x", "9" * 40):
        assert observed(complete(REQUESTS[RequestCode.PULL_MESSAGE], queueId=queue)).queue is None


def test_language_comes_from_the_first_request() -> None:
    seen = observed(java(send(), 453))
    assert seen.channel is not None
    assert seen.channel.session.language == "JAVA"


def test_delay_is_read_from_properties() -> None:
    assert delay(properties.encode({"TIMER_DELAY_MS": "1500"})) == 1500
    assert delay(properties.encode({"TIMER_DELAY_SEC": "3"})) == 3000
    assert delay(properties.encode({"DELAY": "4"})) == 30_000
    assert delay(properties.encode({"DELAY": "99"})) == 7_200_000
    assert delay(properties.encode({"DELAY": "0"})) is None
    assert delay(properties.encode({"DELAY": "soon"})) is None
    # JSON and Parquet columns hold at most 64 bits.
    assert delay(properties.encode({"TIMER_DELAY_SEC": "9" * 15})) == 999_999_999_999_999_000
    assert delay(properties.encode({"TIMER_DELAY_SEC": "9" * 16})) is None
    due = delay(properties.encode({"TIMER_DELIVER_MS": str(int(time.time() * 1000) + 60_000)}))
    assert due is not None
    assert 50_000 < due <= 60_000
    assert observed(send(DELAY="1")).delay_ms == 1000
    assert delay(properties.encode({"TIMER_DELIVER_MS": "1"})) == 0


@pytest.mark.parametrize("cut", [1, 3, 4, 50, 90])
def test_complete_records_of_a_truncated_body_are_counted(cut: int) -> None:
    record = messages.encode_message(stored(2))
    assert count(record + record[:cut]) == 1
    assert attempt(record + record[:cut]) == 3
    assert (count(b""), attempt(b"")) == (0, None)
    assert (count(b"\xff" * 100), count(bytes(100))) == (0, 0)
    assert (attempt(b"\xff" * 100), attempt(bytes(100))) == (None, None)


@pytest.mark.parametrize("compiled", [False, True])
def test_records_are_counted_in_the_same_way_by_compiled_code(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    monkeypatch.setattr("proxy.core.events.request._COMPILED", compiled)
    large = b"\x00\x01\x02\x03" + bytes(0x10203 - 4)
    assert count(large + b"\x00\x00\x00\x04" + large) == 3
    assert (count(large[:-1]), count(b"\x80\x00\x00\x08" + bytes(4)), count(b"\x00\x00\x00\x03")) == (0, 0, 0)
