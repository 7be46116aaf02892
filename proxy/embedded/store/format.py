"""Which layout a directory has."""

import json
import os
from pathlib import Path

from proxy.embedded.store.errors import UnknownFormat
from proxy.embedded.store.files import Files

VERSION = 1
_NAME = "format"


def check(directory: Path, files: Files) -> None:
    """Make sure that the directory is in our format; a new one becomes so. Raises UnknownFormat, OSError."""
    path = directory / _NAME
    if not path.exists():
        _write(directory, files)
        return
    try:
        version = int(json.loads(path.read_bytes())["version"])
    except (ValueError, TypeError, KeyError):
        raise UnknownFormat(f"{path} does not say which format this directory has; it may be damaged") from None
    if version != VERSION:
        raise UnknownFormat(
            f"{directory} has format {version}, this version of Gantry knows {VERSION}: use a later one"
        )


def _write(directory: Path, files: Files) -> None:
    """Written aside and renamed, so that there is never half of it."""
    aside = directory / f"{_NAME}.new"
    aside.unlink(missing_ok=True)
    file = files.create(aside)
    try:
        files.write_all(file, json.dumps({"version": VERSION}).encode() + b"\n", 0)
        files.sync(file)
    finally:
        files.close(file)
    os.replace(aside, directory / _NAME)
    files.sync_directory(directory)
