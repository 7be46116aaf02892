"""Message bodies for people: text, JSON, hex, base64, or protobuf by descriptor sets."""

import base64
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import Field

from proxy.operations.failures import Failure, FailureKind, OperationFailed
from proxy.operations.values import Answer
from remoting import messages
from remoting.errors import BodyError
from remoting.messages import StoredMessage

BodyFormat = Literal["auto", "text", "json", "hex", "base64", "protobuf"]
# Bytes of a body that are shown, and characters of a preview.
_MAX_SHOWN = 256 * 1024
_MAX_PREVIEW = 160


class Body(Answer):
    """The body of a message."""

    format: Literal["text", "json", "hex", "base64", "protobuf"]
    content: Any = Field(description="a JSON value for json and protobuf, else text", examples=[{"order": 17}])
    bytes: int = Field(description="size, decompressed")
    truncated: bool = Field(description="whether only the first 256 KiB are shown")


class WrongFormat(OperationFailed):
    """A body that is not in the requested format, or a request that names no known type."""

    def __init__(self, place: str, detail: str) -> None:
        super().__init__(Failure(FailureKind.INVALID, detail, [(place, detail)]))


def preview(message: StoredMessage) -> str:
    """Return the beginning of a body as text, or as hex."""
    try:
        data = messages.body(message)
    except BodyError as error:
        return f"<{error}>"
    head = data[: 4 * _MAX_PREVIEW]
    # A character may be cut off at the end.
    text = head.decode(errors="ignore")
    if len(text.encode()) < len(head) - 3 or any(not char.isprintable() and not char.isspace() for char in text):
        return data[: _MAX_PREVIEW // 3].hex(" ")
    return text[:_MAX_PREVIEW]


def present(message: StoredMessage, wanted: BodyFormat, type_name: str | None, descriptors: Sequence[Path]) -> Body:
    """Return a message's body in a format. Raises WrongFormat, BodyError."""
    data = messages.body(message)
    return _PRESENTATIONS[wanted](data) if wanted != "protobuf" else _protobuf(data, type_name, descriptors)


def _auto(data: bytes) -> Body:
    if data[:1] in (b"{", b"[") and len(data) <= _MAX_SHOWN:
        try:
            return Body(format="json", content=orjson.loads(data), bytes=len(data), truncated=False)
        except orjson.JSONDecodeError:
            pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _hex(data)
    return _text(data) if all(char.isprintable() or char.isspace() for char in text[:_MAX_PREVIEW]) else _hex(data)


def _text(data: bytes) -> Body:
    text = data[:_MAX_SHOWN].decode(errors="replace")
    return Body(format="text", content=text, bytes=len(data), truncated=len(data) > _MAX_SHOWN)


def _json(data: bytes) -> Body:
    try:
        return Body(format="json", content=orjson.loads(data), bytes=len(data), truncated=False)
    except orjson.JSONDecodeError as error:
        raise WrongFormat("query body", f"the body is not JSON: {error}") from None


def _hex(data: bytes) -> Body:
    return Body(format="hex", content=data[:_MAX_SHOWN].hex(), bytes=len(data), truncated=len(data) > _MAX_SHOWN)


def _base64(data: bytes) -> Body:
    content = base64.b64encode(data[:_MAX_SHOWN]).decode()
    return Body(format="base64", content=content, bytes=len(data), truncated=len(data) > _MAX_SHOWN)


_PRESENTATIONS = {"auto": _auto, "text": _text, "json": _json, "hex": _hex, "base64": _base64}


# Protobuf.


def _protobuf(data: bytes, type_name: str | None, files: Sequence[Path]) -> Body:
    from google.protobuf.json_format import MessageToDict, SerializeToJsonError
    from google.protobuf.message import DecodeError

    if type_name is None:
        raise WrongFormat("query message_type", "protobuf needs the full name of a message type")
    kind = message_class(tuple((file, _stamp(file)) for file in files), type_name)
    message = kind()
    try:
        message.ParseFromString(data)
        content = MessageToDict(message, preserving_proto_field_name=True)
    except (DecodeError, SerializeToJsonError) as error:
        raise WrongFormat("query message_type", f"the body is no {type_name}: {error}") from None
    return Body(format="protobuf", content=content, bytes=len(data), truncated=False)


def _stamp(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=64)
def message_class(files: tuple[tuple[Path, int], ...], type_name: str) -> Any:
    """Return the class of a message type of the descriptor sets. files: with times of their last changes.

    Descriptor sets are the output of `protoc --include_imports --descriptor_set_out`. Raises WrongFormat.
    """
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    if not files:
        raise WrongFormat("query body", "protobuf needs a descriptor set (setting admin.descriptors)")
    pool = descriptor_pool.DescriptorPool()
    for file, _ in files:
        try:
            content = FileDescriptorSet.FromString(file.read_bytes())
            for descriptor in content.file:
                pool.Add(descriptor)
        except (OSError, DecodeError, TypeError) as error:
            raise WrongFormat("query body", f"{file.name} is no readable descriptor set: {error}") from None
    try:
        found = pool.FindMessageTypeByName(type_name)
    except (KeyError, TypeError):
        raise WrongFormat("query message_type", f"the descriptor sets have no message type {type_name}") from None
    return message_factory.GetMessageClass(found)
