"""Parsers of arguments: durations, sizes, rates, times, filters. Each raises ArgumentTypeError for invalid text.

Also options that several commands have.
"""

import re
import time
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass
from datetime import datetime

from remoting.topic_group_config import MAX_QUEUES, MAX_RETRIES

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
# Seconds of 100 years: the times before and after them exist.
_MAX_DURATION = 36_500 * 86_400.0
# RocketMQ's offsets are signed numbers of 64 bits, with at most 19 digits.
_MAX_DIGITS = 18
_SIZE = re.compile(r"(\d+)(b|k|kb|kib|m|mb|mib)?", re.IGNORECASE)
_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1000, "kib": 1024, "m": 1024**2, "mb": 1000**2, "mib": 1024**2}
# Digits of a time in milliseconds since 1970: from September 2001 on.
_MILLISECONDS = re.compile(r"\d{13}")

EARLIEST, LATEST = "earliest", "latest"


def add_confirmation(command: ArgumentParser) -> None:
    """Add the option of commands that ask for confirmation."""
    command.add_argument("--yes", action="store_true", help="do not ask; required without a terminal")


def duration(text: str) -> float:
    """Parse `500ms`, `10s`, `2m`, `1h`, `3d` or bare seconds; return seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"not a duration: {text!r}; write 500ms, 10s, 2m, 1h or 3d")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > _MAX_DURATION:
        raise ArgumentTypeError(f"not a duration of at most 36,500 days: {text!r}")
    return seconds


def positive_duration(text: str) -> float:
    """Parse a duration that is not zero; return seconds."""
    seconds = duration(text)
    if not seconds:
        raise ArgumentTypeError(f"not a duration above zero: {text!r}")
    return seconds


def size(text: str) -> int:
    """Parse `300`, `4KiB`, `1MB`; return bytes."""
    found = _SIZE.fullmatch(text)
    if found is None or len(found[1]) > _MAX_DIGITS:
        raise ArgumentTypeError(f"not a size: {text!r}; write 300, 4KiB or 1MB")
    return int(found[1]) * _BYTES[(found[2] or "").lower()]


def rate(text: str) -> float:
    """Parse `500/s` or `500`; return messages per second."""
    try:
        value = float(text.removesuffix("/s"))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"not a rate: {text!r}; write 500/s")
    return value


def positive(text: str) -> int:
    """Parse a whole number from 1 on."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"not a number from 1 on: {text!r}")
    return int(text)


def count(text: str) -> int:
    """Parse a whole number from 0 on."""
    if not text.isascii() or not text.isdecimal():
        raise ArgumentTypeError(f"not a number from 0 on: {text!r}")
    return int(text)


def queues(text: str) -> int:
    """Parse the number of queues of a topic at each broker."""
    return _at_most(MAX_QUEUES, positive(text))


def retries(text: str) -> int:
    """Parse the number of redeliveries of a group's messages."""
    return _at_most(MAX_RETRIES, count(text))


def _at_most(limit: int, number: int) -> int:
    if number > limit:
        raise ArgumentTypeError(f"not a number of at most {limit:,}: {str(number)!r}")
    return number


def queue(text: str) -> tuple[str | None, int]:
    """Parse a message queue, `3` or `broker-a/3`: broker, if any, and number."""
    broker, separator, number = text.rpartition("/")
    if separator and not broker:
        raise ArgumentTypeError(f"not a queue: {text!r}; write 3 or broker-a/3")
    return broker or None, count(number)


def pair(text: str) -> tuple[str, str]:
    """Parse `name=value`."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise ArgumentTypeError(f"not a property: {text!r}; write name=value")
    return name, value


@dataclass(frozen=True, slots=True)
class Start:
    """A starting point in a topic.

    edge: EARLIEST, LATEST, or None. last: number of messages before the end. time: milliseconds since 1970.
    """

    edge: str | None = None
    last: int | None = None
    time: int | None = None


def point(text: str) -> int:
    """Parse a point in time: an ISO 8601 time, milliseconds since 1970, or `10m` for ten minutes ago; return
    milliseconds.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    if _DURATION.fullmatch(text) and not text.isdecimal():
        return int((time.time() - duration(text)) * 1000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(
            f"not a time: {text!r}; write 2026-11-21T12:00, milliseconds since 1970, or 10m for ten minutes ago"
        ) from None


def start(text: str) -> Start:
    """Parse `earliest`, `latest`, `-10` for the last ten messages, or a point in time."""
    if text in (EARLIEST, LATEST):
        return Start(edge=text)
    if text.startswith("-") and text[1:].isdecimal() and len(text) - 1 <= _MAX_DIGITS:
        return Start(last=int(text[1:]))
    return Start(time=point(text))


def target(text: str) -> Start:
    """Parse `earliest`, `latest`, or a point in time."""
    return Start(edge=text) if text in (EARLIEST, LATEST) else Start(time=point(text))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter expression for brokers, and its tags (None: all messages, or not a tag filter)."""

    expression: str = "*"
    kind: str = "TAG"
    tags: frozenset[str] = frozenset()

    def passes(self, tag: str | None) -> bool:
        """Return whether a message passes the tags: brokers compare only their hash codes."""
        return not self.tags or tag in self.tags


def tags(text: str) -> Filter:
    """Parse `a || b`, or `*`."""
    names = frozenset(name for item in text.split("||") if (name := item.strip()))
    return Filter() if names <= {"*"} else Filter(" || ".join(sorted(names)), "TAG", names)


def sql(text: str) -> Filter:
    """Parse an SQL92 condition."""
    return Filter(text, "SQL92")
