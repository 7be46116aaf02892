"""Data directories in the settings that users other than the owner can read."""

from collections.abc import Iterator
from pathlib import Path

from proxy.settings.model import Settings

_OTHERS = 0o077


def open_to_others(settings: Settings) -> Iterator[str]:
    """Yield a text for each existing data directory to which group or others have access."""
    for key, directory in _directories(settings):
        try:
            mode = directory.stat().st_mode & 0o777
        except OSError:
            # A new directory is private.
            continue
        if mode & _OTHERS:
            yield f"{key}: {directory} has mode {mode:04o}, so other users can access it: chmod 700 {directory}"


def _directories(settings: Settings) -> Iterator[tuple[str, Path]]:
    if settings.embedded.directory is not None:
        yield "embedded.directory", settings.embedded.directory
    records = settings.traffic.directory
    # Not the URL of an object store.
    if records is not None and "://" not in records:
        yield "traffic.directory", Path(records)
