"""Errors at the start that name the setting which caused them."""

from collections.abc import Iterator
from contextlib import contextmanager

from protocol_negotiation.tls_files import TlsError


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Put the key of a setting before the text of an OSError or TlsError."""
    try:
        yield
    except OSError as error:
        subject = "" if error.filename is None else f"{error.filename}: "
        raise OSError(error.errno, f"{key}: {subject}{error.strerror or error}") from error
    except TlsError as error:
        raise type(error)(f"{key}: {error}") from error
