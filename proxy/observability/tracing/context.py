"""Trace contexts in the properties of messages. Pure."""

import re
import struct
from typing import Final, NamedTuple

from remoting import messages, properties
from remoting.errors import BodyError
from remoting.messages import StoredMessage

TRACEPARENT: Final = "traceparent"
# Version ff is invalid, and version 00 has nothing after the flags (W3C Trace Context, section 3.2.2).
_TRACEPARENT = re.compile(r"(?!ff|00.{54})[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_INVALID_TRACE_ID, _INVALID_SPAN_ID = "0" * 32, "0" * 16
_SAMPLED = 0x01
# Property names to search stored messages for: that of messages sent through Gantry, and all.
TRACEPARENT_NAME = (TRACEPARENT.encode(),)
ALL_NAMES = (*TRACEPARENT_NAME, properties.TRACE_CONTEXT.encode())
# Unpacks the size of a stored record.
_size = struct.Struct(">i").unpack_from


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
    """Return the stored messages that may have a context under one of these names; other messages are not decoded.

    An incomplete last message is ignored.
    """
    decoded: list[StoredMessage] = []
    start = 0
    try:
        while (position := _find_name(body, names, start)) >= 0:
            (size,) = _size(body, start)
            while 0 < size <= position - start:
                start += size
                (size,) = _size(body, start)
            if size <= 0:
                break
            decoded += messages.decode_messages(body[start : start + size])
            start += size
    except (struct.error, BodyError):
        # Clients report the invalid body.
        pass
    return decoded


def _find_name(body: bytes, names: tuple[bytes, ...], start: int) -> int:
    """Return the position of the next name of a context; -1 if there is none."""
    if len(names) == 1:
        return body.find(names[0], start)
    return min((position for name in names if (position := body.find(name, start)) >= 0), default=-1)
