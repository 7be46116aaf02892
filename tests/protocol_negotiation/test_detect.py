import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol_negotiation.detect import PREFIX_SIZE, PROTOCOLS, Match, Protocol, detect
from tests.protocol_negotiation.samples import (
    HTTP1_REQUEST,
    HTTP2_PREFACE,
    PROXY_V1,
    PROXY_V2,
    client_hello,
    remoting_frame,
)

# A sample, its protocol, and the number of bytes after which it is detected.
SAMPLES: list[tuple[bytes, Protocol, int]] = [
    (PROXY_V1, Protocol.PROXY_V1, 6),
    (b"PROXY UNKNOWN\r\n", Protocol.PROXY_V1, 6),
    (PROXY_V2, Protocol.PROXY_V2, 12),
    (client_hello(), Protocol.TLS, 6),
    (bytes.fromhex("160301020001000001fc0303"), Protocol.TLS, 6),
    (HTTP2_PREFACE, Protocol.GRPC, 16),
    (remoting_frame(), Protocol.REMOTING, 8),
    (remoting_frame(b"\0\x22\0\0\x01" + bytes(16), b"body", serialize_type=1), Protocol.REMOTING, 8),
    (bytes.fromhex("00fffffc 00 fffff8") + b"{", Protocol.REMOTING, 8),
    (HTTP1_REQUEST, Protocol.HTTP1, 4),
    *(
        (method + b" /x HTTP/1.1\r\n\r\n", Protocol.HTTP1, len(method) + 1)
        for method in (b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT")
    ),
]


@pytest.mark.parametrize(("sample", "protocol", "detected_at"), SAMPLES)
def test_a_protocol_is_detected_after_a_known_number_of_bytes(
    sample: bytes, protocol: Protocol, detected_at: int
) -> None:
    for size in range(detected_at):
        assert detect(sample[:size]) is Match.MORE, size
    for size in range(detected_at, len(sample) + 1):
        assert detect(sample[:size]) is protocol, size
    assert detect(sample + b"\xff" * 5000) is protocol


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("01", "a remoting length over 16 MiB"),
        ("00fffffd", "a remoting frame over 16 MiB with its length field"),
        ("00000000", "a remoting frame of nothing"),
        ("00000004", "a remoting frame without a header"),
        ("0000001002", "an unknown serialize type"),
        ("0000001000000000", "an empty remoting header"),
        ("000000100000000d", "a remoting header longer than its frame"),
        ("1604", "not TLS's major version"),
        ("160305", "no version of TLS"),
        ("1603030000", "an empty TLS record"),
        ("1603034001", "a TLS record over 2^14"),
        ("160301020002", "a ServerHello"),
        ("80", "SSL 2"),
        (b"PRI * HTTP/1.1\r\n".hex(), "not HTTP/2's preface"),
        (b"PROXY\t".hex(), "not a PROXY line"),
        (b"get ".hex(), "methods are in capitals"),
        (b"GETS".hex(), "no method"),
        (b"SSH-2.0".hex(), "SSH"),
        (b"\r\n\r\n\0\r\nQUIS".hex(), "nearly PROXY v2"),
    ],
)
def test_an_unknown_prefix_matches_no_protocol(prefix: str, reason: str) -> None:
    assert detect(bytes.fromhex(prefix)) is Match.NO, reason


def test_no_bytes_are_undecided() -> None:
    assert detect(b"") is Match.MORE


def test_every_protocol_has_one_row() -> None:
    assert sorted(protocol for protocol, _ in PROTOCOLS) == sorted(Protocol)


starts = st.sampled_from([b"", *(sample[:size] for sample, _, length in SAMPLES for size in range(1, length + 1))])


@given(starts, st.binary(max_size=40))
@example(b"", b"")
def test_detection_of_garbage_never_changes_and_ends(start: bytes, end: bytes) -> None:
    data = start + end
    decided: object = Match.MORE
    for size in range(len(data) + 1):
        detection = detect(data[:size])
        assert decided in (Match.MORE, detection), "a decision must never change"
        decided = detection
    if len(data) >= PREFIX_SIZE:
        assert decided is not Match.MORE
    assert sum(matches(data) is Match.YES for _, matches in PROTOCOLS) <= 1
