"""SETTINGS parameters (RFC 9113 section 6.5): identifiers, defaults, and validation of the peer's values."""

import struct
from typing import Final

from grpc_gateway.http2 import frames
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.limits import Limits

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_SIZE: Final = 16_384

# Minimum, maximum, and the error for other values; RFC 9113 section 6.5.2.
_BOUNDS: Final = {
    ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    INITIAL_WINDOW_SIZE: (0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    MAX_FRAME_SIZE: (2**14, 2**24 - 1, ErrorCode.PROTOCOL_ERROR),
}
_SETTING: Final = struct.Struct("!HI")


def server_preface(limits: Limits) -> list[bytes]:
    """Return the first frames of a server: SETTINGS, and WINDOW_UPDATE for a larger window of the connection."""
    values = {
        MAX_CONCURRENT_STREAMS: limits.concurrent_streams,
        INITIAL_WINDOW_SIZE: limits.stream_window,
        MAX_HEADER_LIST_SIZE: limits.header_list,
    }
    preface = [frames.settings(values)]
    if limits.connection_window > DEFAULT_WINDOW:
        preface.append(frames.window_update(0, limits.connection_window - DEFAULT_WINDOW))
    return preface


def parse(payload: bytes) -> list[tuple[int, int]]:
    """Return identifiers and values in their order, including unknown ones. Raises ConnectionFault."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS frame is not a multiple of 6 bytes")
    values = list(_SETTING.iter_unpack(payload))
    for identifier, value in values:
        minimum, maximum, code = _BOUNDS.get(identifier, (0, value, ErrorCode.PROTOCOL_ERROR))
        if not minimum <= value <= maximum:
            raise ConnectionFault(code, f"setting {identifier} must not be {value}")
    return values
