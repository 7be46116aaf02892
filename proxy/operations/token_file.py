"""The file with the bearer tokens of the admin API (admin.tokens)."""

from collections.abc import Iterator
from pathlib import Path

from protocol_negotiation.start_error import StartError
from proxy.settings.secret_files import check_mode

_MINIMUM_LENGTH = 16


class TokenFileError(StartError):
    """The token file is not usable; the message names file and line, never a token."""


def read_tokens(file: Path) -> list[tuple[str, str, str]]:
    """Return permission (read or write), name and token of each line. Raises TokenFileError."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        check_mode(file)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    except ValueError as error:
        raise TokenFileError(str(error)) from None
    return list(_tokens(file, lines))


def _tokens(file: Path, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[0] not in ("read", "write") or len(words[2]) < _MINIMUM_LENGTH:
            raise TokenFileError(
                f"{file}, line {number}: needs read or write, a name, and a token of at least {_MINIMUM_LENGTH} "
                "characters"
            )
        yield words[0], words[1], words[2]
