"""The users file of `gantry users` and `gantry acl`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.auth.sources.source import AuthError
from proxy.auth.sources.users_editor import UsersEditor
from proxy.tools.cli.client import CommandError, UsageError


@contextmanager
def edited(file: Path | None, *, create: bool = False) -> Iterator[UsersEditor]:
    """Yield the users file for changes. Raises CommandError, OSError.

    create: whether the file may be missing.
    """
    if file is None:
        raise UsageError("name the users file: --file FILE, or $GANTRY_AUTH__USERS")
    try:
        yield UsersEditor(file, create=create)
    except (ValueError, AuthError) as error:
        raise CommandError(str(error)) from None
