"""Standard error that is not read, or cannot be written."""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import orjson
import pytest

from proxy.observability import log_stream
from proxy.observability.log_stream import LogStream
from proxy.observability.logs import JsonFormatter
from proxy.observability.metrics.registry import Metrics
from tests.proxy.observability.metrics.samples import samples_of


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Return both ends of a pipe with room for 64 KiB, of which nothing is read."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 2**16)
    with open(writer, "w") as stream:
        yield reader, stream
    os.close(reader)


def write(handler: LogStream, text: str) -> None:
    handler.handle(logging.makeLogRecord({"msg": text}))


def test_a_reader_that_hangs_delays_the_process_once_and_lost_lines_are_counted(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stream = pipe
    handler = LogStream(stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    begin = time.monotonic()
    for number in range(3000):
        write(handler, f"{number:0100d}")
    assert time.monotonic() - begin < 5
    metrics = Metrics()
    metrics.add(log_stream.read_metrics)
    [lost] = samples_of(metrics, "gantry_log_lost_lines_total").values()
    read = os.read(reader, 2**17).decode()
    assert read == "".join(f"{number:0100d}\n" for number in range(3000 - int(lost)))
    assert 500 < 3000 - lost < 1000
    write(handler, "after")
    assert os.read(reader, 2**17).decode() == f"{int(lost)} log lines were not written\nafter\n"


def test_long_lines_and_lone_surrogates_are_written(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    handler = LogStream(stream)
    write(handler, "x" * 20_000 + "\ud800")
    assert os.read(reader, 2**17) == b"x" * 20_000 + b"\\ud800\n"


def test_a_part_of_a_line_is_ended_before_the_next_one(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    handler = LogStream(stream)
    handler.setFormatter(JsonFormatter())
    write(handler, "x" * 2**17)
    os.read(reader, 2**17)
    write(handler, "after")
    end, report, line = os.read(reader, 2**17).splitlines()
    assert end == b""
    assert orjson.loads(report)["message"] == "1 log lines were not written"
    assert orjson.loads(line)["message"] == "after"


def test_a_full_disk_fails_no_request() -> None:
    with Path("/dev/full").open("w") as full:
        handler = LogStream(full)
        write(handler, "lost")
    assert handler.lost == 1
