"""SETTINGS (RFC 9113 section 6.5): what the peer may say, and what it means to us."""

import struct

from grpc_gateway.http2.errors import ConnectionFault, ErrorCode

HEADER_TABLE_SIZE = 0x1
ENABLE_PUSH = 0x2
MAX_CONCURRENT_STREAMS = 0x3
INITIAL_WINDOW_SIZE = 0x4
MAX_FRAME_SIZE = 0x5
MAX_HEADER_LIST_SIZE = 0x6

MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384
DEFAULT_TABLE_SIZE = 4096

# (lowest, highest, the error outside); RFC 9113 section 6.5.2.
_BOUNDS = {
    ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    INITIAL_WINDOW_SIZE: (0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    MAX_FRAME_SIZE: (2**14, 2**24 - 1, ErrorCode.PROTOCOL_ERROR),
}
_SETTING = struct.Struct("!HI")


def parse(payload: bytes) -> list[tuple[int, int]]:
    """The settings of a frame in their order, unknown ones included; raises ConnectionFault."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS frame is not a multiple of 6 bytes")
    values = list(_SETTING.iter_unpack(payload))
    for identifier, value in values:
        lowest, highest, code = _BOUNDS.get(identifier, (0, value, ErrorCode.PROTOCOL_ERROR))
        if not lowest <= value <= highest:
            raise ConnectionFault(code, f"setting {identifier} must not be {value}")
    return values
