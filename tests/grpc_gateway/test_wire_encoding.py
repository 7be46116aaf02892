"""Encoded fields are what protobuf writes."""

from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.wire_encoding import LengthDelimited, Varint
from protos.apache.rocketmq.v2.definition_pb2 import Message, Resource, SystemProperties

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.integers(1, 40_000).map("x".__mul__)


@given(_TEXTS)
def test_texts_and_messages_are_encoded_as_protobuf_does(text: str) -> None:
    name = LengthDelimited(2).text(text)
    assert name == Resource(name=text).SerializeToString()
    assert LengthDelimited(1).message(name) == Message(topic=Resource(name=text)).SerializeToString()
    assert LengthDelimited(17).text(text) == SystemProperties(message_group=text).SerializeToString()


@given(st.integers(-(2**63), 2**63 - 1) | st.sampled_from((0, 127, 128, 2**14 - 1, 2**14, -1)))
def test_integers_are_encoded_as_protobuf_does(value: int) -> None:
    assert Varint(14).value(value) == SystemProperties(queue_offset=value).SerializeToString()
