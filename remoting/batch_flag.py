"""Whether the body of a send is a batch.

A batch has a request code of its own, but brokers read a flag that every send has (SendMessageProcessor).
"""

from collections.abc import Mapping
from typing import Final

from remoting.codes import RequestCode
from remoting.requests import SEND_FIELD_NAMES

# The ext field with the flag, by the code of a send.
_FLAGS: Final[dict[int, str]] = {code: names.batch for code, names in SEND_FIELD_NAMES.items()}
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)


def is_batch(code: int, fields: Mapping[str, str]) -> bool:
    """Return whether a request is a batch: by its code, or by the flag as brokers read it."""
    flag = _FLAGS.get(code)
    if flag is None:
        return False
    value = fields.get(flag, "false")
    return code == _SEND_BATCH or (value != "false" and value.lower() == "true")


def may_be_batch(code: int, fields: Mapping[str, str]) -> bool:
    """Return whether a server might read the flag as set: it is neither missing nor `false`."""
    flag = _FLAGS.get(code)
    return flag is not None and fields.get(flag, "false") != "false"
