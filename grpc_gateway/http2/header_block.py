"""Header blocks as they arrive: padding, priority fields and CONTINUATION frames (RFC 9113 sections 6.2 and 6.10)."""

from typing import Final

from grpc_gateway.http2 import frames
from grpc_gateway.http2.abuse import Abuse
from grpc_gateway.http2.errors import ConnectionFault, ErrorCode
from grpc_gateway.http2.limits import Limits

_STREAM_ID_MASK: Final = 2**31 - 1


def unpadded(payload: bytes) -> bytes:
    """Return the payload of a padded frame (section 6.1). Raises ConnectionFault."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def fragment(flags: int, stream_id: int, payload: bytes) -> bytes:
    """Return the block fragment of a HEADERS frame with padding or priority fields. Raises ConnectionFault."""
    if flags & frames.PADDED:
        payload = unpadded(payload)
    if flags & frames.PRIORITY_FIELDS:
        # Section 5.3.2: priorities are deprecated and ignored.
        if len(payload) < 5:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS are too short for their priority fields")
        if frames.unpack_word(payload)[0] & _STREAM_ID_MASK == stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")
        payload = payload[5:]
    return payload


class PartialBlock:
    """A header block that continues in CONTINUATION frames."""

    __slots__ = ("_fragments", "_limits", "_size", "end_stream", "started_at", "stream_id")

    def __init__(self, stream_id: int, first: bytes, end_stream: int, limits: Limits, now: float) -> None:
        self.started_at = now
        self.stream_id = stream_id
        self.end_stream = end_stream
        self._limits = limits
        self._fragments = [first]
        self._size = len(first)

    def add(self, payload: bytes) -> None:
        """Append the payload of a CONTINUATION frame. Raises ConnectionFault if there are too many (CVE-2024-27316).

        A block that is not decoded cannot be skipped, as it may change the header table.
        """
        self._fragments.append(payload)
        self._size += len(payload)
        if len(self._fragments) > self._limits.continuations + 1 or self._size > 2 * self._limits.header_list:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, "a header block is far too large", Abuse.CONTINUATION_FLOOD
            )

    def join(self) -> bytes:
        """Return the whole block."""
        return b"".join(self._fragments)
