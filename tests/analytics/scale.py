"""`python -m tests.analytics.scale`: the incremental jobs on a local cluster, with 1, 10 and 100 times the days.

Spark's driver and two workers are processes of their own, with an executor of one core each, as on a standalone
cluster. Every day has the same number of records, so that the hours and files grow with the days.

The first rollup may grow as the records do. A rollup without changes, and one after a late file of the first day, must
not: the exit status is 1 if either takes more than GROWTH times as long with 100 times the days, if a late file
changes another hour, or if the roll-ups do not have all requests.
"""

import argparse
import shutil
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics import generator
from tests.analytics.measurement import Measurement, measure

CLUSTER = "local-cluster[2,1,1024]"
# Factor by which a rollup that has little to do may take longer with 100 times the days.
GROWTH = 3.0
_FIRST, _UNCHANGED, _LATE = "first rollup", "unchanged", "late file of the first day"
# The beginning of each rollup's output, by the number of days.
_EXPECTED = {
    _FIRST: "{hours} hours and {days} days rolled up anew",
    _UNCHANGED: "0 hours and 0 days rolled up anew",
    _LATE: "1 hours and 1 days rolled up anew",
}
_LATE_HOUR = "requests/date=2026-10-19/hour=07"


class ScaleError(Exception):
    """A job failed, or its result is wrong."""


def prepare(root: Path, days: int, records: int) -> int:
    """Generate records of some days, with `records` a day; return the number of requests."""
    shutil.rmtree(root, ignore_errors=True)
    generator.generate(root, generator.Plan(records * days, days=days), 2)
    return int(generator.load(root).records["requests"])


def add_late(root: Path) -> int:
    """Copy a file of one hour of the first day as that of another replica; return its requests."""
    path = next((root / _LATE_HOUR).glob("*.parquet"))
    shutil.copy(path, path.with_name("late-0-0-0.parquet"))
    return int(pq.read_metadata(path).num_rows)


def roll_up(root: Path, out: Path, kind: str, days: int, limit: float) -> Measurement:
    """Run `gantry analytics rollup` on the cluster. Raises ScaleError if it fails or prints other numbers."""
    command = [sys.executable, "-m", "analytics", "rollup", str(root), "--out", str(out), "--master", CLUSTER]
    # Spark's default partitions of a shuffle are for hundreds of cores.
    command += ["--option", "spark.executor.memory=1g", "--option", "spark.sql.shuffle.partitions=4"]
    done = measure(command, limit)
    if not done.ok:
        raise ScaleError(f"{kind}, {days} days: {done.error}")
    expected = _EXPECTED[kind].format(hours=24 * days, days=days)
    if not done.output.startswith(expected):
        raise ScaleError(f"{kind}, {days} days: {done.output.strip()!r} instead of {expected!r}")
    return done


def rolled_up(out: Path) -> int:
    """Return the requests that the hourly roll-ups have."""
    files = sorted((out / "hourly").rglob("records.parquet"))
    return sum(
        pc.sum(pq.read_table(path, columns=["requests"], partitioning=None)["requests"]).as_py() for path in files
    )


def run(root: Path, days: int, records: int, limit: float) -> dict[str, Measurement]:
    """Measure the rollups of some days. Raises ScaleError."""
    out = root.with_name(f"{root.name}-rolled")
    shutil.rmtree(out, ignore_errors=True)
    requests = prepare(root, days, records)
    files = list(root.rglob("*.parquet"))
    size = sum(path.stat().st_size for path in files)
    print(f"{days} days: {requests:,} requests in {len(files):,} files, {size / 1e6:.0f} MB", flush=True)
    done = {kind: roll_up(root, out, kind, days, limit) for kind in (_FIRST, _UNCHANGED)}
    requests += add_late(root)
    done[_LATE] = roll_up(root, out, _LATE, days, limit)
    for kind, each in done.items():
        print(f"  {kind:28} {each.seconds:7.1f} s  {each.peak / 1e9:5.2f} GB", flush=True)
    if (counted := rolled_up(out)) != requests:
        raise ScaleError(f"{days} days: the roll-ups have {counted:,} of {requests:,} requests")
    return done


def main() -> int:
    """Run all sizes, print the growth, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--records", type=int, default=5_000, help="requests a day (%(default)s)")
    parser.add_argument("--dir", type=Path, default=Path("build/scale"), help="where records and results are put")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one job (%(default)s)")
    options = parser.parse_args()
    print(f"{CLUSTER}; memory is that of the driver and the workers together")
    try:
        sizes = [run(options.dir / str(days), days, options.records, options.limit) for days in options.days]
    except ScaleError as error:
        print(f"failed: {error}")
        return 1
    growth = {kind: sizes[-1][kind].seconds / sizes[0][kind].seconds for kind in _EXPECTED}
    days = options.days[-1] / options.days[0]
    print(f"{days:.0f} times the days: " + ", ".join(f"{kind} {factor:.1f} times" for kind, factor in growth.items()))
    return int(growth[_FIRST] > days or any(growth[kind] > GROWTH for kind in (_UNCHANGED, _LATE)))


if __name__ == "__main__":
    sys.exit(main())
