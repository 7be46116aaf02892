import struct

from protocol_negotiation.http2 import HTTP_1_1_REQUIRED, go_away
from tests.protocol_negotiation.kit import EMPTY_SETTINGS


def test_the_frames() -> None:
    said = go_away()
    assert said.startswith(EMPTY_SETTINGS)
    frame = said[len(EMPTY_SETTINGS) :]
    assert int.from_bytes(frame[:3]) == len(frame) - 9
    assert frame[3:9] == bytes((7, 0, 0, 0, 0, 0))
    assert struct.unpack("!II", frame[9:17]) == (0, HTTP_1_1_REQUIRED)
    assert b"RocketMQ" in frame[17:]
