"""Commands that answer a question: compare, slo, lineage, sql."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from analytics import arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analytics.comparison import Side

# Opens a Spark session for the options of a command.
Sessions = Callable[[argparse.Namespace], AbstractContextManager["SparkSession"]]
_BY = ("topic", "tenant", "group", "version", "replica", "broker", "client")


def compare(sessions: Sessions, options: argparse.Namespace) -> int:
    """Print what changed between two periods, or what differs between two values of a dimension."""
    from analytics.comparison import compare_periods, compare_values, lines
    from analytics.jobs.engine import tables

    periods = (options.before, options.after)
    if (options.between is None) == (None in periods):
        raise ValueError("say either --before and --after, or --between")
    if options.between is not None:
        dimension, first, second = options.between
        if dimension not in _BY:
            raise ValueError(f"{dimension!r} cannot be compared: say one of {', '.join(_BY)}")
        found = tables(lambda: sessions(options), options.records, options.since, options.until)
        changes = compare_values(found, dimension, first, second)
    else:
        since, until = (choose(time for span in periods for time in span) for choose in (min, max))
        found = tables(lambda: sessions(options), options.records, since, until)
        changes = compare_periods(found, _side(options.before), _side(options.after), options.by)
    if options.json:
        for each in changes:
            print(json.dumps(asdict(each), ensure_ascii=False))
        return 0
    for line in lines(changes, options.confidence):
        print(line)
    return 0


def _side(span: tuple[datetime, datetime]) -> "Side":
    from analytics.comparison import Side

    start, end = (int(time.timestamp() // 3600) for time in span)
    return Side(start, end)


def fill_compare(command: argparse.ArgumentParser) -> None:
    """Add the arguments of compare."""
    arguments.add_records(command)
    for name, text in (("before", "first period"), ("after", "second period")):
        command.add_argument(
            f"--{name}",
            type=arguments.period,
            metavar="TIME/TIME",
            help=f"the {text}, in whole hours: 2026-10-19T00:00Z/2026-10-20T00:00Z",
        )
    command.add_argument("--by", choices=_BY, default="topic", help="what periods are compared by (%(default)s)")
    command.add_argument(
        "--between",
        nargs=3,
        metavar=("DIMENSION", "A", "B"),
        help="two values in the same time, such as replica edge-1 edge-2, or version 'grpc JAVA 5.0.6' …",
    )
    command.add_argument(
        "--confidence", type=arguments.share, default=0.99, metavar="SHARE", help="least, for text (%(default)s)"
    )
    command.add_argument("--json", action="store_true", help="all comparisons, one JSON object per line")
    _add_since(command)
    arguments.add_spark(command)


def slo(sessions: Sessions, options: argparse.Namespace) -> int:
    """Print the objectives' budgets and burn rates; return 1 if one is an alert."""
    from analytics.jobs.engine import engine
    from analytics.slo import as_json, evaluate, lines, metrics

    with engine(lambda: sessions(options), options.records, options.since, options.until) as query:
        statuses = evaluate(options.objectives, query)
    for line in map(as_json, statuses) if options.json else lines(statuses):
        print(line)
    if options.metrics is not None:
        # Prometheus must not read half a file.
        half = options.metrics.with_name(options.metrics.name + ".part")
        half.write_text(metrics(statuses), encoding="utf-8")
        half.replace(options.metrics)
    return 1 if any(each.alerts for each in statuses) else 0


def fill_slo(command: argparse.ArgumentParser) -> None:
    """Add the arguments of slo."""
    arguments.add_records(command)
    command.add_argument(
        "--objectives", type=arguments.objectives_file, required=True, metavar="FILE", help="the objectives, as TOML"
    )
    command.add_argument("--metrics", type=Path, metavar="FILE", help="write Prometheus metrics to this file")
    command.add_argument("--json", action="store_true", help="one JSON object per line")
    _add_since(command)
    arguments.add_spark(command)


def lineage(sessions: Sessions, options: argparse.Namespace) -> int:
    """Print topics with their producers and groups, and the orphans."""
    from analytics.jobs.engine import tables
    from analytics.lineage import lineage as lineage_of
    from analytics.lineage import lines

    found = lineage_of(tables(lambda: sessions(options), options.records, options.since, options.until))
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    for line in lines(found):
        print(line)
    return 0


def fill_lineage(command: argparse.ArgumentParser) -> None:
    """Add the arguments of lineage."""
    arguments.add_records(command)
    command.add_argument("--json", action="store_true", help="one JSON object")
    _add_since(command)
    arguments.add_spark(command)


def sql(sessions: Sessions, options: argparse.Namespace) -> int:
    """Print the rows of a statement."""
    from analytics.jobs.engine import select

    frame = select(lambda: sessions(options), options.records, options.since, options.until, options.statement)
    if options.json:
        frame.to_json(sys.stdout, orient="records", lines=True, date_format="iso", force_ascii=False)
    elif options.csv:
        frame.to_csv(sys.stdout, index=False)
    else:
        print(frame.to_string(index=False) if len(frame) else "no rows")
    return 0


def fill_sql(command: argparse.ArgumentParser) -> None:
    """Add the arguments of sql."""
    arguments.add_records(command)
    command.add_argument(
        "statement", metavar="STATEMENT", help="a SELECT over the views requests, connections, members, hourly, tenants"
    )
    shape = command.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one JSON object per line")
    shape.add_argument("--csv", action="store_true", help="comma-separated values")
    _add_since(command)
    arguments.add_spark(command)


def _add_since(command: argparse.ArgumentParser) -> None:
    command.add_argument("--since", type=arguments.time, metavar="TIME", help="ISO 8601 with a zone, or 24h, 7d")
    command.add_argument("--until", type=arguments.time, metavar="TIME", help="the end, exclusive")
