"""Trace contexts, as messages carry them among their properties. Pure."""

import re
import struct
from typing import NamedTuple

from remoting import messages, properties
from remoting.errors import BodyError
from remoting.messages import StoredMessage

TRACEPARENT = "traceparent"
# Version ff is none, and version 00 has nothing behind the flags (W3C Trace Context, section 3.2.2).
_TRACEPARENT = re.compile(r"(?!ff|00.{54})[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?").fullmatch
_NONE = ("0" * 32, "0" * 16)
_SAMPLED = 0x01
# What messages say that carry a context: from here, and from anywhere.
OURS = (TRACEPARENT.encode(),)
ANYBODYS = (*OURS, properties.TRACE_CONTEXT.encode())
# Of a stored record: its size.
_size = struct.Struct(">i").unpack_from


class TraceContext(NamedTuple):
    """A span's place: the trace's id and its own, in hexadecimal digits, and whether the trace is kept."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse(text: str) -> TraceContext | None:
    """The context that a `traceparent` is; None where it makes no sense."""
    found = _TRACEPARENT(text)
    if found is None or found[1] == _NONE[0] or found[2] == _NONE[1]:
        return None
    return TraceContext(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))


def of_message(text: str) -> TraceContext | None:
    """The trace context in a property string; None where there is none that makes sense."""
    for name in (TRACEPARENT, properties.TRACE_CONTEXT):
        if name in text:
            found = parse(properties.get(text, name) or "")
            if found is not None:
                return found
    return None


def carried_by(text: str, context: TraceContext) -> str:
    """The property string of a message that is to carry this context."""
    carried = str(context)
    # Of a property that is there twice the last one counts.
    carrying = properties.append(text, TRACEPARENT, carried)
    if parse(properties.get(text, properties.TRACE_CONTEXT) or "") is None:
        # In any other form it is something else's, whose consumers want it as it is.
        return carrying
    return properties.append(carrying, properties.TRACE_CONTEXT, carried)


def carriers(body: bytes, names: tuple[bytes, ...] = ANYBODYS) -> list[StoredMessage]:
    """The stored records that may carry a context by one of these names; no others are decoded. Of a body that breaks
    off, the whole ones."""
    found: list[StoredMessage] = []
    start = 0
    try:
        while (place := _next(body, names, start)) >= 0:
            (size,) = _size(body, start)
            while 0 < size <= place - start:
                start += size
                (size,) = _size(body, start)
            if size <= 0:
                break
            found += messages.decode_messages(body[start : start + size])
            start += size
    except (struct.error, BodyError):
        # Clients see to that.
        pass
    return found


def _next(body: bytes, names: tuple[bytes, ...], start: int) -> int:
    """Where a context's name is next; -1: nowhere."""
    if len(names) == 1:
        return body.find(names[0], start)
    return min((place for name in names if (place := body.find(name, start)) >= 0), default=-1)
