"""Arguments of the commands: those that several have, and the values they parse."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from analytics.facts import Facts
    from analytics.incidents.mutes import Mute
    from analytics.slo import Objective
    from proxy.traffic_rules.model import RuleFile

_MEMORY = "2g"

_T = TypeVar("_T")


def add_records(command: argparse.ArgumentParser) -> None:
    """Add the records."""
    command.add_argument("records", metavar="RECORDS", help="directory of traffic records, or a URI such as s3a://…")


def add_out(command: argparse.ArgumentParser, text: str) -> None:
    """Add the directory of the results."""
    command.add_argument("--out", required=True, metavar="DIR", help=f"directory or URI that {text}")


def add_span(command: argparse.ArgumentParser) -> None:
    """Add the span of time, its zone, and the mute file."""
    command.add_argument(
        "--since", type=time, metavar="TIME", help="ISO 8601 with a zone, or a duration before now: 24h, 7d"
    )
    command.add_argument("--until", type=time, metavar="TIME", help="the end, exclusive")
    command.add_argument("--zone", type=zone, default="UTC", help="time zone of days and clocks (%(default)s)")
    command.add_argument(
        "--mutes", type=mutes_file, default=(), metavar="FILE", help="known incidents, as TOML; they are not shown"
    )
    command.add_argument("--title", default="Traffic", help=argparse.SUPPRESS)


def add_spark(command: argparse.ArgumentParser) -> None:
    """Add Spark's options."""
    spark = command.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help="local[*] (default), spark://…, yarn, k8s://…")
    spark.add_argument(
        "--memory", default=_MEMORY, metavar="SIZE", help="driver memory, for a local master (%(default)s)"
    )
    spark.add_argument(
        "--option", action="append", type=pair, default=[], metavar="KEY=VALUE", help="a Spark option; may be repeated"
    )
    spark.add_argument("--verbose", action="store_true", help="show the logs of Spark and the jobs")


def objectives_file(path: str) -> "tuple[Objective, ...]":
    """Parse a file of objectives."""
    from analytics.slo import ObjectivesError, parse

    return parse_file(path, parse, ObjectivesError)


def rules_file(path: str) -> "RuleFile":
    """Parse a traffic rules file."""
    from proxy.traffic_rules.parsing import RulesError, parse

    return parse_file(path, parse, RulesError)


def facts_file(path: str) -> "Facts":
    """Parse a facts file."""
    from analytics.facts import FactsError, parse

    return parse_file(path, parse, FactsError)


def mutes_file(path: str) -> "tuple[Mute, ...]":
    """Parse a mute file."""
    from analytics.incidents.mutes import MutesError, parse

    return parse_file(path, parse, MutesError)


def parse_file(path: str, parse: Callable[[str], _T], mistake: type[Exception]) -> _T:
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


def zone(text: str) -> str:
    """Return the name of a time zone."""
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time zone: say a name such as Europe/Berlin") from None
    return text


def time(text: str) -> datetime:
    """Return an aware time."""
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


def window(text: str) -> str:
    """Return a length of time in Spark's words."""
    number, _, unit = text.partition(" ")
    if not number.isdecimal() or not int(number) or unit.removesuffix("s") not in ("second", "minute", "hour"):
        raise argparse.ArgumentTypeError(f"{text!r}: say a number and a unit, such as '30 seconds' or '5 minutes'")
    return text


def positive(text: str) -> int:
    """Return a positive whole number."""
    if not text.replace("_", "").isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return int(text)


def share(text: str) -> float:
    """Return a share between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1")
    return value


def milliseconds(text: str) -> float:
    """Return a time in milliseconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in milliseconds")
    return value


def url(text: str) -> str:
    """Return an http or https address."""
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is no http:// or https:// address")
    return text


def pair(text: str) -> tuple[str, str]:
    """Return a key and its value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r}: say KEY=VALUE")
    return key, value


def period(text: str) -> tuple[datetime, datetime]:
    """Return start and end of "TIME/TIME"."""
    begin, slash, end = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"{text!r} is no period: say its start and its end, with / between them")
    start, until = time(begin), time(end)
    if until <= start:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return start, until


def server(text: str) -> str:
    """Return HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")
    return text
