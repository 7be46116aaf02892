"""Errors at the start that name the setting which caused them."""

from collections.abc import Iterator
from contextlib import contextmanager

from protocol_negotiation.start_error import StartError


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Put the key of a setting before the text of an OSError or a StartError."""
    try:
        yield
    except StartError as error:
        # The same object: its constructor may take more than a text.
        error.args = (f"{key}: {error}", *error.args[1:])
        raise
    except OSError as error:
        raise OSError(error.errno, f"{key}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return an error's text for operators: an OSError's without its number, and with its file."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
