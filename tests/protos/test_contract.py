"""The .proto files against the official ones, whose contracts capture.py has written to golden/."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from protos.apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2
from tests.conformance.protos.grpc.testing import empty_pb2, messages_pb2, test_pb2
from tests.protos.contract import Contract, contract_of

_GOLDEN = Path(__file__).resolve().parent / "golden"
_KINDS = ("messages", "enums", "services")


def _official(name: str) -> dict[str, Contract]:
    golden: dict[str, dict[str, Contract]] = json.loads((_GOLDEN / f"{name}.json").read_text())
    return golden["files"]


def _contract(module: ModuleType) -> tuple[str, Contract]:
    file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return file.name, contract_of(file)


@pytest.mark.parametrize("module", [definition_pb2, service_pb2, admin_pb2], ids=lambda module: module.DESCRIPTOR.name)
def test_rocketmq_file_equals_the_official_one(module: ModuleType) -> None:
    name, contract = _contract(module)
    assert contract == _official("rocketmq")[name]


def test_no_rocketmq_file_is_missing() -> None:
    assert {_contract(module)[0] for module in (definition_pb2, service_pb2, admin_pb2)} == _official("rocketmq").keys()


@pytest.mark.parametrize("module", [empty_pb2, messages_pb2, test_pb2], ids=lambda module: module.DESCRIPTOR.name)
def test_interop_file_is_a_subset_of_the_official_one(module: ModuleType) -> None:
    name, contract = _contract(module)
    official = _official("interop")[name]
    for kind in _KINDS:
        assert contract.pop(kind).items() <= official.pop(kind).items(), kind
    assert contract == official


def test_interop_services_are_complete() -> None:
    _, contract = _contract(test_pb2)
    assert set(contract["services"]) == {
        "grpc.testing.ReconnectService",
        "grpc.testing.TestService",
        "grpc.testing.UnimplementedService",
    }


_CHANGES: list[tuple[str, Any]] = [
    ("a field's number", lambda file: setattr(file.message_type[0].field[0], "number", 999)),
    ("a field's name", lambda file: setattr(file.message_type[0].field[0], "name", "other")),
    ("a field's type", lambda file: setattr(file.message_type[0].field[0], "type", 4)),
    ("a repeated field", lambda file: setattr(file.message_type[0].field[0], "label", 3)),
    ("a missing field", lambda file: file.message_type[0].field.pop()),
    ("a missing message", lambda file: file.message_type.pop()),
    ("an enum's number", lambda file: setattr(file.enum_type[0].value[1], "number", 99)),
    ("an enum's name", lambda file: setattr(file.enum_type[0].value[1], "name", "OTHER")),
    ("a package", lambda file: setattr(file, "package", "other")),
]


@pytest.mark.parametrize("change", [change for _, change in _CHANGES], ids=[name for name, _ in _CHANGES])
def test_comparison_detects_a_change(change: Any) -> None:
    file = FileDescriptorProto.FromString(definition_pb2.DESCRIPTOR.serialized_pb)
    # Put a message with a plain scalar field first.
    file.message_type.sort(key=lambda message: message.name != "Resource")
    change(file)
    assert contract_of(file) != _official("rocketmq")[file.name]


def test_comparison_detects_presence_and_kinds_of_calls() -> None:
    file = FileDescriptorProto.FromString(service_pb2.DESCRIPTOR.serialized_pb)
    optional = next(field for message in file.message_type for field in message.field if field.proto3_optional)
    optional.proto3_optional = False
    official = _official("rocketmq")[file.name]
    assert contract_of(file)["messages"] != official["messages"]
    receive = next(method for method in file.service[0].method if method.name == "ReceiveMessage")
    receive.server_streaming = False
    assert contract_of(file)["services"] != official["services"]
