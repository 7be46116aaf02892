"""SIGKILL loses at most the records of the last interval and leaves no unreadable file."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from remoting.connection import RemotingConnection
from remoting.timeout_wheel import TimeoutWheel
from tests.paths import ROOT
from tests.ports import free_port
from tests.proxy.observability.records.replica import send
from tests.proxy.observability.records.samples import files, read

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

_INTERVAL = 0.5
# Seconds until the first records are in a complete file, on a busy machine.
_TIMEOUT = 60
_MIN_RECORDS = 20


@asynccontextmanager
async def process(directory: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `gantry serve` and yield the process once it accepts connections."""
    environment = {
        **os.environ,
        "GANTRY_TRAFFIC__DIRECTORY": str(directory / "traffic"),
        "GANTRY_TRAFFIC__INTERVAL": str(_INTERVAL),
        # Each request names another topic.
        "GANTRY_EMBEDDED__CREATIONS_PER_CLIENT": "100000",
        "GANTRY_EMBEDDED__CREATIONS_PER_ADDRESS": "100000",
    }
    command = [sys.executable, "-m", "proxy", "serve", "--listen", f"127.0.0.1:{port}"]
    running = await asyncio.create_subprocess_exec(
        *command, "--embedded", str(directory / "broker"), env=environment, cwd=ROOT
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    assert running.returncode is None
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    break
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def connect(port: int) -> RemotingConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: RemotingConnection(TimeoutWheel(loop.time), lambda *_: None, lambda _: None, name="proxy"),
        "127.0.0.1",
        port,
    )
    return connection


async def test_a_crash_loses_at_most_the_last_interval(tmp_path: Path) -> None:
    where, port = tmp_path / "traffic", free_port()
    answered = 0
    async with process(tmp_path, port) as running:
        connection = await connect(port)
        # Records older than the interval reach a complete file while more are sent.
        async with asyncio.timeout(_TIMEOUT):
            while len(read(where, "requests")) < _MIN_RECORDS:
                for _ in range(_MIN_RECORDS):
                    assert (await connection.request(send(f"t{answered}"), 10.0)).code == 0
                    answered += 1
        running.send_signal(signal.SIGKILL)
        await running.wait()
    rows = {row["topic"] for row in read(where, "requests")}
    # Only the latest records are lost.
    assert len(rows) >= _MIN_RECORDS
    assert rows == {f"t{each}" for each in range(len(rows))}
    for file in files(where):
        assert file.suffix == ".parquet"
        assert parquet.ParquetFile(file).metadata.num_rows > 0
    before = files(where)

    # A restarted process keeps the existing files and writes all its records on termination.
    async with process(tmp_path, port) as running:
        connection = await connect(port)
        for _ in range(3):
            assert (await connection.request(send("after"), 10.0)).code == 0
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), 60) == 0
    assert set(before) <= set(files(where))
    assert [row["topic"] for row in read(where, "requests")].count("after") == 3
    left = [path for path in where.rglob("*") if path.is_file() and path not in files(where)]
    assert all(path.name.startswith("_") for path in left)


async def test_an_unusable_directory_fails_the_start(tmp_path: Path) -> None:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "serve", "--listen", f"127.0.0.1:{free_port()}"),
        *("--embedded", str(tmp_path / "broker")),
        env={**os.environ, "GANTRY_TRAFFIC__DIRECTORY": "nonsense://key:secret@there"},
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(running.communicate(), 60)
    assert running.returncode == 1
    assert b"traffic.directory nonsense://there: Protocol not known: nonsense" in errors
    assert b"secret" not in errors
