"""Batches: sends with several messages in their bodies, by whichever request they come."""

from collections.abc import Mapping

from remoting import messages
from remoting.codes import RequestCode
from remoting.errors import BodyError
from remoting.requests import SEND_FIELD_NAMES

# Bytes of an entry without body and properties.
_LEAST = 22


def is_batch(code: int, fields: Mapping[str, str]) -> bool:
    """Whether a request's body is, or may be, a batch."""
    names = SEND_FIELD_NAMES.get(code)
    if names is None:
        return False
    # A batch has a request code of its own, but brokers read a flag that every send has (SendMessageProcessor).
    value = fields.get(names.batch, "false")
    return code == RequestCode.SEND_BATCH_MESSAGE or (value != "false" and value.lower() == "true")


def count(body: bytes) -> int:
    """The messages of a batch, counted as brokers do: the size that an entry gives itself means nothing to them.

    Of a body that breaks off, as many as there could be: nobody shall get by a limit like that.
    """
    try:
        return len(messages.decode_batch(body))
    except BodyError:
        return len(body) // _LEAST + 1
