"""Errors at the start that name the setting which caused them."""

from collections.abc import Iterator
from contextlib import contextmanager

from protocol_negotiation.tls_files import TlsError


@contextmanager
def naming(key: str, *kinds: type[Exception]) -> Iterator[None]:
    """Put the key of a setting before the text of an OSError, a TlsError or an error of `kinds`."""
    named: tuple[type[Exception], ...] = (TlsError, *kinds)
    try:
        yield
    except named as error:
        raise type(error)(f"{key}: {error}") from error
    except OSError as error:
        raise OSError(error.errno, f"{key}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return an error's text for operators: an OSError's without its number, and with its file."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
