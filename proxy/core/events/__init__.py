"""The observation: all that is kept of a request once it has been answered.

Every remoting request and every rpc makes one, and every observer gets it: metrics, traffic records, taps. The commands
that an rpc sends through the core are its own work and make none.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec

from protocol_negotiation.peer import Peer
from proxy.core.channel import UNIDENTIFIED, Channel, ChannelProtocol, Identity
from remoting.requests import REQUESTS

_log = logging.getLogger("gantry.messaging")

_P = ParamSpec("_P")

# Characters that are kept of names that clients make up, which may be of any length.
MAX_NAME_LENGTH = 255
# Codes and rpcs that take as long as their client wants them to.
LONG_POLLS = frozenset(spec.name for spec in REQUESTS.values() if spec.poll is not None) | {
    "ReceiveMessage",
    "PullMessage",
}


class Observation:
    """One request, answered.

    code: the request code's name, or the rpc's; "unknown" for numbers that the request table lacks. response: the
    response code, or the v2 code; ok: it is no error (that nothing was found is none). topic, group: as the client
    named them, unchecked but cut to MAX_NAME_LENGTH, as key is. broker, queue: where it was last sent. messages: sent,
    delivered or acknowledged. bytes_in, bytes_out: of bodies. started: of `time.monotonic`; seconds: until the answer;
    broker_seconds: of these, the brokers' part. attempt: the highest delivery attempt of the answer. delay_ms: how far
    ahead a delivery was set. key: the message's first key, else its message group: nothing to write down but as a
    hash. trace_id: of a sampled request.
    """

    __slots__ = (
        "attempt",
        "broker",
        "broker_seconds",
        "bytes_in",
        "bytes_out",
        "channel",
        "code",
        "delay_ms",
        "group",
        "key",
        "messages",
        "ok",
        "peer",
        "protocol",
        "queue",
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
        self.queue: int | None = None
        self.messages = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.broker_seconds: float | None = None
        self.attempt: int | None = None
        self.delay_ms: int | None = None
        self.key: str | None = None
        self.trace_id: str | None = None


# Called on the event loop for every request: nothing slow.
Observer = Callable[[Observation], None]


def notify(
    observers: Iterable[Observer], observe: Callable[_P, Observation], *args: _P.args, **kwargs: _P.kwargs
) -> None:
    """Observe, and tell everybody.

    What fails here costs neither the request nor other observers anything: a send that was stored must not look as if
    it was not, or it is sent again.
    """
    try:
        observation = observe(*args, **kwargs)
    except Exception:
        _log.exception("a request could not be observed")
        return
    for observer in observers:
        try:
            observer(observation)
        except Exception:
            _log.exception("an observer failed")


def identity(channel: Channel | None) -> Identity:
    """Who is at the other end of a channel, as it says itself."""
    return UNIDENTIFIED if channel is None else channel.identity


def describe(seen: Observation) -> dict[str, Any]:
    """What anybody may be told of a request, but for its times. Its key is not: keys may be customers' names."""
    who = identity(seen.channel)
    return {
        "protocol": seen.protocol,
        "code": seen.code,
        "response": seen.response,
        "ok": seen.ok,
        "address": str(seen.peer.address),
        "client_id": who.client_id,
        "language": who.language,
        "version": who.version,
        "topic": seen.topic,
        "group": seen.group,
        "broker": seen.broker,
        "queue": seen.queue,
        "messages": seen.messages,
        "bytes_in": seen.bytes_in,
        "bytes_out": seen.bytes_out,
        "trace_id": seen.trace_id,
    }
