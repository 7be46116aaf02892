"""Encoding of renewal events."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_gateway.consuming.renewal_events import RenewalEvent, RenewalEventType, decode, encode
from remoting.errors import BodyError

_HANDLE = "5 1700000000000 60000 0 0 broker-a 1 5 4711 a-1"
_EVENTS = [
    RenewalEvent(RenewalEventType.RENEWED, "group", "topic", _HANDLE, _HANDLE.replace("17", "18")),
    RenewalEvent(RenewalEventType.ACKNOWLEDGED, "group", "topic", _HANDLE, _HANDLE),
    RenewalEvent(RenewalEventType.CHANGED, "group", "topic", _HANDLE, _HANDLE, 3_000),
]


def test_decode_reads_encoded_events() -> None:
    assert decode(encode("replica", _EVENTS)) == ("replica", _EVENTS)


def _json(*items: object) -> bytes:
    return orjson.dumps(items)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"{}",
        b"[]",
        _json(2, "replica"),
        _json(1, 5),
        _json(1, "replica", ["renewed"]),
        _json(1, "replica", 5),
        _json(1, "replica", ["forgotten", "group", "topic", _HANDLE, _HANDLE, 0]),
        _json(1, "replica", ["renewed", "group", "topic", "nonsense", _HANDLE, 0]),
        _json(1, "replica", ["renewed", "group", "topic", _HANDLE, "nonsense", 0]),
        _json(1, "replica", ["renewed", "group", "topic", _HANDLE, _HANDLE, "0"]),
        _json(1, "replica", ["renewed", "group", 5, _HANDLE, _HANDLE, 0]),
    ],
)
def test_decode_rejects_invalid_messages(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode(body)


@given(st.binary() | st.recursive(st.none() | st.integers(0, 2) | st.text(), st.lists).map(orjson.dumps))
def test_decode_raises_only_body_error(body: bytes) -> None:
    with contextlib.suppress(BodyError):
        decode(body)
