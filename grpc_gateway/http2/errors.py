"""Errors of connections and streams (RFC 9113 sections 5.4 and 7)."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Error codes of RFC 9113 section 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):
    """An error that ends the connection by GOAWAY with `code` and `text`. `reason` is a metric label."""

    def __init__(self, code: ErrorCode, text: str, reason: str = "protocol") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason


class StreamFault(Exception):
    """An error that ends one stream by RST_STREAM with `code`. `reason` is a metric label."""

    def __init__(self, code: ErrorCode, text: str, reason: str = "protocol") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason
