"""kill -9 of a whole process loses what came in the last interval, and leaves nothing that readers stumble over."""

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
from tests.proxy.observability.records.kit import files, read
from tests.proxy.observability.records.test_app import send

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

_INTERVAL = 0.5
# Seconds in which the first records have to be in a complete file, on a machine however busy.
_TIMEOUT = 60
_FIRST = 20


@asynccontextmanager
async def process(directory: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`gantry serve`, once it accepts."""
    environment = {
        **os.environ,
        "GANTRY_TRAFFIC__DIRECTORY": str(directory / "traffic"),
        "GANTRY_TRAFFIC__INTERVAL": str(_INTERVAL),
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


async def test_a_crash_loses_the_last_interval_at_most(tmp_path: Path) -> None:
    where, port = tmp_path / "traffic", free_port()
    answered = 0
    async with process(tmp_path, port) as running:
        connection = await connect(port)
        # It goes on sending: what is older than the interval is in a complete file while younger comes.
        async with asyncio.timeout(_TIMEOUT):
            while len(read(where, "requests")) < _FIRST:
                for _ in range(_FIRST):
                    assert (await connection.request(send(f"t{answered}"), 10.0)).code == 0
                    answered += 1
        running.send_signal(signal.SIGKILL)
        await running.wait()
    rows = {row["topic"] for row in read(where, "requests")}
    # Of what came, the end is lost and nothing else.
    assert len(rows) >= _FIRST
    assert rows == {f"t{each}" for each in range(len(rows))}
    for file in files(where):
        assert file.suffix == ".parquet"
        assert parquet.ParquetFile(file).metadata.num_rows > 0
    before = files(where)

    # Started again, it goes on beside what is there, and at the end everything is written.
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


async def test_where_nothing_can_be_kept_it_does_not_start(tmp_path: Path) -> None:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "serve", "--listen", f"127.0.0.1:{free_port()}"),
        *("--embedded", str(tmp_path / "broker")),
        env={**os.environ, "GANTRY_TRAFFIC__DIRECTORY": "nonsense://key:secret@there"},
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(running.communicate(), 60)
    assert running.returncode == 1
    assert b"traffic.directory nonsense://there: Protocol not known: nonsense" in said
    assert b"secret" not in said
