"""Segments: the files of the log."""

import re
import secrets
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{8})\.log")


@dataclass(slots=True, eq=False)
class Segment:
    """A file with the log's bytes from `start` on. Its name contains the start and the seed of its CRCs."""

    path: Path
    start: int
    seed: int
    size: int = 0
    # Upper bound of the store timestamps of its messages (ms), as far as known.
    newest: int = 0

    @property
    def end(self) -> int:
        return self.start + self.size


def new(directory: Path, start: int) -> Segment:
    """Return a segment whose file does not exist yet."""
    seed = secrets.randbits(32)
    return Segment(directory / f"{start:020d}-{seed:08x}.log", start, seed)


def existing(directory: Path) -> list[Segment]:
    """Return the segments whose files exist, in order."""
    segments = []
    for path in directory.iterdir():
        name = _NAME.fullmatch(path.name)
        if name:
            status = path.stat()
            segments.append(Segment(path, int(name[1]), int(name[2], 16), status.st_size, int(status.st_mtime * 1000)))
    return sorted(segments, key=lambda segment: segment.start)
