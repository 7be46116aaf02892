"""Roll-ups of a process that SIGKILL ended at random points, and that ran again, equal those of one clean run."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.jobs.rollups import DAILY, HOURLY, read, roll
from tests.analytics.frames import at, failed, receive, send
from tests.analytics.jobs.record_files import TIMEOUT, job, kill, plain, rows, write

# Files and directories that the first run leaves at least, and that it creates in all: points at which it can die.
_LEFT, _CREATED = 30, 60


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("seed", "deaths"), [(1, 2), *(pytest.param(seed, 4, marks=pytest.mark.complete) for seed in range(2, 8))]
)
def test_rollup_killed_at_random_points_equals_a_clean_one(
    spark: SparkSession, tmp_path: Path, seed: int, deaths: int
) -> None:
    chosen = random.Random(seed)
    root, out, clean = (tmp_path / name for name in ("records", "killed", "clean"))
    times = [at(minutes) for minutes in range(0, 2 * 1440, 240)]
    write(root, [send(when, latency_us=chosen.randrange(900, 90_000), client_id=f"c{when.hour}") for when in times])
    died = 0
    for number in range(deaths):
        point = chosen.randrange(1, _CREATED if number else _LEFT)
        died += _killed(root, out, point, tmp_path / "log")
        # Partitions in place are whole at any time.
        assert all(count == 1 for count in rows(out / HOURLY).values())
        # Later runs have some hours to make again, and others to keep.
        late = times[chosen.randrange(len(times))]
        write(root, [receive(late, group="g"), failed(late)], f"late-0-{number}")
    assert died > 0, (tmp_path / "log").read_text()
    roll(spark, str(root), str(out))
    roll(spark, str(root), str(clean))
    for name in (HOURLY, DAILY):
        assert plain(read(spark, str(out), name)) == plain(read(spark, str(clean), name))


def _killed(root: Path, out: Path, paths: int, log: Path) -> bool:
    """Run `rollup` until it has created so many files and directories; return whether it was killed before its end."""
    seen: set[Path] = set()
    end = time.monotonic() + TIMEOUT
    before = set(_paths(out))
    with job("rollup", str(root), "--out", str(out), log=log) as process:
        while process.poll() is None and len(seen) < paths:
            assert time.monotonic() < end, log.read_text()
            seen |= set(_paths(out)) - before
            # Java's start takes longest; afterwards the process dies close to the chosen point.
            time.sleep(0.005 if seen else 0.05)
        running = process.poll() is None
        kill(process)
    assert running or process.returncode == 0, log.read_text()
    return running


def _paths(folder: Path) -> Iterator[Path]:
    """Yield all files and directories; those that vanish meanwhile are left out."""
    try:
        yield from folder.rglob("*")
    except FileNotFoundError:
        return
