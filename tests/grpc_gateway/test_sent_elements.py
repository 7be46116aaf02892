"""The bound on the elements of a serialized SendMessageRequest."""

import time

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.sent_elements import MAX_ELEMENTS, MAX_UNCHECKED, check_elements
from grpc_gateway.sent_message import read_send_request
from protos.apache.rocketmq.v2.definition_pb2 import Message, SystemProperties
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest


def request(count: int, body: bytes = b"", **system: object) -> bytes:
    properties = SystemProperties(message_id="A" * 34, tag="t", keys=["a", "b"], **system)  # type: ignore[arg-type]
    message = Message(user_properties={"a": "b"}, system_properties=properties, body=body)
    return SendMessageRequest(messages=[message] * count).SerializeToString()


def field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field."""
    size, encoded = len(value), bytearray([number << 3 | 2])
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded) + value


KEYS = field(1, field(3, field(2, b"") * 8_000_000))
MESSAGES = field(1, b"") * 8_000_000
USER_PROPERTIES = field(1, field(2, b"") * 8_000_000)


@pytest.mark.parametrize(
    "attack", [KEYS, MESSAGES, USER_PROPERTIES, KEYS + KEYS], ids=["keys", "messages", "user", "2"]
)
def test_many_small_elements_are_refused_at_once(attack: bytes) -> None:
    started = time.process_time()
    with pytest.raises(DecodeError, match=f"more than {MAX_ELEMENTS} elements"):
        read_send_request(attack)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(("count", "body"), [(1, bytes(4 * 2**20)), (1024, b"x" * 4096), (1, b"")])
def test_requests_of_clients_are_accepted(count: int, body: bytes) -> None:
    check_elements(request(count, body, message_group="g", born_host="h", trace_context="c", priority=1))


def test_small_requests_are_not_looked_at() -> None:
    check_elements(b"\xff" * MAX_UNCHECKED)
    with pytest.raises(DecodeError):
        check_elements(b"\xff" * (MAX_UNCHECKED + 1))


@given(st.binary(max_size=200), st.integers(0, 2**17))
def test_garbage_raises_only_decode_errors(garbage: bytes, cut: int) -> None:
    for data in (garbage * (1 + MAX_UNCHECKED // max(1, len(garbage))), (request(200, b"x" * 600))[:cut] + garbage):
        try:
            check_elements(data)
        except DecodeError:
            continue
