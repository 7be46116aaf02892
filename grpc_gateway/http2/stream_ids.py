"""Identifiers of a connection's streams, and the checks of frames for closed ones (RFC 9113 section 5.1)."""

from typing import Final

from grpc_gateway.http2.errors import ConnectionFault, ErrorCode, StreamFault

MAX_STREAM_ID: Final = 2**31 - 1
# Draining begins here, so that streams in flight still get identifiers.
_DRAIN_STREAM_ID: Final = MAX_STREAM_ID - 2 * 65_536
_MAX_GAPS: Final = 16


class StreamIds:
    """Identifiers that the peer has used.

    last: the highest identifier of a stream that the peer has opened.
    last_accepted: the highest identifier that the final GOAWAY admits, or MAX_STREAM_ID before it.
    """

    __slots__ = ("_gaps", "_max_resets", "_resets", "last", "last_accepted")

    def __init__(self, max_resets: int) -> None:
        self.last = 0
        self.last_accepted = MAX_STREAM_ID
        self._max_resets = max_resets
        self._resets: dict[int, None] = {}
        # The last skipped ranges. A list, as an empty deque takes 600 bytes more.
        self._gaps: list[tuple[int, int]] = []

    def open(self, stream_id: int) -> bool:
        """Record the identifier of a new stream; return whether identifiers are about to run out."""
        last = self.last
        if stream_id - last > 2:
            # Skipped identifiers are closed (section 5.1.1).
            self._gaps.append((last + 1, stream_id - 1))
            del self._gaps[:-_MAX_GAPS]
        self.last = stream_id
        return stream_id > _DRAIN_STREAM_ID

    def remember_reset(self, stream_id: int) -> None:
        """Record a stream that the server has reset: the peer may have sent frames before it learns of that."""
        resets = self._resets
        resets[stream_id] = None
        if len(resets) > self._max_resets:
            del resets[next(iter(resets))]

    def check_late_data(self, stream_id: int) -> None:
        """Check DATA for a stream that is not open for it. Raises ConnectionFault or StreamFault unless it is late."""
        if stream_id & 1 and stream_id > self.last_accepted:
            # After a final GOAWAY, new streams of the peer are ignored (section 6.8).
            return
        if stream_id == 0 or stream_id > self.last or not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame for stream {stream_id}, which is idle")
        if stream_id not in self._resets:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "the stream is closed")

    def check_late_headers(self, stream_id: int) -> None:
        """Check HEADERS for a stream that is closed. Raises ConnectionFault unless they are late."""
        if stream_id > self.last_accepted:
            return
        if any(first <= stream_id <= last for first, last in self._gaps):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} was skipped")
        if stream_id not in self._resets:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is closed")
