"""Targets in the bytes of a connection: negotiation, remoting frames and headers, HTTP/2."""

import struct
from pathlib import Path

import hpack

from grpc_gateway.http2 import frames
from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ConnectionFault
from grpc_gateway.http2.hpack import Decoder, Encoder, HeaderListTooLarge
from grpc_gateway.http2.stream import Stream
from protocol_negotiation.detect import Match, detect
from protocol_negotiation.proxy_protocol import ProxyProtocolError, parse
from remoting import command as commands
from remoting.codes import SerializeType
from remoting.errors import FrameError, HeaderError
from remoting.frame import Frame, FrameDecoder, encode_prefix
from tests.fuzz.target import Target

_GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# Inputs that are also checked at each of their prefixes, which takes quadratic time.
_MAX_PREFIXES = 300


def _golden(*names: str) -> tuple[bytes, ...]:
    return tuple((_GOLDEN / f"{name}.bin").read_bytes() for name in names)


# Negotiation.


def _test_detection(data: bytes) -> None:
    """A decision does not change with later bytes, and falls within the first bytes."""
    decided: object = Match.MORE
    for size in range(min(len(data), 32) + 1):
        found = detect(data[:size])
        assert decided in (Match.MORE, found), f"{decided} became {found} at byte {size}"
        decided = found
    assert decided is not Match.MORE or len(data) < 16


def _test_proxy_header(data: bytes) -> None:
    """A header is found at its last byte, and an error is final."""
    result = _proxy_result(data)
    for size in range(min(len(data), _MAX_PREFIXES)):
        earlier = _proxy_result(data[:size])
        if earlier is not None:
            assert earlier == result, f"{earlier} at byte {size} became {result}"
            return


def _proxy_result(data: bytes) -> object:
    try:
        header = parse(data)
    except ProxyProtocolError:
        return "error"
    return None if header is None else (header.source, header.destination, header.size, dict(header.tlvs))


# Remoting.


def _split(chunks: list[bytes], max_frame: int) -> tuple[list[Frame], str]:
    """Return the frames of a stream, and the error that ended it."""
    decoder, found = FrameDecoder(max_frame), list[Frame]()
    try:
        for chunk in chunks:
            found += decoder.feed(chunk)
    except FrameError as error:
        return found + error.frames, str(error)
    return found, ""


def _test_frames(data: bytes) -> None:
    """Chunks of any size give the same frames, which are encoded to the same bytes."""
    whole = _split([data], 4096)
    for size in (1, 7):
        assert _split([data[start : start + size] for start in range(0, len(data), size)], 4096) == whole
    encoded = b"".join(encode_prefix(kind, len(header), len(body)) + header + body for kind, header, body in whole[0])
    assert data.startswith(encoded)


def _test_header(data: bytes) -> None:
    """A request's header can be forwarded, and is the same after it."""
    if not data:
        return
    frame: Frame = (data[0] & 1, data[1:], b"body")
    try:
        command = commands.decode(frame)
    except HeaderError:
        return
    repr(command), command.remark, command.version, command.language
    if command.is_response:
        return
    first = _reencoded(command, SerializeType.JSON)
    assert first.fields == command.fields
    assert (first.code, first.opaque, first.flag) == (command.code, command.opaque, command.flag)
    assert _reencoded(first, SerializeType.JSON).header == first.header


def _reencoded(command: commands.RemotingCommand, encoding: SerializeType) -> commands.RemotingCommand:
    command.serialize_type = encoding
    ((kind, header, body),) = FrameDecoder().feed(command.encode() + command.body)
    return commands.decode((kind, header, body))


# HTTP/2.


def _pair(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode("latin-1"), value.encode("latin-1")


def _test_hpack(data: bytes) -> None:
    """Blocks of a connection decode as in the library hpack, and encoded fields decode to themselves.

    The input is a sequence of blocks, each after a byte with its length.
    """
    ours = Decoder(_pair, max_list_size=1 << 20)
    theirs = hpack.Decoder(max_header_list_size=1 << 24)
    position = 0
    while position < len(data):
        block = data[position + 1 : position + 1 + data[position]]
        position += 1 + data[position]
        try:
            fields, _ = ours.decode(block)
        except HeaderListTooLarge:
            continue
        except ConnectionFault:
            return
        assert fields == [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
        again = Decoder(_pair, max_list_size=1 << 20)
        assert again.decode(Encoder().fields(fields))[0] == fields


def _served(chunks: list[bytes]) -> tuple[object, ...]:
    """Return what a connection has done with its bytes."""
    connection, streams = Connection(0.0), dict[int, Stream]()
    for chunk in chunks:
        changed = connection.receive(chunk, 0.0)
        while True:
            streams |= {stream.id: stream for stream in changed}
            if not connection.pending:
                break
            changed = connection.receive_more(0.0)
    fault = connection.fault
    return (
        b"".join(connection.sender.output),
        None if fault is None else (fault.code, fault.text),
        connection.requests,
        [
            (identifier, stream.ended, stream.closed, b"".join(stream.inbox), stream.unread)
            for identifier, stream in sorted(streams.items())
        ],
        sorted(connection.streams),
    )


def _test_http2(data: bytes) -> None:
    """Chunks of any size have the same effect on a connection."""
    data = frames.PREFACE + frames.settings({}) + data
    whole = _served([data])
    for size in (1, 11):
        pieces = _served([data[start : start + size] for start in range(0, len(data), size)])
        assert pieces == whole, f"{pieces} instead of {whole}"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + struct.pack("!BBI", kind, flags, stream) + payload


_BLOCK = hpack.Encoder().encode(
    [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a/B"),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
)
_REQUEST = _frame(1, 4, 1, _BLOCK) + _frame(0, 1, 1, b"\0\0\0\0\2hi")
_HTTP2_SEEDS = (
    _REQUEST,
    _frame(1, 0, 1, _BLOCK[:9]) + _frame(9, 4, 1, _BLOCK[9:]) + _frame(3, 0, 1, b"\0\0\0\x08"),
    _frame(4, 0, 0, struct.pack("!HIHI", 4, 70_000, 1, 0)) + _frame(4, 1, 0) + _frame(8, 0, 0, b"\0\0\1\0") + _REQUEST,
    _frame(6, 0, 0, bytes(8)) * 3 + _frame(2, 0, 3, bytes(4) + b"\1") + _frame(7, 0, 0, bytes(8)) + _frame(20, 0, 1),
    _frame(1, 0x2C, 1, b"\2" + bytes(5) + _BLOCK + b"\0\0") + _frame(0, 8, 1, b"\3abc\0\0\0") + _frame(1, 5, 1, _BLOCK),
)
_V2 = b"\r\n\r\n\0\r\nQUIT\n"

TARGETS = (
    Target(
        "detection",
        _test_detection,
        (frames.PREFACE, b"PROXY TCP4 1", _V2, b"\x16\x03\x01\x02\0\x01", b"GET / HTTP/1.1", b"\0\0\1\0\0\0\0\x70{"),
    ),
    Target(
        "proxy-headers",
        _test_proxy_header,
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\nGET /",
            b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
            b"PROXY UNKNOWN\r\n",
            _V2 + b"\x21\x11\x00\x0c" + bytes(range(12)),
            _V2 + b"\x21\x21\x00\x2b" + bytes(36) + b"\x04\0\1\0\x01\0\0",
            _V2 + b"\x20\x00\x00\x00",
        ),
        (b"PROXY ", b"TCP4 ", b"TCP6 ", b"UNKNOWN", b"\r\n", _V2, b"\x03\0\x04"),
    ),
    Target("remoting-frames", _test_frames, _golden("10-SEND_MESSAGE", "11-PULL_MESSAGE-binary", "34-HEART_BEAT")),
    Target(
        "remoting-headers",
        _test_header,
        tuple(
            bytes((raw[4],)) + raw[8 : 8 + int.from_bytes(raw[5:8])]
            for raw in _golden(
                "10-SEND_MESSAGE", "310-SEND_MESSAGE_V2-binary", "41-LOCK_BATCH_MQ", "34-HEART_BEAT-binary"
            )
        ),
        (b'"code":', b'"opaque":', b'"flag":', b'"extFields":{', b'"remark":', b'"version":', b"null", b"1e9", b"[[["),
    ),
    Target(
        "hpack", _test_hpack, (bytes((len(_BLOCK),)) + _BLOCK, b"\x03\x3f\xe1\x1f" + b"\x05\x40\x01x\x01y" + b"\1\xbe")
    ),
    Target("http2", _test_http2, _HTTP2_SEEDS),
)
