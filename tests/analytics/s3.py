"""`make s3`: the jobs of analytics, and the store of traffic records, with an S3 server.

The server, versitygw, is installed into build/s3. Each check is one line; the last line counts them.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

# Dependencies of moto without type hints.
import boto3  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from pyarrow import fs

from proxy.observability.records.file import RecordFile
from proxy.observability.records.schema import REQUESTS
from proxy.observability.records.store import Store, partition
from tests.analytics.jobs.record_files import LIGHT, kill
from tests.proxy.observability.records import samples

SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
# The version of the Hadoop classes that pyspark contains.
CONNECTOR = "org.apache.hadoop:hadoop-aws:3.5.0"
KEY, SECRET, REGION = "gantry", "gantry-secret", "us-east-1"
BUILD = Path("build/s3")
# Seconds that a job, or an event of one, may take on a busy machine.
TIMEOUT = 600.0
# The records are their own bucket, as in the documentation's example.
RECORDS, RESULTS = "traffic", "results"


class Checks:
    """Prints and counts checks."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def expect(self, holds: bool, text: str, seen: object = "") -> None:
        """Count one check; seen: printed if it does not hold."""
        self.passed += holds
        self.failed += not holds
        sys.stdout.write(f"{'passed' if holds else 'FAILED'}: {text}{'' if holds else f': {seen}'}\n")
        sys.stdout.flush()


class Bucket:
    """One bucket of the server."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def create(self) -> None:
        self._client.create_bucket(Bucket=self._name)

    def put(self, root: Path) -> None:
        """Store all Parquet files of a directory."""
        for path in sorted(root.rglob("*.parquet")):
            self._client.upload_file(str(path), self._name, path.relative_to(root).as_posix())

    def marks(self, prefix: str = "") -> dict[str, str]:
        """Return the checksum and time of each object, without those of directories."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix)
        return {
            each["Key"]: f"{each['ETag']} {each['LastModified']}"
            for page in pages
            for each in page.get("Contents", [])
            if not each["Key"].endswith("/")
        }

    def content(self, key: str) -> bytes:
        return bytes(self._client.get_object(Bucket=self._name, Key=key)["Body"].read())

    def rows(self, prefix: str) -> list[dict[str, Any]]:
        """Return the rows of the Parquet files that a reader sees."""
        found: list[dict[str, Any]] = []
        for key in self.marks(prefix):
            if key.endswith(".parquet") and not any(part.startswith("_") for part in key.split("/")):
                found += pq.read_table(pa.BufferReader(self.content(key))).to_pylist()
        return found


class Server:
    """versitygw on a directory."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    @contextmanager
    def running(self) -> Iterator[Any]:
        """Run the server; yield a client."""
        data = BUILD / "data"
        data.mkdir()
        command = [str((BUILD / "bin/versitygw").absolute()), "--port", self.address, "posix", str(data.absolute())]
        environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with (BUILD / "server.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=BUILD)
        try:
            yield self._client()
        finally:
            process.terminate()
            process.wait()

    def _client(self) -> Any:
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{self.address}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )
        wait_until(lambda: _answers(client), "the server answers")
        return client

    def options(self) -> list[str]:
        """Return the options of a job, those of docs/analytics.md and the place of the downloaded jars."""
        settings = {
            "spark.jars.packages": CONNECTOR,
            "spark.jars.ivy": str((BUILD / "ivy").absolute()),
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.address}",
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET,
            "spark.driver.extraJavaOptions": LIGHT,
        }
        return [f"--option={key}={value}" for key, value in settings.items()]


def _answers(client: Any) -> bool:
    with suppress(BotoCoreError, ClientError):
        client.list_buckets()
        return True
    return False


def wait_until(true: Callable[[], object], text: str, process: "subprocess.Popen[str] | None" = None) -> None:
    """Wait for a condition, until the process ends. Raises TimeoutError."""
    end = time.monotonic() + TIMEOUT
    while not true() and (process is None or process.poll() is None):
        if time.monotonic() > end:
            raise TimeoutError(text)
        time.sleep(0.05)


class Jobs:
    """Runs `gantry analytics`."""

    def __init__(self, options: list[str]) -> None:
        self._options = options

    def start(self, command: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a job in its own process group."""
        line = [sys.executable, "-m", "analytics", command, *arguments, *self._options, "--memory=1g"]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def run(self, command: str, *arguments: str) -> str:
        """Return the stdout of the job, and its stderr too where it fails."""
        process = self.start(command, *arguments)
        try:
            out, errors = process.communicate(timeout=TIMEOUT)
        finally:
            kill(process)
        return out if process.returncode == 0 else f"status {process.returncode}\n{out}{errors[-2000:]}"


def place(name: str) -> str:
    """Return the URI of a result."""
    return f"s3a://{RESULTS}/{name}"


URI = f"s3a://{RECORDS}/"


def check_rollup(checks: Checks, jobs: Jobs, traffic: Bucket, results: Bucket, records: Path) -> None:
    """Roll up, again without changes, and again with a late file."""
    out = ("--out", place("rolled"))
    said = jobs.run("rollup", URI, *out)
    checks.expect(said.startswith("48 hours and 2 days rolled up anew"), "rollup makes 48 hours and 2 days", said)
    before = results.marks()
    said = jobs.run("rollup", URI, *out)
    checks.expect(said.startswith("0 hours and 0 days rolled up anew, 48"), "a second rollup makes nothing", said)
    checks.expect(results.marks() == before, "a second rollup changes no object")
    add_late(traffic, records, ("2026-10-19/hour=07",))
    said = jobs.run("rollup", URI, *out)
    checks.expect(said.startswith("1 hours and 1 days rolled up anew, 47"), "a late file is one hour", said)
    after = results.marks()
    changed = sorted(key for key in after if after[key] != before.get(key))
    expected = [
        *("rolled/_daily.json", "rolled/_hourly.json", "rolled/daily/date=2026-10-19/records.parquet"),
        "rolled/hourly/date=2026-10-19/hour=07/records.parquet",
    ]
    checks.expect(changed == expected and not before.keys() - after.keys(), "only its objects change", changed)


def add_late(traffic: Bucket, records: Path, hours: tuple[str, ...]) -> None:
    """Store the requests of hours a second time, as those of another replica."""
    late = BUILD / "late"
    for hour in hours:
        for path in (records / f"requests/date={hour}").glob("gantry-*.parquet"):
            copy = late / path.relative_to(records).with_name("late-0-0-0.parquet")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    traffic.put(late)


def check_killed_rollup(checks: Checks, jobs: Jobs, traffic: Bucket, results: Bucket, records: Path) -> None:
    """Kill a rollup that makes and one that replaces partitions; the result equals that of one clean run."""
    out = ("--out", place("killed"))
    process = jobs.start("rollup", URI, *out)
    wait_until(lambda: len(results.marks("killed/hourly/")) >= 20, "partitions", process)
    alive = process.poll() is None
    kill(process)
    made = len(results.marks("killed/hourly/"))
    checks.expect(alive and made < 48, "a rollup is killed while it makes partitions", f"{made} were made")
    jobs.run("rollup", URI, *out)
    before = results.marks("killed/")
    add_late(traffic, records, tuple(f"2026-10-20/hour={hour:02}" for hour in range(24)))
    process = jobs.start("rollup", URI, *out)
    missing: set[str] = set()

    def replaced() -> bool:
        now = results.marks("killed/")
        missing.update(before.keys() - now.keys())
        return sum(now.get(key) != mark for key, mark in before.items()) >= 12

    wait_until(replaced, "replaced partitions", process)
    alive = process.poll() is None
    kill(process)
    missing.update(before.keys() - results.marks("killed/").keys())
    checks.expect(alive, "a rollup is killed while it replaces partitions")
    checks.expect(not missing, "no object is missing while it is replaced", sorted(missing))
    said = jobs.run("rollup", URI, *out)
    checks.expect("rolled up anew" in said and "status" not in said, "a rollup follows the killed one", said)
    said = jobs.run("rollup", URI, "--out", place("clean"))
    checks.expect(said.startswith("48 hours and 2 days"), "a clean rollup", said)
    for name in ("hourly", "daily"):
        killed, clean = (rolled(results.rows(f"{run}/{name}/")) for run in ("killed", "clean"))
        checks.expect(bool(killed) and killed == clean, f"{name} roll-ups equal those of a clean run")


def rolled(rows: list[dict[str, Any]]) -> Counter[str]:
    """Return rows without their sketches of clients, whose bytes depend on the order of the rows."""
    return Counter(str({key: value for key, value in sorted(row.items()) if key != "clients"}) for row in rows)


def check_reads(checks: Checks, jobs: Jobs, results: Bucket, records: Path) -> None:
    """Ask for incidents, rows and a report, and compare with the same files on this machine."""
    shutil.copytree(BUILD / "late", records, dirs_exist_ok=True)
    plain = Jobs([])
    remote, local = (each.run("detect", uri, "--json") for each, uri in ((jobs, URI), (plain, str(records))))
    checks.expect(kinds(remote) == kinds(local) != [], "detect finds the incidents of a local directory", remote)
    question = "SELECT COUNT(*) AS number, SUM(messages) AS messages FROM requests"
    remote, local = (each.run("sql", uri, question) for each, uri in ((jobs, URI), (plain, str(records))))
    # The engines write sums as whole numbers and as decimals.
    answers = [[float(word) for word in each.split()[2:]] for each in (remote, local)]
    checks.expect(
        answers[0] == answers[1] != [], "sql answers as over a local directory", f"{remote} instead of {local}"
    )
    said = jobs.run("report", URI, "--out", place("report"))
    written = results.marks("report/")
    whole = "report/report.html" in written and results.content("report/report.html").rstrip().endswith(b"</html>")
    checks.expect(whole and len(written) > 10, "report writes a page and tables", said)


def kinds(lines: str) -> list[tuple[str, str]]:
    """Return kind and subject of incidents."""
    with suppress(ValueError):
        parsed = [json.loads(line) for line in lines.splitlines()]
        return sorted((each["kind"], json.dumps(each["about"], sort_keys=True)) for each in parsed)
    return []


def check_compaction(checks: Checks, jobs: Jobs, traffic: Bucket, results: Bucket) -> None:
    """Compact: the same rows, one object for each hour."""
    said = jobs.run("compact", URI, "--out", place("compact"))
    for table in ("requests", "connections", "members"):
        former, merged = (
            digest(bucket.rows(prefix)) for bucket, prefix in ((traffic, f"{table}/"), (results, f"compact/{table}/"))
        )
        checks.expect(former == merged, f"compact keeps all rows of {table}", said)
    folders = Counter(key.rpartition("/")[0] for key in results.marks("compact/") if key.endswith(".parquet"))
    checks.expect(set(folders.values()) == {1}, "compact writes one object for each hour", folders)


def digest(rows: list[dict[str, Any]]) -> Counter[bytes]:
    """Count rows by a checksum, without the partition columns that a reader adds."""
    return Counter(hashlib.blake2b(str(sorted(row.items())).encode(), digest_size=8).digest() for row in rows)


def check_stream(checks: Checks, jobs: Jobs, traffic: Bucket, results: Bucket) -> None:
    """Stream, be killed, continue: each window is written once, with all its requests."""
    out = ("--out", place("stream"), "--window", "10 minutes")
    # The first file there is a temporary one.
    for prefix, when in (("", "before its first batch"), ("0", "in its first batch")):
        process = jobs.start("stream", URI, *out, "--interval", "1 second")
        begun = f"stream/_checkpoint/offsets/{prefix}"
        wait_until(partial(results.marks, begun), when, process)
        alive = process.poll() is None
        kill(process)
        checks.expect(alive, f"a stream is killed {when}", process.returncode)
    process = jobs.start("stream", URI, *out, "--interval", "1 second")
    wait_until(lambda: "stream/incidents.jsonl" in results.marks("stream/"), "incidents", process)
    wait_until(lambda: results.marks("stream/windows/"), "windows", process)
    with suppress(ProcessLookupError):
        process.terminate()
    _, errors = process.communicate(timeout=TIMEOUT)
    checks.expect(process.returncode == 0, "the stream continues, and ends at SIGTERM", errors[-2000:])
    said = jobs.run("stream", URI, *out, "--once")
    windows = results.rows("stream/windows/")
    twice = [key for key, times in Counter((row["time"], row["topic"]) for row in windows).items() if times > 1]
    checks.expect(bool(windows) and not twice, "each window is written once", twice[:3] or said)
    last = max(row["time"] for row in windows) if windows else None
    counted = sum(row["requests"] for row in windows)
    times = [(row["time"].timestamp(), row["weight"] or 1) for row in traffic.rows("requests/")]
    until = 0.0 if last is None else last.timestamp() + 600
    expected = round(sum(weight for when, weight in times if when < until))
    checks.expect(counted == expected, "the windows have all their requests", f"{counted} of {expected}")


def check_recorder(checks: Checks, server: Server, client: Any) -> None:
    """Write a file of records as the proxy does."""
    url = f"s3://{KEY}:{SECRET}@{RESULTS}/recorded?endpoint_override={server.address}&scheme=http&region={REGION}"
    store = Store(url)
    store.check()
    file = RecordFile(store, REQUESTS, f"{partition('requests', 500_000)}/r-0-1-0.parquet", 0.0)
    file.add(samples.batch(*(samples.observation() for _ in range(10)), offset=1.8e9))
    size = file.finish()
    (stored,) = store.files()
    checks.expect(stored.complete and stored.size == size, "the proxy's store writes a file of records", stored)
    filesystem, base = fs.FileSystem.from_uri(url)
    table = pq.read_table(f"{base}/{stored.path}", filesystem=filesystem, partitioning=None)
    checks.expect(table.num_rows == 10, "the file is read again", table.num_rows)
    store.remove(stored)
    checks.expect(not Bucket(client, RESULTS).marks("recorded/"), "retention removes the file")


def install() -> None:
    """Build the server, unless it is there."""
    if not (BUILD / "bin/versitygw").exists():
        environment = {**os.environ, "GOBIN": str((BUILD / "bin").absolute())}
        subprocess.run(["go", "install", SERVER], env=environment, check=True)


def main() -> int:
    """Run all checks; return the exit status."""
    for name in ("data", "late", "records"):
        shutil.rmtree(BUILD / name, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    install()
    records = BUILD / "records"
    command = [sys.executable, "-m", "analytics.generator", str(records), "--records", "50000", "--days", "2"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    checks, server = Checks(), Server()
    jobs = Jobs(server.options())
    with server.running() as client:
        traffic, results = Bucket(client, RECORDS), Bucket(client, RESULTS)
        traffic.create()
        results.create()
        traffic.put(records)
        check_recorder(checks, server, client)
        check_rollup(checks, jobs, traffic, results, records)
        check_killed_rollup(checks, jobs, traffic, results, records)
        check_compaction(checks, jobs, traffic, results)
        check_stream(checks, jobs, traffic, results)
        check_reads(checks, jobs, results, records)
    sys.stdout.write(f"{checks.passed} passed, {checks.failed} failed\n")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
