"""Recorder: batches, back-pressure, metrics and failures."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.observability.metrics import Metrics
from proxy.observability.records import recorder as recorder_module
from proxy.observability.records.recorder import Recorder
from proxy.observability.records.store import Store
from proxy.settings.traffic_records import TrafficSettings
from tests.proxy.observability.records.samples import client, column, files, observation, read
from tests.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def run_recorder(directory: Path, **settings: Any) -> AsyncIterator[Recorder]:
    recorder = Recorder(TrafficSettings(directory=str(directory), **settings), "replica-1")
    recorder.start()
    try:
        yield recorder
    finally:
        await recorder.close()


def values(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Return the exposed values by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name.startswith("gantry_traffic")
    }


async def test_close_writes_all_records_once(tmp_path: Path) -> None:
    number = 2 * recorder_module._BATCH_SIZE + 7
    async with run_recorder(tmp_path) as recorder:
        now = time.monotonic()
        for each in range(number):
            recorder.observe(observation(f"t{each}", started=now, channel=client("c1")))
    rows = read(tmp_path, "requests")
    assert sorted(column(rows, "topic")) == sorted(f"t{each}" for each in range(number))
    assert recorder.counts.written == {"requests": number}
    assert abs(rows[0]["time"].timestamp() - time.time()) < 60
    assert (recorder.pending, recorder.lag(time.monotonic())) == (0, 0.0)
    assert not recorder._writer_thread.is_alive()


async def test_a_file_appears_after_the_interval_and_is_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    async with run_recorder(tmp_path, interval=3.0, sample=["left-*=0"]) as recorder:
        metrics.add(recorder.read_metrics)
        for topic in ("a", "left-out", "b"):
            recorder.observe(observation(topic, started=time.monotonic()))
        await until(lambda: recorder.lag(time.monotonic()) > 0.5)
        assert files(tmp_path) == []
        assert values(metrics)["gantry_traffic_pending",] > 0
        assert values(metrics)["gantry_traffic_lag_seconds",] > 0.5
        # The thread updates the bytes last.
        await until(lambda: recorder.counts.bytes["requests"])
        assert column(read(tmp_path, "requests"), "topic") == ["a", "b"]
        (file,) = files(tmp_path)
        assert values(metrics) == {
            ("gantry_traffic_written_total", "requests"): 2,
            ("gantry_traffic_files_total", "requests"): 1,
            ("gantry_traffic_bytes_total", "requests"): file.stat().st_size,
            ("gantry_traffic_left_out_total", "left-*"): 1,
            ("gantry_traffic_pending",): 0,
            ("gantry_traffic_lag_seconds",): 0,
        }


async def test_a_slow_store_drops_records_over_the_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publishing, go = threading.Event(), threading.Event()
    publish = Store.publish

    def slow(self: Store, path: str) -> int:
        publishing.set()
        assert go.wait(60)
        return publish(self, path)

    monkeypatch.setattr(Store, "publish", slow)
    async with run_recorder(tmp_path, interval=0.1, buffer=10_000) as recorder:
        recorder.observe(observation())
        await until(publishing.is_set)
        for _ in range(20_000):
            recorder.observe(observation())
        assert recorder._handed - recorder._processed <= 10_000
        assert recorder.counts.dropped["full"] >= 8_192
        go.set()
    lost = recorder.counts.dropped["full"]
    assert recorder.counts.dropped == {"full": lost}
    assert len(read(tmp_path, "requests")) == recorder.counts.written["requests"] == 20_001 - lost


async def test_close_times_out_if_the_store_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(Store, "publish", lambda *_: go.wait(60))
    monkeypatch.setattr(recorder_module, "_CLOSE_TIMEOUT", 0.1)
    recorder = Recorder(TrafficSettings(directory=str(tmp_path)), "r")
    recorder.start()
    recorder.observe(observation())
    try:
        await asyncio.wait_for(recorder.close(), 30)
        assert recorder._writer_thread.is_alive()
        assert recorder._writer_thread.daemon
    finally:
        go.set()
        recorder._writer_thread.join(30)


async def test_a_conversion_failure_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_recorder(tmp_path) as recorder:
        # An invalid channel.
        recorder.observe(observation(channel="c1"))
        recorder._submit()
        await until(lambda: recorder.counts.dropped["fault"])
        recorder.observe(observation("after"))
    assert column(read(tmp_path, "requests"), "topic") == ["after"]
    assert caplog.messages == ["cannot convert traffic records, 1 were lost"]


async def test_several_recorders_write_into_one_directory(tmp_path: Path) -> None:
    async with run_recorder(tmp_path, interval=0.1) as one, run_recorder(tmp_path, interval=0.1) as two:
        for each in range(20):
            for recorder in (one, two):
                for _ in range(300):
                    recorder.observe(observation(f"t{each}", started=time.monotonic()))
            if each == 10:
                await until(lambda: one.counts.files and two.counts.files)
            await asyncio.sleep(0.02)
    written = one.counts.written["requests"] + two.counts.written["requests"]
    assert len(read(tmp_path, "requests")) == written == 12_000
    assert len(files(tmp_path)) == one.counts.files["requests"] + two.counts.files["requests"] > 2


async def test_retention_is_applied_at_the_start(tmp_path: Path) -> None:
    old = tmp_path / "requests/date=2020-01-01/hour=00/r-0-1-0.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x")
    async with run_recorder(tmp_path) as recorder:
        await until(lambda: recorder.counts.removed)
    assert recorder.counts.removed == {"age": 1}
    metrics = Metrics()
    metrics.add(recorder.read_metrics)
    assert values(metrics)["gantry_traffic_removed_total", "age"] == 1
    assert not old.exists()
