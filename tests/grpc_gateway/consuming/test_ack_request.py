from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grpc_gateway.consuming.ack_request import AckRequest, read_ack_request
from protos.apache.rocketmq.v2.definition_pb2 import Resource
from protos.apache.rocketmq.v2.service_pb2 import AckMessageEntry, AckMessageRequest
from tests.grpc_gateway.changed_bytes import with_changed_bytes
from tests.grpc_gateway.protobuf_agreement import check_ack_request

TEXT = st.text(max_size=20)
RESOURCES = st.none() | st.builds(Resource, resource_namespace=TEXT, name=TEXT)
ENTRIES = st.builds(AckMessageEntry, message_id=TEXT, receipt_handle=TEXT, lite_topic=st.none() | TEXT)
REQUESTS = st.builds(AckMessageRequest, group=RESOURCES, topic=RESOURCES, entries=st.lists(ENTRIES, max_size=2))


def request(*entries: AckMessageEntry, **names: Any) -> AckMessageRequest:
    names = {"group": Resource(name="group"), "topic": Resource(name="topic"), **names}
    return AckMessageRequest(entries=entries, **names)


ONE = AckMessageEntry(message_id="01AB", receipt_handle="0 1 2 3 0 broker-a 1 5 1000" + " " * 120)
LITE = AckMessageEntry(message_id="01AB", receipt_handle="é中", lite_topic="lite")


@pytest.mark.parametrize("entry", [ONE, LITE])
def test_an_acknowledgement_is_read_without_protobuf(entry: AckMessageEntry) -> None:
    data = request(entry).SerializeToString()
    assert isinstance(read_ack_request(data), AckRequest)
    check_ack_request(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        request().SerializeToString(),
        request(ONE, LITE).SerializeToString(),
        request(ONE, topic=None).SerializeToString(),
        # Protobuf merges messages that appear twice.
        request(ONE).SerializeToString() + AckMessageRequest(group=Resource(name="other")).SerializeToString(),
        request(ONE).SerializeToString() + b"\x20\x01",
        # An entry with an unknown field before another one.
        b"\x1a\x03\x22\x01a" + request(ONE).SerializeToString(),
    ],
)
def test_other_acknowledgements_are_left_to_protobuf(data: bytes) -> None:
    assert isinstance(read_ack_request(data), AckMessageRequest)
    check_ack_request(data)


@given(REQUESTS)
def test_an_acknowledgement_is_read_as_protobuf_does(request: AckMessageRequest) -> None:
    check_ack_request(request.SerializeToString())


@given(REQUESTS, st.data())
def test_a_changed_acknowledgement_is_read_as_protobuf_does(request: AckMessageRequest, data: st.DataObject) -> None:
    check_ack_request(with_changed_bytes(request.SerializeToString(), data))


@given(st.binary(max_size=60))
# Sizes of six bytes, which protobuf refuses.
@example(bytes.fromhex("0a040a00120012001a8880808080000a01611201001a00"))
def test_any_bytes_are_read_as_protobuf_does(data: bytes) -> None:
    check_ack_request(data)
