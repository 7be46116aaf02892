"""`python -m tests.analytics.benchmark`: the same summary of the same files by Spark, DuckDB and pandas.

The summary: requests, errors, messages, bytes, and the median and 99th percentile of the latency, for every hour,
protocol, code, topic and broker. Each engine runs in a process of its own, whose time and peak of resident memory
(with the JVM, for Spark) are printed; what they count must be equal. The detectors' time is Spark's alone.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analytics import generator
from tests.analytics.measurement import Measurement, measure

# An engine's result, for comparison.
Totals = dict[str, int]

_GROUPS = ("protocol", "code", "topic", "broker")
_COLUMNS = (*_GROUPS, "time", "ok", "messages", "bytes_in", "bytes_out", "latency_us")


def _spark_session(memory: str) -> Any:
    from analytics.session import session

    return session("gantry-benchmark", memory=memory, options={"spark.log.level": "ERROR"})


def spark(root: Path, memory: str) -> Totals:
    """Summarize by the transforms, as the jobs use them; the result is written, as a roll-up is."""
    from pyspark.sql import functions as f

    from analytics.records import read
    from analytics.transforms.histogram import percentile
    from analytics.transforms.latency import PERCENTILES
    from analytics.transforms.rollup import SERVICE, rollup

    session = _spark_session(memory)
    with tempfile.TemporaryDirectory() as place:
        summary = rollup(read(session, str(root)).frame, SERVICE, "1 hour")
        columns = (percentile(f.col("latency"), percent).alias(name) for name, percent in PERCENTILES.items())
        summary.select("*", *columns).write.parquet(f"{place}/summary")
        sums = session.read.parquet(f"{place}/summary").selectExpr(
            "count(*) AS groups",
            *(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in ("requests", "errors", "messages")),
        )
        row = sums.collect()[0]
    session.stop()
    return dict(row.asDict())


def detectors(root: Path, memory: str) -> Totals:
    """Run all detectors, from the records to the findings."""
    from analytics.evaluate import findings, match_findings
    from analytics.incidents.detection import detect
    from analytics.incidents.engines import by_spark
    from analytics.records import read

    session = _spark_session(memory)
    requests, connections = (read(session, str(root), name).frame for name in ("requests", "connections"))
    found = findings(detect(by_spark(requests, connections)))
    session.stop()
    verdict = match_findings(found, generator.load(root).incidents)
    return {
        "incidents": len(found),
        "recall %": round(100 * verdict.recall),
        "precision %": round(100 * verdict.precision),
    }


def duckdb(root: Path, memory: str) -> Totals:
    """Summarize by one SQL statement."""
    import duckdb as engine

    connection = engine.connect()
    connection.execute(f"SET memory_limit = '{memory}B'; SET TimeZone = 'UTC'")
    connection.execute(f"""
        CREATE TABLE summary AS
        SELECT date_trunc('hour', time) AS hour, {", ".join(_GROUPS)}, count(*) AS requests,
            count_if(NOT ok) AS errors, sum(messages) AS messages,
            sum(bytes_in) AS bytes_in, sum(bytes_out) AS bytes_out,
            approx_quantile(latency_us, [0.5, 0.9, 0.99, 0.999]) AS latency
        FROM read_parquet('{root}/requests/*/*/*.parquet', hive_partitioning = false) GROUP BY ALL
    """)
    query = "SELECT count(*), sum(requests), sum(errors), sum(messages) FROM summary"
    row = connection.execute(query).fetchone()
    assert row is not None
    return dict(zip(("groups", "requests", "errors", "messages"), map(int, row), strict=True))


def pandas(root: Path, memory: str) -> Totals:
    """Summarize with all needed columns in memory, as pandas keeps them."""
    import pandas as engine
    import pyarrow.dataset as ds

    # A machine of that size has no more memory.
    limit = int(memory.rstrip("gG")) << 30
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    files = ds.dataset([str(path) for path in sorted((root / "requests").rglob("*.parquet"))])
    texts = list(_GROUPS)
    frame = files.to_table(columns=list(_COLUMNS)).to_pandas(categories=texts, self_destruct=True)
    frame["hour"] = frame.pop("time").dt.floor("h")
    frame["errors"] = ~frame.pop("ok")
    groups = frame.groupby(["hour", *texts], observed=True, dropna=False)
    summary = groups.agg(requests=("errors", "size"), errors=("errors", "sum"), messages=("messages", "sum"),
                         bytes_in=("bytes_in", "sum"), bytes_out=("bytes_out", "sum"))  # fmt: skip
    tails = groups["latency_us"].quantile([0.5, 0.9, 0.99, 0.999]).unstack()
    both = engine.concat([summary, tails], axis=1)
    return {"groups": len(both), **{name: int(both[name].sum()) for name in ("requests", "errors", "messages")}}


ENGINES: Mapping[str, Callable[[Path, str], Totals]] = {
    "spark": spark,
    "duckdb": duckdb,
    "pandas": pandas,
    "detectors": detectors,
}


def _measurement(engine: str, root: Path, memory: str, limit: float) -> tuple[Measurement, Totals | None]:
    """Run an engine in a process of its own; return its totals, or None if it fails."""
    command = [
        sys.executable,
        "-m",
        "tests.analytics.benchmark",
        "--run",
        engine,
        "--memory",
        memory,
        "--dir",
        str(root),
    ]
    done = measure(command, limit)
    return done, json.loads(done.output.strip().splitlines()[-1]) if done.ok else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--dir", type=Path, default=Path("build/bench-analytics"), help="where records are, or are put")
    parser.add_argument(
        "--memory", default="4g", help="for each engine: the driver's heap, DuckDB's limit (%(default)s)"
    )
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one engine and size (%(default)s)")
    parser.add_argument("--run", choices=list(ENGINES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(ENGINES[options.run](options.dir, options.memory)))
        return 0
    wrong = False
    print(f"{os.cpu_count()} cores, memory {options.memory} per engine; times include the engine's start")
    for records in options.records:
        root = options.dir / str(records)
        begin = time.monotonic()
        if not (root / generator.truth.NAME).exists():
            # A month: more records are more in the same hours.
            generator.generate(root, generator.Plan(records, days=28), os.cpu_count() or 1)
            print(f"generated in {time.monotonic() - begin:.1f} s")
        size = sum(path.stat().st_size for path in (root / "requests").rglob("*.parquet"))
        rows = generator.load(root).records["requests"]
        print(f"\n{rows:,} records, {size / 1e9:.2f} GB of Parquet ({size / rows:.0f} bytes each)", flush=True)
        reference: Totals | None = None
        for engine in options.engines:
            done, totals = _measurement(engine, root, options.memory, options.limit)
            says = done.error if totals is None else ", ".join(f"{value:,} {name}" for name, value in totals.items())
            print(
                f"  {engine:10} {done.seconds:8.1f} s  {done.peak / 1e9:6.2f} GB  "
                f"{rows / done.seconds / 1e6:6.2f} M/s  {says}",
                flush=True,
            )
            if totals is None or engine == "detectors":
                continue
            reference = reference or totals
            if totals != reference or totals["requests"] != rows:
                wrong = True
                print(f"  {engine} does not agree: {reference}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
