"""Periods: windows of fixed length, and calendar days of a time zone."""

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import Column
from pyspark.sql import functions as f

_LENGTHS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_FORM = re.compile(r"(\d+) (second|minute|hour|day|week)s?")


def seconds(every: str) -> int:
    """Return the length of "5 minutes" or "1 hour" in seconds; a day counts 86400. Raises ValueError with a remedy."""
    match = _FORM.fullmatch(every.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{every!r} is no length of time: say a number and a unit, such as '5 minutes' or '1 day'")
    return int(match[1]) * _LENGTHS[match[2]]


def zone_name(zone: str) -> str:
    """Return the zone's name if it exists. Raises ValueError."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{zone!r} is no time zone: say a name such as 'Europe/Berlin' or 'UTC'") from None
    return zone


def start(every: str, zone: str = "UTC") -> Column:
    """Return the start of the period that contains the column `time`.

    "1 day" and "1 week" (from Monday) follow the zone's calendar, so a day may have 23 or 25 hours. Shorter periods are
    counted from the epoch. Raises ValueError for other lengths.
    """
    length = seconds(every)
    time = f.col("time")
    if length < 86400:
        return f.window(time, every)["start"]
    for unit in ("day", "week"):
        if length == _LENGTHS[unit]:
            local = f.date_trunc(unit, f.from_utc_timestamp(time, zone_name(zone)))
            return f.to_utc_timestamp(local, zone)
    raise ValueError(f"{every!r}: from a day on, only '1 day' and '1 week' are calendar periods")


def keys(every: str | None, zone: str = "UTC") -> list[Column]:
    """Return the additional grouping columns: `time`, or none for all times together."""
    return [] if every is None else [start(every, zone).alias("time")]


def named(every: str | None) -> list[str]:
    """Return the names of `keys`."""
    return [] if every is None else ["time"]
