"""Batches: sends with several messages in their bodies."""

from collections.abc import Mapping
from typing import Final

from remoting import messages
from remoting.codes import RequestCode
from remoting.errors import BodyError
from remoting.requests import SEND_FIELD_NAMES

# Bytes of an entry without body and properties.
_MIN_ENTRY_SIZE: Final = 22
# The ext field that marks a batch, by the code of a send.
_BATCH_FIELDS: Final[dict[int, str]] = {code: names.batch for code, names in SEND_FIELD_NAMES.items()}
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)


def is_batch(code: int, fields: Mapping[str, str]) -> bool:
    """Return whether a request's body is, or may be, a batch."""
    field = _BATCH_FIELDS.get(code)
    if field is None:
        return False
    # A batch has a request code of its own, but brokers read a flag that every send has (SendMessageProcessor).
    value = fields.get(field, "false")
    return code == _SEND_BATCH or (value != "false" and value.lower() == "true")


def count_messages(body: bytes) -> int:
    """Count the messages of a batch as brokers do, which ignore the size in each entry.

    For an incomplete body, return the largest possible number, so that limits cannot be bypassed.
    """
    try:
        return len(messages.decode_batch(body))
    except BodyError:
        return len(body) // _MIN_ENTRY_SIZE + 1
