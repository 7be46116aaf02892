"""Log lines of requests and connections. They contain neither message bodies nor keys."""

import logging
import time
from typing import Any

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.connections import ConnectionEvent
from proxy.core.events import LONG_POLLS, Observation, Observer, describe, identity
from proxy.settings.logs import LogSettings
from remoting.codes import ResponseCode

_connections = logging.getLogger("gantry.connections")
_slow = logging.getLogger("gantry.slow")
_access = logging.getLogger("gantry.access")

_RESPONSE_NAMES: dict[str, dict[int, str]] = {
    "remoting": {code.value: code.name for code in ResponseCode},
    "grpc": {number: name for name, number in Code.items()},
}


def observers(settings: LogSettings) -> list[Observer]:
    """Return the observers that write the enabled lines about requests."""
    enabled: list[Observer] = []
    if settings.access:
        enabled.append(_log_access)
    if settings.slow is not None:
        enabled.append(_SlowLog(settings.slow).observe)
    return enabled


def log_closed_connection(event: ConnectionEvent) -> None:
    """Connection listener: log a connection that closes."""
    if event.cause is None or not _connections.isEnabledFor(logging.INFO):
        return
    connection, client_id = event.connection, event.identity.client_id
    age = time.monotonic() - connection.opened_at
    fields = {
        "protocol": event.protocol,
        "address": str(event.peer.address),
        "listener": event.peer.listener,
        "client_id": client_id,
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
        client_id or "unknown",
        event.cause,
        age,
        connection.requests,
        connection.received_bytes,
        connection.sent_bytes,
        extra={"fields": fields},
    )


def _log_access(observation: Observation) -> None:
    if _access.isEnabledFor(logging.INFO):
        _access.info("%s", _text(observation), extra={"fields": _fields(observation)})


class _SlowLog:
    """Logs requests that take `seconds` or longer, except long polls."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def observe(self, observation: Observation) -> None:
        if observation.seconds >= self._seconds and observation.code not in LONG_POLLS:
            _slow.warning("slow: %s", _text(observation), extra={"fields": _fields(observation)})


def _text(observation: Observation) -> str:
    client_id = identity(observation.channel).client_id or "unknown"
    parts = [f"{observation.protocol} {observation.code} from {client_id} at {observation.peer.address}"]
    parts += [f"{name} {value}" for name in ("topic", "group", "broker") if (value := getattr(observation, name))]
    parts.append(f"{_response_name(observation)} after {observation.seconds * 1000:.1f} ms")
    if observation.broker_seconds is not None:
        parts.append(f"brokers {observation.broker_seconds * 1000:.1f} ms")
    parts.append(f"{observation.messages} messages, {observation.bytes_in} bytes in, {observation.bytes_out} out")
    return ", ".join(parts)


def _fields(observation: Observation) -> dict[str, Any]:
    broker_seconds = observation.broker_seconds
    return {
        **describe(observation),
        "latency_ms": round(observation.seconds * 1000, 3),
        "broker_ms": None if broker_seconds is None else round(broker_seconds * 1000, 3),
    }


def _response_name(observation: Observation) -> str:
    """Return the name of a request's response code, or its number if it has no name."""
    return _RESPONSE_NAMES[observation.protocol].get(observation.response, str(observation.response))
