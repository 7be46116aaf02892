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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analytics.facts import Facts
    from analytics.incidents.mutes import Mute
    from analytics.jobs.report import Order
    from analytics.records import Skipped
    from proxy.traffic_rules.model import RuleFile

# Packages of the extra `analytics`; any other missing module is a defect.
_EXTRA = {"jinja2", "markupsafe", "matplotlib", "numpy", "pandas", "py4j", "pyarrow", "pydantic", "pyspark"}
_MEMORY = "2g"

_T = TypeVar("_T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. Faults of arguments or records are one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
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
    from analytics.records import NoRecords, cause

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
    return 0


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
    order = Order(options.window, options.lateness, limits, options.webhook, options.interval, options.files_per_batch)
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
    spark = session(
        f"gantry-{options.command}",
        master,
        memory=options.memory,
        options=dict(options.option),
        quiet=not options.verbose,
    )
    try:
        yield spark
    finally:
        spark.stop()


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
    _records(command)
    _out(command, "report.html and tables/ go to")
    _span(command)
    command.add_argument(
        "--rules",
        type=_rules,
        metavar="FILE",
        help="traffic rules file; report the subjects that would exceed its limits",
    )
    command.add_argument("--facts", type=_facts, metavar="FILE", help="prices, limits and newest versions, as TOML")
    command.add_argument("--open", action="store_true", help="open the report in the browser")
    _common(command)


def _fill_detect(command: argparse.ArgumentParser) -> None:
    _records(command)
    _span(command)
    command.add_argument("--json", action="store_true", help="one JSON object per line")
    _common(command)


def _fill_rollup(command: argparse.ArgumentParser) -> None:
    _records(command)
    _out(command, "hourly/ and daily/ go to")
    command.add_argument("--zone", type=_zone, default="UTC", help="time zone whose days are rolled up (%(default)s)")
    _common(command)


def _fill_compact(command: argparse.ArgumentParser) -> None:
    _records(command)
    _out(command, "the tables go to, one file per hour; another directory than the records'")
    _common(command)


def _fill_stream(command: argparse.ArgumentParser) -> None:
    _records(command)
    _out(command, "windows/, alerts/ and the checkpoint go to")
    command.add_argument(
        "--window", type=_window, default="1 minute", metavar="TIME", help="length of a window (%(default)s)"
    )
    command.add_argument(
        "--lateness", type=_window, default="5 minutes", metavar="TIME", help="maximum delay of a record (%(default)s)"
    )
    command.add_argument(
        "--interval", type=_window, default="10 seconds", metavar="TIME", help="interval between batches (%(default)s)"
    )
    command.add_argument(
        "--files-per-batch", type=_positive, default=1000, metavar="N", help="maximum files per batch (%(default)s)"
    )
    command.add_argument(
        "--error-rate", type=_share, default=0.05, metavar="SHARE", help="limit for an alert (%(default)s)"
    )
    command.add_argument(
        "--p99",
        type=_milliseconds,
        default=1000.0,
        metavar="MS",
        help="limit of send latency for an alert (%(default)g)",
    )
    command.add_argument(
        "--redelivery-rate", type=_share, default=0.2, metavar="SHARE", help="limit for an alert (%(default)s)"
    )
    command.add_argument(
        "--least", type=_positive, default=20, metavar="N", help="minimum requests for an alert (%(default)s)"
    )
    command.add_argument("--webhook", type=_url, metavar="URL", help="post alerts to this URL as JSON")
    command.add_argument("--once", action="store_true", help="end after reading all existing records")
    _common(command)


def _fill_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("dir", type=Path, metavar="DIR", help="directory for records and report")
    command.add_argument("--size", type=_positive, default=1_000_000, metavar="N", help="requests (%(default)s)")
    command.add_argument("--days", type=_positive, default=7, metavar="N", help="days (%(default)s)")
    _common(command)


def _records(command: argparse.ArgumentParser) -> None:
    command.add_argument("records", metavar="RECORDS", help="directory of traffic records, or a URI such as s3a://…")


def _out(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--out", required=True, metavar="DIR", help=f"directory or URI that {text}")


def _span(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--since", type=_time, metavar="TIME", help="ISO 8601 with a zone, or a duration before now: 24h, 7d"
    )
    command.add_argument("--until", type=_time, metavar="TIME", help="the end, exclusive")
    command.add_argument("--zone", type=_zone, default="UTC", help="time zone of days and clocks (%(default)s)")
    command.add_argument(
        "--mutes", type=_mutes, default=(), metavar="FILE", help="known incidents, as TOML; they are not shown"
    )
    command.add_argument("--title", default="Traffic", help=argparse.SUPPRESS)


def _common(command: argparse.ArgumentParser) -> None:
    spark = command.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help="local[*] (default), spark://…, yarn, k8s://…")
    spark.add_argument(
        "--memory", default=_MEMORY, metavar="SIZE", help="driver memory, for a local master (%(default)s)"
    )
    spark.add_argument(
        "--option", action="append", type=_pair, default=[], metavar="KEY=VALUE", help="a Spark option; may be repeated"
    )
    spark.add_argument("--verbose", action="store_true", help="show the logs of Spark and the jobs")


_COMMANDS: tuple[
    tuple[str, Callable[[argparse.Namespace], int], str, Callable[[argparse.ArgumentParser], None]], ...
] = (
    ("report", _report, "Write a page about the traffic, and its tables as Parquet.", _fill_report),
    ("detect", _detect, "Print incidents, with what to do about each.", _fill_detect),
    ("rollup", _rollup, "Update hourly and daily roll-ups.", _fill_rollup),
    ("compact", _compact, "Compact the records into few files.", _fill_compact),
    ("stream", _stream, "Write windows and alerts while records are written.", _fill_stream),
    ("demo", _demo, "Generate records, find the planted incidents, open a report.", _fill_demo),
)


# Values.


def _rules(path: str) -> "RuleFile":
    from proxy.traffic_rules.parsing import RulesError, parse

    return _parse_file(path, parse, RulesError)


def _facts(path: str) -> "Facts":
    from analytics.facts import FactsError, parse

    return _parse_file(path, parse, FactsError)


def _mutes(path: str) -> "tuple[Mute, ...]":
    from analytics.incidents.mutes import MutesError, parse

    return _parse_file(path, parse, MutesError)


def _parse_file(path: str, parse: Callable[[str], _T], mistake: type[Exception]) -> _T:
    """Parse the contents of a file."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{path} is no text in UTF-8") from None
    except mistake as error:
        # One line per fault.
        first, *others = str(error).splitlines()
        more = f" (and {len(others)} more)" if others else ""
        raise argparse.ArgumentTypeError(f"{path}: {first}{more}") from None


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time zone: say a name such as Europe/Berlin") from None
    return text


def _time(text: str) -> datetime:
    units = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
    if text[:-1].isdecimal() and text[-1] in units:
        return datetime.now(UTC) - int(text[:-1]) * units[text[-1]]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 2026-10-19T14:00+02:00, or 24h for a day ago") from None
    if time.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} names no time zone: say {time.isoformat()}Z, or +02:00 at its end")
    return time


def _window(text: str) -> str:
    number, _, unit = text.partition(" ")
    if not number.isdecimal() or not int(number) or unit.removesuffix("s") not in ("second", "minute", "hour"):
        raise argparse.ArgumentTypeError(f"{text!r}: say a number and a unit, such as '30 seconds' or '5 minutes'")
    return text


def _positive(text: str) -> int:
    if not text.replace("_", "").isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1")
    return value


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in milliseconds")
    return value


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is no http:// or https:// address")
    return text


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r}: say KEY=VALUE")
    return key, value
