"""The standard streams of all commands: characters that they lack, closed pipes, full disks."""

import errno
import os
import sys
from io import TextIOWrapper

# Errors of files, which no socket gives.
_OF_FILES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG))


def escape_unencodable() -> None:
    """Escape characters that the encoding of a terminal or file lacks: bodies, names and texts have them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_of_file(error: BaseException) -> bool:
    """Return whether the error is of a write to a file that the error does not name."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _OF_FILES


def flush() -> None:
    """Write the rest of stdout now: Python's own flush at the exit prints a traceback. Raises OSError."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard() -> None:
    """Drop the rest of stdout, which cannot be written: Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
