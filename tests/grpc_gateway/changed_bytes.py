"""Requests with wrong bytes, for the readers that do without protobuf."""

from hypothesis import strategies as st


def with_changed_bytes(request: bytes, data: st.DataObject) -> bytes:
    """Return a serialized request in which up to three bytes differ."""
    raw = bytearray(request)
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    return bytes(raw)
