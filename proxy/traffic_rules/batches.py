"""Batches: sends with several messages in their bodies."""

from collections.abc import Mapping

from remoting import messages
from remoting.codes import RequestCode
from remoting.errors import BodyError
from remoting.requests import SEND_FIELD_NAMES

# Bytes of an entry without body and properties.
_MIN_ENTRY_SIZE = 22


def is_batch(code: int, fields: Mapping[str, str]) -> bool:
    """Return whether a request's body is, or may be, a batch."""
    names = SEND_FIELD_NAMES.get(code)
    if names is None:
        return False
    # A batch has a request code of its own, but brokers read a flag that every send has (SendMessageProcessor).
    value = fields.get(names.batch, "false")
    return code == RequestCode.SEND_BATCH_MESSAGE or (value != "false" and value.lower() == "true")


def count_messages(body: bytes) -> int:
    """Count the messages of a batch as brokers do, which ignore the size in each entry.

    For an incomplete body, return the largest possible number, so that limits cannot be bypassed.
    """
    try:
        return len(messages.decode_batch(body))
    except BodyError:
        return len(body) // _MIN_ENTRY_SIZE + 1
