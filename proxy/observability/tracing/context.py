"""Trace contexts in the properties of messages. Pure."""

import re
from typing import Final, NamedTuple

from remoting import messages, properties
from remoting.errors import BodyError
from remoting.messages import MAGIC_V2, StoredMessage, word

TRACEPARENT: Final = "traceparent"
# Version ff is invalid, and version 00 has nothing after the flags (W3C Trace Context, section 3.2.2).
_TRACEPARENT = re.compile(r"(?!ff|00.{54})[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_INVALID_TRACE_ID, _INVALID_SPAN_ID = "0" * 32, "0" * 16
_SAMPLED = 0x01
# Property names to search stored messages for: that of messages sent through Gantry, and all.
TRACEPARENT_NAME = (TRACEPARENT.encode(),)
ALL_NAMES = (*TRACEPARENT_NAME, properties.TRACE_CONTEXT.encode())
# Bytes of a reply that is searched as a whole first, which takes less time than to find the properties of its messages.
_SMALL: Final = 48 * 1024
# In a stored record: the last byte of its magic number and of its sys flag, and the size of everything before the body,
# by the two bits of the sys flag with the sizes of the hosts.
_MAGIC: Final = 7
_SYS_FLAG: Final = 39
_HEAD_SIZES: Final = (88, 100, 100, 112)


class TraceContext(NamedTuple):
    """Context of a span: trace id and span id in hexadecimal digits, and whether the trace is sampled."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse(text: str) -> TraceContext | None:
    """Parse a `traceparent`; None if it is invalid."""
    match = _TRACEPARENT(text)
    if match is None or match[1] == _INVALID_TRACE_ID or match[2] == _INVALID_SPAN_ID:
        return None
    return TraceContext(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))


def of_message(text: str) -> TraceContext | None:
    """Return the trace context in a property string; None if it has no valid one."""
    context: TraceContext | None = None
    if TRACEPARENT in text:
        context = parse(properties.get(text, TRACEPARENT) or "")
    if context is None and properties.TRACE_CONTEXT in text:
        context = parse(properties.get(text, properties.TRACE_CONTEXT) or "")
    return context


def with_context(text: str, context: TraceContext) -> str:
    """Return a property string with this trace context."""
    traceparent = str(context)
    # The last value of a repeated property applies.
    extended = properties.append(text, TRACEPARENT, traceparent)
    if parse(properties.get(text, properties.TRACE_CONTEXT) or "") is None:
        # In another format it belongs to another tracing system, and its consumers expect it unchanged.
        return extended
    return properties.append(extended, properties.TRACE_CONTEXT, traceparent)


def messages_with_context(body: bytes, names: tuple[bytes, ...] = ALL_NAMES) -> list[StoredMessage]:
    """Return the stored messages whose properties may have a context under one of these names.

    Other messages are not decoded, and the bodies of a large reply are not searched. An incomplete last message is
    ignored.
    """
    decoded: list[StoredMessage] = []
    position, end = 0, len(body)
    if end <= _SMALL and not _has_name(body, names, 0, end):
        return decoded
    try:
        while position < end:
            following = position + word(body, position)
            if following == position or following > end:
                break
            if _has_name(body, names, _properties_position(body, position), following):
                decoded += messages.decode_messages(body[position:following])
            position = following
    except (IndexError, BodyError):
        # Clients report the invalid body.
        pass
    return decoded


def _has_name(body: bytes, names: tuple[bytes, ...], start: int, end: int) -> bool:
    for name in names:  # noqa: SIM110  # compiled, a generator takes longer than the search
        if body.find(name, start, end) >= 0:
            return True
    return False


def _properties_position(body: bytes, position: int) -> int:
    """Return the position of the properties of the record at a position. Raises IndexError."""
    head_size = _HEAD_SIZES[body[position + _SYS_FLAG] >> 4 & 0b11]
    topic = position + head_size + word(body, position + head_size - 4)
    if body[position + _MAGIC] == MAGIC_V2 & 0xFF:
        return topic + 2 + (body[topic] << 8 | body[topic + 1]) + 2
    return topic + 1 + body[topic] + 2
