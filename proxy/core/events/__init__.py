"""Observations: a summary of each answered request for observers, which are metrics, logs, traffic records and taps.

Every remoting request and every rpc is reported once. The commands that an rpc sends through the core are not reported.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from protocol_negotiation.peer import Peer
from proxy.core.channel import UNIDENTIFIED, Channel, ChannelProtocol, Identity
from remoting.compilation import mypyc_attr
from remoting.requests import REQUESTS

_log = logging.getLogger("gantry.messaging")

# Names from clients, which may be of any length, are cut to this number of characters.
MAX_NAME_LENGTH: Final = 255
# Name of all request codes that are not in the request table.
UNKNOWN_CODE: Final = "unknown"
# Codes and rpcs whose duration is chosen by the client.
LONG_POLLS: Final = frozenset(spec.name for spec in REQUESTS.values() if spec.poll is not None) | {
    "ReceiveMessage",
    "PullMessage",
}


@mypyc_attr(acyclic=True)
class Observation:
    """One answered request.

    code: name of the request code or rpc; UNKNOWN_CODE if the request table has no such code. response: the response
    code, or the v2 code. ok: whether the response is no error ("no message found" is none). topic, group, key: from the
    client, not validated, at most MAX_NAME_LENGTH characters. key: the message's first key, else its message group; to
    be stored as a hash only. broker, queue: the last ones that the request was sent to. messages: number of messages
    sent, delivered or acknowledged. bytes_in, bytes_out: sizes of bodies. started: in seconds of `time.monotonic`.
    seconds: latency; broker_seconds: the brokers' part of it. attempt: the highest delivery attempt in the reply.
    delay_ms: the requested delivery delay. trace_id: set if the request is sampled.

    Queue, key and delay are read from the request when an observer asks for the first one of them (`defer`).
    """

    __slots__ = (
        "_delay_ms",
        "_key",
        "_queue",
        "_read",
        "_request",
        "attempt",
        "broker",
        "broker_seconds",
        "bytes_in",
        "bytes_out",
        "channel",
        "code",
        "group",
        "messages",
        "ok",
        "peer",
        "protocol",
        "response",
        "seconds",
        "started",
        "topic",
        "trace_id",
    )

    def __init__(
        self,
        protocol: ChannelProtocol,
        code: str,
        response: int,
        ok: bool,
        peer: Peer,
        channel: Channel | None,
        started: float,
        seconds: float,
    ) -> None:
        self.protocol = protocol
        self.code = code
        self.response = response
        self.ok = ok
        self.peer = peer
        self.channel = channel
        self.started = started
        self.seconds = seconds
        self.topic: str | None = None
        self.group: str | None = None
        self.broker: str | None = None
        self.messages = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.broker_seconds: float | None = None
        self.attempt: int | None = None
        self.trace_id: str | None = None
        self._queue: int | None = None
        self._key: str | None = None
        self._delay_ms: int | None = None
        self._read: Callable[[Observation, Any], None] | None = None
        self._request: object = None

    def defer(self, read: "Callable[[Observation, Any], None]", request: object) -> None:
        """Let `read` set queue, key and delay from the request when they are needed."""
        self._read, self._request = read, request

    def complete(self) -> None:
        """Read the deferred facts and release the request. Call it before the observation is kept."""
        read = self._read
        if read is not None:
            request, self._read, self._request = self._request, None, None
            read(self, request)

    @property
    def queue(self) -> int | None:
        self.complete()
        return self._queue

    @queue.setter
    def queue(self, queue: int | None) -> None:
        self._queue = queue

    @property
    def key(self) -> str | None:
        self.complete()
        return self._key

    @key.setter
    def key(self, key: str | None) -> None:
        self._key = key

    @property
    def delay_ms(self) -> int | None:
        self.complete()
        return self._delay_ms

    @delay_ms.setter
    def delay_ms(self, delay_ms: int | None) -> None:
        self._delay_ms = delay_ms


# Called on the event loop for every request: must be fast and must not block.
Observer = Callable[[Observation], None]


def publish(observers: Iterable[Observer], observation: Observation) -> None:
    """Call every observer.

    Exceptions are logged and affect neither the request nor the other observers: a stored message whose send failed
    here would be sent again.
    """
    for observer in observers:
        try:
            observer(observation)
        except Exception:
            _log.exception("observer failed")


def identity(channel: Channel | None) -> Identity:
    """Return the identity of a channel's client."""
    return UNIDENTIFIED if channel is None else channel.identity


def describe(observation: Observation) -> dict[str, Any]:
    """Return the fields of an observation that may be logged or shown, without times.

    The key is not among them: keys may be customers' names.
    """
    client = identity(observation.channel)
    return {
        "protocol": observation.protocol,
        "code": observation.code,
        "response": observation.response,
        "ok": observation.ok,
        "address": str(observation.peer.address),
        "client_id": client.client_id,
        "language": client.language,
        "version": client.version,
        "topic": observation.topic,
        "group": observation.group,
        "broker": observation.broker,
        "queue": observation.queue,
        "messages": observation.messages,
        "bytes_in": observation.bytes_in,
        "bytes_out": observation.bytes_out,
        "trace_id": observation.trace_id,
    }
