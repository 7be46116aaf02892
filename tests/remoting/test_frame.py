from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import FrameError
from remoting.frame import MAX_FRAME, MAX_HEADER, MAX_SERVER_HEADER, Frame, FrameDecoder, encode_prefix

FRAMES = st.tuples(st.integers(0, 1), st.binary(max_size=40), st.binary(max_size=40))


def encode(frame: Frame) -> bytes:
    serialize_type, header, body = frame
    return encode_prefix(serialize_type, len(header), len(body)) + header + body


GOLDEN = [
    ((0, b"{}", b""), bytes.fromhex("00000006 00000002 7b7d")),
    ((0, b"{}", b"hello"), bytes.fromhex("0000000b 00000002 7b7d 68656c6c6f")),
    ((1, b"\x00\x22", b"\xff"), bytes.fromhex("00000007 01000002 0022 ff")),
    ((0, b"", b""), bytes.fromhex("00000004 00000000")),
    ((0, b"", b"x"), bytes.fromhex("00000005 00000000 78")),
    ((1, b"h" * 0x10203, b""), bytes.fromhex("00010207 01010203") + b"h" * 0x10203),
]
SMALL = GOLDEN[:5]


@pytest.mark.parametrize(("frame", "raw"), GOLDEN)
def test_a_frame_in_one_chunk(frame: Frame, raw: bytes) -> None:
    decoder = FrameDecoder()
    assert encode(frame) == raw
    assert decoder.feed(raw) == [frame]
    assert decoder.buffered == 0


@pytest.mark.parametrize(("frame", "raw"), SMALL)
def test_a_frame_byte_by_byte(frame: Frame, raw: bytes) -> None:
    decoder = FrameDecoder()
    for count, byte in enumerate(raw[:-1], 1):
        assert decoder.feed(bytes([byte])) == []
        assert decoder.buffered == count
    assert decoder.feed(raw[-1:]) == [frame]
    assert decoder.buffered == 0


@pytest.mark.parametrize(("frame", "raw"), SMALL)
def test_a_frame_with_trailing_data(frame: Frame, raw: bytes) -> None:
    for extra in range(len(raw)):
        decoder = FrameDecoder()
        assert decoder.feed(raw + raw[:extra]) == [frame]
        assert decoder.buffered == extra
        assert decoder.feed(raw[extra:]) == [frame]


@pytest.mark.parametrize(("frame", "raw"), SMALL)
def test_an_error_after_an_unfinished_frame_does_not_lose_it(frame: Frame, raw: bytes) -> None:
    for cut in range(1, len(raw)):
        decoder = FrameDecoder()
        decoder.feed(raw[:cut])
        with pytest.raises(FrameError) as caught:
            decoder.feed(raw[cut:] + raw + b"\xff" * 8)
        assert caught.value.frames == [frame, frame]


def test_partial_frames_are_counted_once_each() -> None:
    raw = encode((0, b"{}", b"hello"))
    decoder = FrameDecoder()
    decoder.feed(raw)
    assert (decoder.partial_frames, decoder.buffered) == (0, 0)
    for count, byte in enumerate(raw[:-1], 1):
        decoder.feed(bytes([byte]))
        assert (decoder.partial_frames, decoder.buffered) == (1, count)
    decoder.feed(raw[-1:])
    assert (decoder.partial_frames, decoder.buffered) == (1, 0)
    decoder.feed(raw + raw[:3])
    assert (decoder.partial_frames, decoder.buffered) == (2, 3)
    decoder.feed(raw[3:] + raw[:9])
    assert (decoder.partial_frames, decoder.buffered) == (3, 9)


def test_no_bytes_give_no_frames() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\x00") == []
    assert decoder.feed(b"") == []
    assert decoder.buffered == 1


@given(st.lists(FRAMES, max_size=6), st.data())
def test_any_frames_in_any_chunks(frames: list[Frame], data: st.DataObject) -> None:
    raw = b"".join(map(encode, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    decoder = FrameDecoder()
    decoded = []
    for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        decoded += decoder.feed(raw[start:stop])
    assert decoded == frames
    assert decoder.buffered == 0


@pytest.mark.parametrize("limit", [100, MAX_FRAME])
def test_the_frame_limit_includes_the_length_field(limit: int) -> None:
    header = b"{}"
    frame = (0, header, bytes(limit - 8 - len(header)))
    assert FrameDecoder(limit).feed(encode(frame)) == [frame]
    with pytest.raises(FrameError, match="limit"):
        FrameDecoder(limit).feed(encode_prefix(0, len(header), len(frame[2]) + 1))


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_header_over_its_limit_is_a_frame_error(serialize_type: int) -> None:
    largest: Frame = (serialize_type, bytes(MAX_HEADER), b"body")
    assert FrameDecoder().feed(encode(largest)) == [largest]
    with pytest.raises(FrameError, match=f"a header of {MAX_HEADER + 1} bytes is over the limit") as caught:
        FrameDecoder().feed(encode((0, b"{}", b"")) + encode_prefix(serialize_type, MAX_HEADER + 1, 4))
    assert caught.value.frames == [(0, b"{}", b"")]


def test_a_server_may_send_longer_headers() -> None:
    reply: Frame = (0, bytes(MAX_HEADER + 1), b"")
    assert FrameDecoder(max_header=MAX_SERVER_HEADER).feed(encode(reply)) == [reply]
    with pytest.raises(FrameError, match=f"over the limit of {MAX_SERVER_HEADER}"):
        FrameDecoder(max_header=MAX_SERVER_HEADER).feed(encode_prefix(0, MAX_SERVER_HEADER + 1, 4))


@pytest.mark.parametrize(
    "prefix",
    [
        "00000003 00000000",  # shorter than the second word
        "00000000 00000000",
        "ffffffff 00000000",  # -1 to Java
        "80000000 00000000",
        "00000006 02000002",  # unknown serialize type
        "00000006 ff000002",
        "00000006 00000003",  # header longer than the frame
        "00000006 00ffffff",
        "474554202f204854",  # GET / HT
    ],
)
def test_an_invalid_prefix_is_a_frame_error(prefix: str) -> None:
    raw = bytes.fromhex(prefix)
    with pytest.raises(FrameError):
        FrameDecoder().feed(raw)
    decoder = FrameDecoder()
    assert [decoder.feed(raw[index : index + 1]) for index in range(7)] == [[]] * 7
    with pytest.raises(FrameError):
        decoder.feed(raw[7:])


@given(st.lists(st.binary(max_size=60)))
def test_garbage_raises_only_frame_errors(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()
    with suppress(FrameError):
        for chunk in chunks:
            decoder.feed(chunk)


@given(FRAMES, st.integers(0, 7), st.integers(0, 255))
def test_a_wrong_byte_raises_only_frame_errors(frame: Frame, position: int, byte: int) -> None:
    raw = bytearray(encode(frame))
    raw[position] = byte
    with suppress(FrameError):
        FrameDecoder().feed(bytes(raw) + encode(frame))
