"""Logs: text or JSON lines, without floods; and what is worth a line of every request and connection.

Neither message bodies nor keys are in any line. In JSON, what a line is about stands in fields of its own.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.connections import ConnectionEvent
from proxy.core.events import LONG_POLLS, Observation, Observer, describe, identity
from proxy.settings.logs import LogSettings
from remoting.codes import ResponseCode

_connections = logging.getLogger("gantry.connections")
_slow = logging.getLogger("gantry.slow")
_access = logging.getLogger("gantry.access")

_TEXT = "%(asctime)s %(levelname)-7s {worker}%(name)s: %(message)s"
# Seconds of a window in which lines of one kind are counted, and kinds that are remembered.
_WINDOW = 10.0
_KINDS = 1_000
# Every one of these is wanted.
_UNLIMITED = frozenset({"gantry.access", "gantry.audit", "gantry.connections"})
_ANSWERS: dict[str, dict[int, str]] = {
    "remoting": {code.value: code.name for code in ResponseCode},
    "grpc": {number: name for name, number in Code.items()},
}


def configure(settings: LogSettings, level: str, stream: TextIO | None = None, worker: int | None = None) -> None:
    """Send everything that is logged in this process to `stream` (standard error).

    worker: the process' number, said in each line where there are several.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(worker) if settings.format == "json" else TextFormatter(worker))
    handler.addFilter(Bursts(settings.burst))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextFormatter(logging.Formatter):
    """A line for people. What clients wrote cannot make it look like several: control characters are escaped."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__(_TEXT.format(worker="" if worker is None else f"worker {worker} "))

    def formatMessage(self, record: logging.LogRecord) -> str:
        if not record.message.isprintable():
            record.message = _unprintable(_escaped, record.message)
        return super().formatMessage(record)


# Newlines and other control characters, surrogates, and what ends a line or turns the direction of writing elsewhere.
_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]").sub


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode()


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, worker, message, and the fields that came with it."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:
            # Half a surrogate pair, or a number beyond 64 bits: rather a line that is slow than none.
            return json.dumps(line, default=str)


class Bursts(logging.Filter):
    """Lets so many lines of one kind (logger, level and text before its arguments) pass in ten seconds.

    The first line after that says how many were left out.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most = most
        self._clock = clock
        self._windows: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name in _UNLIMITED:
            return True
        kind = record.name, record.levelno, str(record.msg)
        now = self._clock()
        begun, count = self._windows.get(kind, (now, 0))
        if now - begun >= _WINDOW:
            if count > self._most:
                record.msg = f"{record.msg} ({count - self._most} more of these were not written)"
            begun, count = now, 0
        if kind not in self._windows and len(self._windows) >= _KINDS:
            self._windows.clear()
        self._windows[kind] = begun, count + 1
        return count < self._most


# What requests and connections leave.


def observers(settings: LogSettings) -> list[Observer]:
    """What has to see every request, for the lines that are wanted."""
    wanted: list[Observer] = []
    if settings.access:
        wanted.append(_write_access)
    if settings.slow is not None:
        wanted.append(_Slow(settings.slow))
    return wanted


def connection_ended(event: ConnectionEvent) -> None:
    """Listener: one line for every connection that closes."""
    if event.cause is None or not _connections.isEnabledFor(logging.INFO):
        return
    connection, who = event.connection, event.identity
    age = time.monotonic() - connection.opened_at
    fields = {
        "protocol": event.protocol,
        "address": str(event.peer.address),
        "listener": event.peer.listener,
        "client_id": who.client_id,
        "cause": event.cause,
        "age_ms": round(age * 1000),
        "requests": connection.requests,
        "bytes_in": connection.received_bytes,
        "bytes_out": connection.sent_bytes,
    }
    _connections.info(
        "%s %s (%s) closed: %s; %.1f s, %d requests, %d bytes in, %d out",
        event.protocol,
        event.peer.address,
        who.client_id or "unknown",
        event.cause,
        age,
        connection.requests,
        connection.received_bytes,
        connection.sent_bytes,
        extra={"fields": fields},
    )


def _write_access(seen: Observation) -> None:
    if _access.isEnabledFor(logging.INFO):
        _access.info("%s", _described(seen), extra={"fields": _fields(seen)})


class _Slow:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, seen: Observation) -> None:
        if seen.seconds >= self._seconds and seen.code not in LONG_POLLS:
            _slow.warning("slow: %s", _described(seen), extra={"fields": _fields(seen)})


def _described(seen: Observation) -> str:
    who = identity(seen.channel)
    parts = [f"{seen.protocol} {seen.code} of {who.client_id or 'unknown'} at {seen.peer.address}"]
    parts += [f"{name} {value}" for name in ("topic", "group", "broker") if (value := getattr(seen, name))]
    parts.append(f"{answer(seen)} after {seen.seconds * 1000:.1f} ms")
    if seen.broker_seconds is not None:
        parts.append(f"brokers {seen.broker_seconds * 1000:.1f} ms")
    parts.append(f"{seen.messages} messages, {seen.bytes_in} bytes in, {seen.bytes_out} out")
    return ", ".join(parts)


def _fields(seen: Observation) -> dict[str, Any]:
    return {
        **describe(seen),
        "latency_ms": round(seen.seconds * 1000, 3),
        "broker_ms": None if seen.broker_seconds is None else round(seen.broker_seconds * 1000, 3),
    }


def answer(seen: Observation) -> str:
    """The name of a request's answer, or its number where it has none."""
    return _ANSWERS[seen.protocol].get(seen.response, str(seen.response))
