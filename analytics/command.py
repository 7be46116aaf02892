"""The command line of the jobs: `gantry analytics`, `python -m analytics` and spark-submit.

Spark is imported when a job runs, so that --help is fast and needs no extra.
"""

import argparse
import logging
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from analytics import arguments, questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analytics.incidents.incident import Incident
    from analytics.jobs.report import Order
    from analytics.record_errors import Skipped

# Packages of the extra `analytics`; any other missing module is a defect.
_EXTRA = {"jinja2", "markupsafe", "matplotlib", "numpy", "pandas", "py4j", "pyarrow", "pydantic", "pyspark"}


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. Faults of arguments or records are one sentence on stderr."""
    given = list(sys.argv[1:] if words is None else words)
    if given[:1] == ["generate"]:
        # The subcommand has its own parser.
        from analytics.generator.__main__ import main as generate

        return generate(given[1:])
    try:
        options = command_parser().parse_args(given)
        logging.basicConfig(
            format="%(message)s", level=logging.INFO if getattr(options, "verbose", False) else logging.ERROR
        )
        return int(options.run(options))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        return _refuse(f"{error.name} is not installed: pip install 'rocketmq-gantry[analytics]'")
    except (ValueError, OSError) as error:
        return _refuse(str(error))
    except Exception as error:
        return _refuse(_explained(error))


def _explained(error: Exception) -> str:
    """Return an error of the records or of Spark as a sentence. Raises any other error, which is a defect."""
    from analytics.record_errors import NoRecords, cause

    if isinstance(error, NoRecords):
        _report_skipped(error.skipped)
        return str(error)
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
        return f"Spark failed: {cause(error)} (--verbose shows its log)"
    raise error


def _refuse(sentence: str) -> int:
    print(f"gantry analytics: {sentence}", file=sys.stderr)
    return 2


# The jobs.


def _report(options: argparse.Namespace) -> int:
    from analytics.jobs.report import report

    order = replace(_order(options), rules=options.rules)
    if options.facts is not None:
        order = replace(order, facts=options.facts)
    with _spark(options) as spark:
        made = report(spark, options.records, options.out, order)
    _report_skipped(made.skipped)
    print(f"{made.page}: {made.requests:,} requests, {len(made.incidents)} incidents")
    if options.open and not urlsplit(made.page).scheme:
        webbrowser.open(Path(made.page).as_uri())
    return 0


def _detect(options: argparse.Namespace) -> int:
    from analytics.jobs.incidents import find, lines

    order = _order(options)
    found = find(lambda: _spark(options), options.records, order)
    for line in lines(found.incidents, order, as_json=options.json):
        print(line)
    _report_skipped(found.skipped)
    return 0 if _announce(found.incidents, options) else 1


def _announce(found: "Sequence[Incident]", options: argparse.Namespace) -> bool:
    """Send incidents where the options say; return whether every channel took them."""
    from analytics.jobs.notifications import Channels, Mail, announce

    given = (options.mail_server, options.mail_from, options.mail_to)
    if any(given) and not all(given):
        raise ValueError("e-mail needs --mail-server, --mail-from and --mail-to")
    return announce(found, Channels(options.webhook, Mail(*given) if all(given) else None, options.state))


def _rollup(options: argparse.Namespace) -> int:
    from analytics.jobs.rollups import roll

    with _spark(options) as spark:
        done = roll(spark, options.records, options.out, options.zone)
    print(f"{done.hours} hours and {done.days} days rolled up anew, {done.kept} hours as they were")
    return _report_skipped(done.skipped)


def _compact(options: argparse.Namespace) -> int:
    from analytics.jobs.compaction import compact

    with _spark(options) as spark:
        done = compact(spark, options.records, options.out)
    kept = f"{done.kept:,} partitions as they were"
    print(f"{done.files:,} files became {done.partitions:,}, with {done.rows:,} rows; {kept}")
    return _report_skipped(done.skipped)


def _report_skipped(skipped: "Sequence[Skipped]") -> int:
    """Print the files that were not read completely; return 1 if there were any: the result is incomplete."""
    for each in skipped:
        print(f"not read completely: {each.path}: {each.reason}", file=sys.stderr)
    return 1 if skipped else 0


def _stream(options: argparse.Namespace) -> int:
    from analytics.jobs.streaming import Limits, Order, stream

    limits = Limits(options.error_rate, options.p99, options.redelivery_rate, options.least)
    order = Order(
        options.window,
        options.lateness,
        limits,
        options.webhook,
        options.interval,
        options.files_per_batch,
        options.detect_every,
        options.history,
    )
    with _spark(options) as spark:
        skipped = stream(spark, options.records, options.out, order, once=options.once)
    return _report_skipped(skipped)


def _demo(options: argparse.Namespace) -> int:
    from analytics.jobs.demo import demo

    with _spark(options) as spark:
        return demo(spark, options.dir, options.size, options.days)


def _order(options: argparse.Namespace) -> "Order":
    from analytics.jobs.report import Order

    return Order(options.title, options.since, options.until, options.zone, mutes=options.mutes)


@contextmanager
def _spark(options: argparse.Namespace) -> "Iterator[SparkSession]":
    """Yield a Spark session and stop it at the end. Without --master, spark-submit's settings apply."""
    from analytics.session import session

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = options.master or (None if submitted else "local[*]")
    if master is not None and master.startswith("local"):
        _check_directory(options)
    spark = session(
        f"gantry-{options.command}",
        master,
        memory=options.memory,
        options=dict(options.option),
        quiet=not options.verbose,
        # A stream runs for days.
        brief=options.command != "stream" and is_small(getattr(options, "records", None)),
    )
    try:
        yield spark
    finally:
        spark.stop()


def _check_directory(options: argparse.Namespace) -> None:
    """Raise NoRecords if a directory of this machine does not exist, before the seconds that a JVM takes to start."""
    records: str | None = getattr(options, "records", None)
    if records is None or "://" in records or any(key.endswith("fs.defaultFS") for key, _ in options.option):
        return
    if not Path(records).exists():
        from analytics.record_errors import no_directory

        raise no_directory(records)


# Bytes of records up to which a job ends before thorough compilation of its code pays.
_SMALL = 200_000_000


def is_small(records: str | None) -> bool:
    """Return whether records are a small directory of this machine."""
    if records is None or "://" in records or not Path(records).is_dir():
        return False
    return sum(map(_size, Path(records).rglob("*.parquet"))) <= _SMALL


def _size(file: Path) -> int:
    """Return a file's size; 0 if retention has removed it since it was listed."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


# The arguments.


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all jobs."""
    parser = argparse.ArgumentParser(prog="gantry analytics", description="Analyse traffic records.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, run, text, fill in _COMMANDS:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        fill(command)
    commands.add_parser("generate", help="Generate traffic records of a fictional deployment.", add_help=False)
    return parser


def _fill_report(command: argparse.ArgumentParser) -> None:
    arguments.add_records(command)
    arguments.add_out(command, "report.html and tables/ go to")
    arguments.add_span(command)
    command.add_argument(
        "--rules",
        type=arguments.rules_file,
        metavar="FILE",
        help="traffic rules file; report the subjects that would exceed its limits",
    )
    command.add_argument(
        "--facts", type=arguments.facts_file, metavar="FILE", help="prices, limits and newest versions, as TOML"
    )
    command.add_argument("--open", action="store_true", help="open the report in the browser")
    arguments.add_spark(command)


def _fill_detect(command: argparse.ArgumentParser) -> None:
    arguments.add_records(command)
    arguments.add_span(command)
    command.add_argument("--json", action="store_true", help="one JSON object per line")
    command.add_argument(
        "--webhook", type=arguments.url, metavar="URL", help="post incidents that begin or end to this URL as JSON"
    )
    command.add_argument(
        "--mail-server", type=arguments.server, metavar="HOST:PORT", help="send them by e-mail through this SMTP server"
    )
    command.add_argument("--mail-from", metavar="ADDRESS", help="sender of the e-mail")
    command.add_argument("--mail-to", metavar="ADDRESS", help="recipient of the e-mail")
    command.add_argument(
        "--state", type=Path, metavar="FILE", help="remembers what was announced; without it, every run announces all"
    )
    arguments.add_spark(command)


def _fill_rollup(command: argparse.ArgumentParser) -> None:
    arguments.add_records(command)
    arguments.add_out(command, "hourly/ and daily/ go to")
    command.add_argument(
        "--zone", type=arguments.zone, default="UTC", help="time zone whose days are rolled up (%(default)s)"
    )
    arguments.add_spark(command)


def _fill_compact(command: argparse.ArgumentParser) -> None:
    arguments.add_records(command)
    arguments.add_out(command, "the tables go to, one file per hour; another directory than the records'")
    arguments.add_spark(command)


def _fill_stream(command: argparse.ArgumentParser) -> None:
    arguments.add_records(command)
    arguments.add_out(command, "windows/, alerts/ and the checkpoint go to")
    command.add_argument(
        "--window", type=arguments.window, default="1 minute", metavar="TIME", help="length of a window (%(default)s)"
    )
    command.add_argument(
        "--lateness",
        type=arguments.window,
        default="5 minutes",
        metavar="TIME",
        help="maximum delay of a record (%(default)s)",
    )
    command.add_argument(
        "--interval",
        type=arguments.window,
        default="10 seconds",
        metavar="TIME",
        help="interval between batches (%(default)s)",
    )
    command.add_argument(
        "--files-per-batch",
        type=arguments.positive,
        default=1000,
        metavar="N",
        help="maximum files per batch (%(default)s)",
    )
    command.add_argument(
        "--error-rate", type=arguments.share, default=0.05, metavar="SHARE", help="limit for an alert (%(default)s)"
    )
    command.add_argument(
        "--p99",
        type=arguments.milliseconds,
        default=1000.0,
        metavar="MS",
        help="limit of send latency for an alert (%(default)g)",
    )
    command.add_argument(
        "--redelivery-rate", type=arguments.share, default=0.2, metavar="SHARE", help="limit for an alert (%(default)s)"
    )
    command.add_argument(
        "--least", type=arguments.positive, default=20, metavar="N", help="minimum requests for an alert (%(default)s)"
    )
    command.add_argument(
        "--detect-every",
        type=arguments.positive,
        default=30,
        metavar="SECONDS",
        help="shortest time between two detections of incidents (%(default)s)",
    )
    command.add_argument(
        "--history",
        type=arguments.positive,
        default=7,
        metavar="DAYS",
        help="days of records that incidents are found in (%(default)s)",
    )
    command.add_argument("--webhook", type=arguments.url, metavar="URL", help="post alerts to this URL as JSON")
    command.add_argument("--once", action="store_true", help="end after reading all existing records")
    arguments.add_spark(command)


def _fill_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("dir", type=Path, metavar="DIR", help="directory for records and report")
    command.add_argument(
        "--size", type=arguments.positive, default=1_000_000, metavar="N", help="requests (%(default)s)"
    )
    command.add_argument("--days", type=arguments.positive, default=7, metavar="N", help="days (%(default)s)")
    arguments.add_spark(command)


_COMMANDS: tuple[
    tuple[str, Callable[[argparse.Namespace], int], str, Callable[[argparse.ArgumentParser], None]], ...
] = (
    ("report", _report, "Write a page about the traffic, and its tables as Parquet.", _fill_report),
    ("detect", _detect, "Print incidents, with what to do about each.", _fill_detect),
    (
        "compare",
        partial(questions.compare, _spark),
        "Compare two periods, versions, replicas or tenants.",
        questions.fill_compare,
    ),
    ("slo", partial(questions.slo, _spark), "Evaluate objectives: error budgets and burn rates.", questions.fill_slo),
    (
        "lineage",
        partial(questions.lineage, _spark),
        "Print producers, topics, groups, and orphans.",
        questions.fill_lineage,
    ),
    ("sql", partial(questions.sql, _spark), "Run a SELECT statement on the records.", questions.fill_sql),
    ("rollup", _rollup, "Update hourly and daily roll-ups.", _fill_rollup),
    ("compact", _compact, "Compact the records into few files.", _fill_compact),
    ("stream", _stream, "Write windows and alerts while records are written.", _fill_stream),
    ("demo", _demo, "Generate records, find the planted incidents, open a report.", _fill_demo),
)
