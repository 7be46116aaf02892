"""The codec of frames between supervisor and workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.workers.frames import BadFrame, Decoder, Frame, Kind, encode

FRAMES = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=100),
)


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_any_split_of_their_bytes(frames: list[Frame], sizes: list[int]) -> None:
    data, decoder = b"".join(map(encode, frames)), Decoder()
    found: list[Frame] = []
    while data:
        for size in sizes:
            found += decoder.feed(data[:size])
            data = data[size:]
    assert found == frames


def test_frame_is_complete_with_its_last_byte() -> None:
    frame = Frame(Kind.PART, 1, 2**40, b"a part")
    data, decoder = encode(frame), Decoder()
    for byte in data[:-1]:
        assert list(decoder.feed(bytes([byte]))) == []
    assert list(decoder.feed(data[-1:])) == [frame]
    assert list(decoder.feed(data)) == [frame]


def test_encoding_is_as_documented() -> None:
    assert encode(Frame(Kind.REQUEST, 1, 2, b"?")) == b"\0\0\0\x0c\x03\0\x01\0\0\0\0\0\0\0\x02?"
    assert encode(Frame(Kind.READY)) == b"\0\0\0\x0b\x01" + bytes(10)


@pytest.mark.parametrize(
    "garbage",
    [
        # Too short, too long, unknown kinds.
        b"\0\0\0\x0a" + bytes(10),
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x0b\x00" + bytes(10),
        b"\0\0\0\x0b\x09" + bytes(10),
    ],
)
def test_bad_frame_is_reported_after_the_frames_before_it(garbage: bytes) -> None:
    frame = Frame(Kind.END, 1, 7)
    found: list[Frame] = []
    with pytest.raises(BadFrame):
        found.extend(Decoder().feed(encode(frame) + garbage))
    assert found == [frame]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_frames_or_a_bad_frame(data: bytes) -> None:
    decoder = Decoder()
    try:
        frames = list(decoder.feed(data))
    except BadFrame:
        return
    # The rest may be the beginning of a frame.
    assert b"".join(map(encode, frames)) == data[: sum(len(encode(frame)) for frame in frames)]
