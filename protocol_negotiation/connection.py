"""One accepted connection, from the accept until it belongs to the protocol that it speaks."""

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast
from weakref import WeakSet

from protocol_negotiation.detect import Protocol
from protocol_negotiation.negotiation import HandOver, Negotiation, Outcome, Policy, Refused, StartTls
from protocol_negotiation.options import ListenerOptions
from protocol_negotiation.peer import HostPort, Peer, Tls, socket_address
from protocol_negotiation.refusal_log import RefusalLog
from protocol_negotiation.tls import TlsSource, tls_facts

# How to make the protocol that a connection is handed over to. A BufferedProtocol will do as well.
Handler = Callable[[Peer], asyncio.BaseProtocol]
Handlers = Mapping[Protocol, Handler]
# Called once for every accepted connection: how it ended, the peer as far as it is known, and up to 16 first bytes.
OnOutcome = Callable[[Outcome, Peer, bytes], None]

_SWEEP_INTERVAL = 0.1
_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class Reception:
    """What the connections of one listener share."""

    options: ListenerOptions
    policy: Policy
    handlers: Handlers
    tls: TlsSource | None
    on_outcome: OnOutcome
    loop: asyncio.AbstractEventLoop
    log: RefusalLog
    tls_failures: Counter[str]
    negotiating: "set[Connection]" = field(default_factory=set)
    handshakes: set[asyncio.Task[None]] = field(default_factory=set)
    # The only trace of a connection after its hand-over: it costs the connection nothing and keeps nothing alive.
    transports: "WeakSet[asyncio.BaseTransport]" = field(default_factory=WeakSet)
    next_sweep: float = 0.0

    def admit(self, transport: asyncio.Transport) -> bool:
        """Whether there is room for one more connection, which then counts."""
        if len(self.transports) >= self.options.max_connections:
            self._sweep()
            if len(self.transports) >= self.options.max_connections:
                return False
        self.transports.add(transport)
        return True

    def open_connections(self) -> int:
        return sum(not transport.is_closing() for transport in self.transports)

    def _sweep(self) -> None:
        # Closed transports stay until they are collected. A flood must not make us look for them at every accept.
        now = self.loop.time()
        if now >= self.next_sweep:
            self.next_sweep = now + _SWEEP_INTERVAL
            self.transports = WeakSet(transport for transport in self.transports if not transport.is_closing())


class Connection(asyncio.Protocol):
    """Feeds a `Negotiation` and does what it decides.

    It is the transport's protocol until the hand-over and, once TLS is started, the protocol inside it instead.
    After the hand-over nothing refers to it any more.
    """

    __slots__ = (
        "_ciphertext",
        "_concluded",
        "_deadline",
        "_handshaking",
        "_local",
        "_lost",
        "_negotiation",
        "_outer",
        "_plaintext",
        "_receive",
        "_reception",
        "_sender",
        "_successor",
        "_tls",
        "_transport",
    )

    # The transport to hand over, and the one that has the socket: the same without TLS.
    _transport: asyncio.Transport
    _outer: asyncio.Transport
    _negotiation: Negotiation
    _sender: HostPort
    _local: HostPort

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._receive: Callable[[bytes], None] = self._negotiate
        self._deadline: asyncio.TimerHandle | None = None
        self._ciphertext: list[bytes] = []
        self._plaintext: list[bytes] = []
        self._tls: Tls | None = None
        self._handshaking = False
        self._concluded = False
        self._lost = False
        self._successor: asyncio.BaseProtocol | None = None

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        reception = self._reception
        self._transport = self._outer = cast(asyncio.Transport, transport)
        self._sender = socket_address(transport.get_extra_info("peername"))
        self._local = socket_address(transport.get_extra_info("sockname"))
        self._negotiation = Negotiation(reception.policy, self._sender)
        if not reception.admit(self._outer):
            self._refuse(Refused(Outcome.OVERLOAD, f"{reception.options.max_connections} connections are open"))
            return
        reception.negotiating.add(self)
        self._deadline = reception.loop.call_later(reception.options.negotiation_timeout, self._expire)

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def eof_received(self) -> None:
        """Nothing can be negotiated with half a connection: None lets the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._successor is not None:
            # The SSL protocol may have scheduled this call just before the hand-over.
            self._successor.connection_lost(exc)
        elif self._handshaking:
            reason = f"the connection was lost in the handshake: {exc or 'closed'}"
            self._conclude(Refused(Outcome.TLS_FAILED, reason, _LOST))
        else:
            self._conclude(Refused(Outcome.CLOSED, "the client left"))

    # Decisions.

    def abandon(self) -> None:
        """Closes a connection whose negotiation is not finished."""
        self._refuse(Refused(Outcome.CLOSED, "the listener was aborted"))

    def _negotiate(self, data: bytes) -> None:
        match self._negotiation.feed(data):
            case HandOver() as decision:
                self._hand_over(decision)
            case StartTls() as decision:
                self._start_tls(decision)
            case Refused() as decision:
                self._refuse(decision)

    def _hand_over(self, decision: HandOver) -> None:
        """The transport becomes the handler's, which first gets what was read already."""
        transport = self._transport
        peer = self._peer()
        self._conclude(decision, peer)
        try:
            successor = self._reception.handlers[decision.protocol](peer)
        except BaseException:
            self._outer.abort()
            raise
        self._successor = successor
        # A client may send and leave at once: its transport is closing, and what it sent counts all the same.
        was_closing = transport.is_closing()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if was_closing or not transport.is_closing():
            replay(successor, decision.data)

    def _refuse(self, decision: Refused) -> None:
        self._conclude(decision)
        self._outer.abort()

    def _expire(self) -> None:
        if self._handshaking:
            self._refuse(Refused(Outcome.TLS_FAILED, "the handshake was not finished before the deadline", _TIMEOUT))
        else:
            self._refuse(self._negotiation.expired())

    def _conclude(self, decision: HandOver | Refused, peer: Peer | None = None) -> None:
        if self._concluded:
            return
        self._concluded = True
        # Also ends the cycle of references, so that no garbage collection is needed to free this object.
        self._receive = _ignore
        if self._deadline is not None:
            self._deadline.cancel()
        reception = self._reception
        reception.negotiating.discard(self)
        peer = peer or self._peer()
        if isinstance(decision, Refused):
            if decision.cause:
                reception.tls_failures[decision.cause] += 1
            reception.log.refused(decision.outcome, peer, self._negotiation.first_bytes, decision.reason)
        reception.on_outcome(decision.outcome, peer, self._negotiation.first_bytes)

    def _peer(self) -> Peer:
        proxy, options = self._negotiation.proxy, self._reception.options
        source = proxy.source if proxy is not None else None
        destination = proxy.destination if proxy is not None else None
        return Peer(
            address=source or self._sender,
            local=destination or self._local,
            via=self._sender if source is not None else None,
            listener=options.name,
            broker=options.broker,
            tls=self._tls,
            tlvs=proxy.tlvs if proxy is not None else {},
            number=next(_numbers),
        )

    # TLS. The ClientHello has been read already, so it is given to the SSL protocol by hand.

    def _start_tls(self, decision: StartTls) -> None:
        self._handshaking = True
        self._ciphertext.append(decision.data)
        self._receive = self._ciphertext.append
        loop = self._reception.loop
        handshake = loop.create_task(self._handshake())
        self._reception.handshakes.add(handshake)
        handshake.add_done_callback(self._handshake_ended)
        # In the loop's next turn the task's first step installs the SSL protocol and schedules its connection_made,
        # then this callback schedules the feeding, which thus comes after that.
        loop.call_soon(loop.call_soon, self._feed_handshake)

    async def _handshake(self) -> None:
        reception = self._reception
        if self._concluded or self._outer.is_closing() or reception.tls is None:
            return
        # start_tls installs the SSL protocol before it waits: from now on what we receive is decrypted.
        self._receive = self._plaintext.append
        # uvloop keeps the data_received of the protocol before an SSL protocol for the connection's whole life.
        self._outer.set_protocol(_UNIDENTIFIED)
        timeout = reception.options.negotiation_timeout
        try:
            transport = await reception.loop.start_tls(
                self._outer,
                self,
                reception.tls.context,
                server_side=True,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=timeout,
            )
        except (OSError, RuntimeError) as error:
            self._refuse(Refused(Outcome.TLS_FAILED, str(error) or type(error).__name__, _cause(error)))
            return
        if not self._concluded:
            self._encrypted(transport)

    def _feed_handshake(self) -> None:
        ciphertext, self._ciphertext = b"".join(self._ciphertext), []
        ssl_protocol = self._outer.get_protocol()
        if ssl_protocol is not self and not self._outer.is_closing():
            replay(ssl_protocol, ciphertext)

    def _encrypted(self, transport: asyncio.Transport | None) -> None:
        ssl_object = transport.get_extra_info("ssl_object") if transport is not None else None
        if transport is None or ssl_object is None:
            self._refuse(Refused(Outcome.TLS_FAILED, "the connection was lost in the handshake", _LOST))
            return
        self._transport = transport
        self._tls = tls_facts(ssl_object)
        self._handshaking = False
        self._negotiation.encrypted()
        self._receive = self._negotiate
        if self._plaintext:
            plaintext, self._plaintext = b"".join(self._plaintext), []
            self._negotiate(plaintext)

    def _handshake_ended(self, handshake: asyncio.Task[None]) -> None:
        self._reception.handshakes.discard(handshake)
        error = None if handshake.cancelled() else handshake.exception()
        if error is not None:
            self._outer.abort()
            self._reception.loop.call_exception_handler(
                {"message": "hand-over after a TLS handshake failed", "exception": error, "transport": self._outer}
            )


# What became of a handshake that OpenSSL had nothing to say about.
_LOST, _TIMEOUT = "lost", "timeout"


def _cause(error: OSError | RuntimeError) -> str:
    """OpenSSL's own word for what went wrong: there are a few hundred of them."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "unknown").lower()
    return _LOST if isinstance(error, ConnectionError) else "unknown"


_UNIDENTIFIED = asyncio.Protocol()


def _ignore(_: bytes) -> None:
    """For what arrives after a refusal."""


def replay(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Gives `data` to a protocol of either kind as if the transport had received it."""
    if not data:
        return
    get_buffer = getattr(protocol, "get_buffer", None)
    if get_buffer is None:
        cast(asyncio.Protocol, protocol).data_received(data)
        return
    buffered = cast(asyncio.BufferedProtocol, protocol)
    rest = memoryview(data)
    while rest:
        buffer = memoryview(get_buffer(len(rest))).cast("B")
        size = min(len(buffer), len(rest))
        buffer[:size] = rest[:size]
        buffered.buffer_updated(size)
        rest = rest[size:]
