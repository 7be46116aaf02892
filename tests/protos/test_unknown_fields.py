"""Fields and values of newer peers are kept when a message is parsed and serialized."""

from collections.abc import Iterator

import pytest
from google.protobuf import unknown_fields
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from protos.apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2

# Field 1999 in each wire type that proto3 has: varint, 64 bits, bytes, 32 bits.
_UNKNOWN = b"\xf8\x7c\x96\x01" + b"\xf9\x7c12345678" + b"\xfa\x7c\x03new" + b"\xfd\x7c1234"


def _messages() -> Iterator[Descriptor]:
    files: tuple[FileDescriptor, ...] = (definition_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR, admin_pb2.DESCRIPTOR)
    for file in files:
        yield from file.message_types_by_name.values()


@pytest.mark.parametrize("descriptor", list(_messages()), ids=lambda descriptor: descriptor.name)
def test_every_message_keeps_unknown_fields(descriptor: Descriptor) -> None:
    message: Message = GetMessageClass(descriptor)()
    assert message.MergeFromString(_UNKNOWN) == len(_UNKNOWN)
    assert len(unknown_fields.UnknownFieldSet(message)) == 4
    assert message.SerializeToString() == _UNKNOWN


def test_unknown_fields_of_nested_messages_are_kept() -> None:
    # A TelemetryCommand with settings with a subscription, each with unknown fields.
    subscription = _UNKNOWN
    settings = b"\x32" + bytes([len(subscription)]) + subscription + _UNKNOWN
    wire = b"\x12" + bytes([len(settings)]) + settings + _UNKNOWN
    command = service_pb2.TelemetryCommand.FromString(wire)
    assert command.WhichOneof("command") == "settings"
    assert command.settings.WhichOneof("pub_sub") == "subscription"
    assert command.SerializeToString() == wire


def test_an_unknown_choice_of_a_oneof_is_kept() -> None:
    # Field 15; the known choices end at 9.
    wire = b"\x7a\x02\x0a\x00"
    command = service_pb2.TelemetryCommand.FromString(wire)
    assert command.WhichOneof("command") is None
    assert command.SerializeToString() == wire


def test_an_unknown_enum_number_is_kept() -> None:
    status = definition_pb2.Status(message="of a newer version")
    wire = status.SerializeToString() + b"\x08\xe7\xd2\x03"
    read = definition_pb2.Status.FromString(wire)
    assert read.code == 59751
    assert read.code not in definition_pb2.Code.values()
    assert definition_pb2.Status.FromString(read.SerializeToString()) == read


def test_a_copy_keeps_unknown_fields() -> None:
    message = definition_pb2.Message.FromString(_UNKNOWN)
    copy = definition_pb2.Message()
    copy.CopyFrom(message)
    assert copy.SerializeToString() == _UNKNOWN
