"""Opening of the index file; a damaged one is set aside and rebuilt from the log."""

import logging
import sqlite3
from pathlib import Path

from proxy.embedded.store.damage import Damage
from proxy.embedded.store.errors import Corrupt, StorageFailed
from proxy.embedded.store.index import Index
from proxy.embedded.store.log import Log
from proxy.embedded.store.state import State
from proxy.embedded.store.table import Write

_log = logging.getLogger(__name__)


def open_index(directory: Path, log: Log, damage: Damage, write: Write, rebuild: bool, now: int) -> tuple[Index, State]:
    """Return the index file of a directory and the state that it contains.

    `write` writes a table's changes to the log, `now` (ms) becomes part of the name of a damaged file. Raises
    StorageFailed if the file cannot be read, or is lost while the beginning of the log is gone, without `rebuild`.
    """
    path = directory / "index.db"
    try:
        index = Index(path, damage)
        complete = index.position is not None
        state = State(index, write)
    except (sqlite3.DatabaseError, Corrupt) as error:
        if isinstance(error.__cause__ or error, sqlite3.OperationalError):
            raise StorageFailed(f"{path} cannot be read: {error}") from error
        _log.error("%s is damaged and is rebuilt from the log: %s", path, error)
        for file in directory.glob("index.db*"):
            file.rename(file.with_name(f"damaged-{now}-{file.name}"))
        index, complete = Index(path, damage), False
        state = State(index, write)
    if not complete and log.start and not rebuild:
        index.close()
        raise StorageFailed(
            f"{path} is lost, and the log begins at {log.start}: messages can be recovered, the contents of tables "
            "(offsets, timers, groups) before that cannot; start with rebuild to continue without them"
        )
    return index, state
