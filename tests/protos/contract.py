"""The contract of a .proto file: names, numbers, types, presence and kinds of calls, as clients see them."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

Contract = dict[str, Any]

# Options that affect generated code; the official files have others without effect.
_OPTIONS = ("csharp_namespace", "java_multiple_files", "java_outer_classname", "java_package")


def contract_of(file: FileDescriptorProto) -> Contract:
    """Return a file's contract as JSON values.

    `messages` and `enums` are flat, by full name; fields are "presence type name" by number. Comments, the order of
    declarations and the names of synthetic oneofs are not included.
    """
    package = file.package
    messages = dict(_messages(package, file.message_type))
    nested = ((name, enum) for name, message in messages.items() for enum in message.enum_type)
    enums = [(package, enum) for enum in file.enum_type] + list(nested)
    return {
        "package": package,
        "syntax": file.syntax,
        "imports": sorted(file.dependency),
        "options": {option.name: value for option, value in file.options.ListFields() if option.name in _OPTIONS},
        "messages": {name: _fields(message) for name, message in sorted(messages.items())},
        "enums": {f"{scope}.{enum.name}": _values(enum) for scope, enum in enums},
        "services": {f"{package}.{service.name}": _calls(service) for service in file.service},
    }


def _messages(scope: str, messages: Any) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _messages(name, message.nested_type)


def _fields(message: DescriptorProto) -> dict[str, str]:
    fields = sorted(message.field, key=lambda field: field.number)
    return {str(field.number): f"{_presence(message, field)} {_type(field)} {field.name}" for field in fields}


def _presence(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    if field.proto3_optional:
        return "optional"
    if field.HasField("oneof_index"):
        return f"oneof {message.oneof_decl[field.oneof_index].name}"
    return "implicit"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _values(enum: EnumDescriptorProto) -> dict[str, int]:
    return {value.name: value.number for value in sorted(enum.value, key=lambda value: value.number)}


def _calls(service: ServiceDescriptorProto) -> dict[str, str]:
    return {
        method.name: f"{_stream(method.client_streaming, method.input_type)} -> "
        f"{_stream(method.server_streaming, method.output_type)}"
        for method in sorted(service.method, key=lambda method: method.name)
    }


def _stream(streaming: bool, message: str) -> str:
    return f"stream {message}" if streaming else message
