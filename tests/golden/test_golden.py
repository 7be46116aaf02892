"""Frames of all request codes, recorded from official software, are decoded and encoded without loss."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from remoting.codes import RequestCode, SerializeType
from remoting.command import RemotingCommand, decode
from remoting.frame import FrameDecoder
from remoting.requests import REQUESTS

_HERE = Path(__file__).parent
_FRAMES: dict[str, dict[str, Any]] = json.loads((_HERE / "frames.json").read_text())


def _decode(data: bytes) -> RemotingCommand:
    [frame] = FrameDecoder().feed(data)
    return decode(frame)


def _contents(command: RemotingCommand) -> dict[str, Any]:
    return {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.header["flag"],
        "remark": command.remark,
        "fields": command.fields,
        "body": {"size": len(command.body), "sha256": hashlib.sha256(command.body).hexdigest()},
    }


def _expected(name: str) -> dict[str, Any]:
    return {key: value for key, value in _FRAMES[name].items() if key != "origin"}


def test_every_request_code_has_a_frame() -> None:
    assert {frame["code"] for frame in _FRAMES.values()} >= set(REQUESTS)
    assert set(_FRAMES) == {file.name for file in _HERE.glob("*.bin")}


@pytest.mark.parametrize("name", _FRAMES)
def test_a_recorded_frame_is_decoded_as_expected(name: str) -> None:
    assert _contents(_decode((_HERE / name).read_bytes())) == _expected(name)


@pytest.mark.parametrize("name", _FRAMES)
def test_a_recorded_frame_satisfies_the_request_table(name: str) -> None:
    command = _decode((_HERE / name).read_bytes())
    spec = REQUESTS[command.code]
    assert spec.required <= command.fields.keys()
    optional = (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert spec.topic is None or spec.topic in command.fields or command.code in optional


@pytest.mark.parametrize("encoding", list(SerializeType), ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("name", _FRAMES)
def test_a_recorded_frame_is_encoded_without_loss(name: str, encoding: SerializeType) -> None:
    command = _decode((_HERE / name).read_bytes())
    command.serialize_type = encoding
    encoded = _decode(command.encode() + command.body)
    assert encoded.serialize_type == encoding
    expected = _expected(name)
    if encoding is SerializeType.ROCKETMQ:
        # The binary header has no empty texts.
        expected["remark"] = expected["remark"] or None
        expected["fields"] = {key: value for key, value in expected["fields"].items() if value}
    assert _contents(encoded) == expected


@pytest.mark.parametrize("name", _FRAMES)
def test_a_recorded_frame_may_arrive_in_two_chunks(name: str) -> None:
    data = (_HERE / name).read_bytes()
    whole = FrameDecoder().feed(data)
    for split in range(1, len(data), max(1, len(data) // 50)):
        decoder = FrameDecoder()
        assert decoder.feed(data[:split]) + decoder.feed(data[split:]) == whole
