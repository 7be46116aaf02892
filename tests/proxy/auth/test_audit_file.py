"""The file of the audit log, with several writers, as those of several workers."""

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.auth.audit import LOGGER, AuditLog, LostLines, to_file
from proxy.auth.audit_file import AuditFile
from proxy.observability.metrics.registry import Metrics
from proxy.settings.auth import AuthSettings
from tests.proxy.observability.metrics.samples import samples_of

_SIZE = 2**16


@contextmanager
def opened(path: Path, size: int = 100, files: int = 2) -> Iterator[AuditFile]:
    handler = AuditFile(path, size, files)
    try:
        yield handler
    finally:
        handler.close()


def write(handler: AuditFile, text: str) -> None:
    handler.handle(logging.makeLogRecord({"msg": text}))


def lines(folder: Path) -> list[str]:
    """Return the lines of all files, the oldest first."""
    files = sorted(folder.glob("a.log*"), reverse=True)
    return [line for file in files for line in file.read_text().splitlines()]


def test_a_file_that_another_writer_has_rotated_is_left(tmp_path: Path) -> None:
    with opened(tmp_path / "a.log") as first, opened(tmp_path / "a.log") as second:
        write(first, "a" * 60)
        # Rotates the files four times: the first one is gone.
        for letter in "bcde":
            write(second, letter * 60)
        write(first, "f" * 30)
    assert lines(tmp_path) == ["c" * 60, "d" * 60, "e" * 60, "f" * 30]
    assert {file.name for file in tmp_path.iterdir()} == {"a.log", "a.log.1", "a.log.2"}


def test_a_file_that_was_moved_or_removed_is_created_again(tmp_path: Path) -> None:
    with opened(tmp_path / "a.log") as handler:
        (tmp_path / "a.log").rename(tmp_path / "moved")
        write(handler, "x")
        (tmp_path / "a.log").unlink()
        write(handler, "y")
    assert lines(tmp_path) == ["y"]
    assert (tmp_path / "moved").read_text() == ""


def test_a_line_longer_than_the_size_is_written_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "a.log") as handler:
        for text in ("a", "b" * 200, "c"):
            write(handler, text)
    assert lines(tmp_path) == ["a", "b" * 200, "c"]


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    with opened(tmp_path / "a.log") as handler:
        for _ in range(3):
            write(handler, "x" * 60)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_a_line_that_cannot_be_written_is_no_error_of_the_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    with opened(tmp_path / "folder" / "a.log") as handler:
        (tmp_path / "folder" / "a.log").unlink()
        (tmp_path / "folder").rmdir()
        write(handler, "x")
    assert "FileNotFoundError" in capsys.readouterr().err


def test_a_full_disk_leaves_no_part_of_a_line_and_lost_lines_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_some, lost, logger = os.write, LostLines(), logging.getLogger(LOGGER)
    room = 3

    def full(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, room = data[:room], room - len(data[:room])
        return write_some(file, data)

    AuditLog()
    with to_file(AuthSettings(audit=tmp_path / "a.log"), lost):
        logger.info("before")
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            logger.info("lost")
            logger.info("lost too")
        logger.info("after")
    assert lines(tmp_path) == ["before", "after"]
    metrics = Metrics()
    metrics.add(lost.read_metrics)
    assert samples_of(metrics, "gantry_audit_file_lost_lines_total") == {(): 2}


_WRITER = """
import logging, sys
from pathlib import Path
from proxy.auth.audit import LOGGER, AuditLog, to_file
from proxy.settings.auth import AuthSettings
AuditLog()
with to_file(AuthSettings(audit=Path(sys.argv[1]), audit_size=2**16, audit_files=8)):
    for number in range(1000):
        logging.getLogger(LOGGER).info("%s", f"{sys.argv[2]} {number} ".ljust(127, "x"))
"""


def test_processes_that_write_one_file_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name]) for name in "abc"]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    found = [tuple(line.split()[:2]) for line in lines(tmp_path)]
    for name in "abc":
        assert [number for writer, number in found if writer == name] == [str(number) for number in range(1000)]
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 6
    assert max(sizes) <= _SIZE


def test_the_folder_of_the_file_is_created(tmp_path: Path) -> None:
    with to_file(AuthSettings(audit=tmp_path / "new" / "a.log")):
        assert (tmp_path / "new" / "a.log").stat().st_mode & 0o777 == 0o600
