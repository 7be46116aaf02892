"""One accepted connection, from the accept to its hand-over to a protocol's handler."""

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
from protocol_negotiation.tls import TlsSource, negotiated_tls

# Creates the protocol that a connection is handed over to; it may be a BufferedProtocol.
Handler = Callable[[Peer], asyncio.BaseProtocol]
Handlers = Mapping[Protocol, Handler]
# Called once per accepted connection with the outcome, the peer as far as it is known, and up to 16 first bytes.
OnOutcome = Callable[[Outcome, Peer, bytes], None]

_SWEEP_INTERVAL = 0.1
_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class ListenerState:
    """State that the connections of one listener share."""

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
    # Weak, so that a connection has no cost and no reference after its hand-over.
    transports: "WeakSet[asyncio.BaseTransport]" = field(default_factory=WeakSet)
    next_sweep: float = 0.0

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count one more connection; return False if the limit is reached."""
        if len(self.transports) >= self.options.max_connections:
            self._sweep()
            if len(self.transports) >= self.options.max_connections:
                return False
        self.transports.add(transport)
        return True

    def open_connections(self) -> int:
        """Return the number of open connections."""
        return sum(not transport.is_closing() for transport in self.transports)

    def _sweep(self) -> None:
        # Closed transports stay until they are collected; a flood must not sweep at every accept.
        now = self.loop.time()
        if now >= self.next_sweep:
            self.next_sweep = now + _SWEEP_INTERVAL
            self.transports = WeakSet(transport for transport in self.transports if not transport.is_closing())


class Connection(asyncio.Protocol):
    """Feeds a `Negotiation` and carries out its decisions.

    It is the transport's protocol until the hand-over; once TLS is started, it is the protocol inside TLS. After the
    hand-over, nothing refers to it.
    """

    __slots__ = (
        "_ciphertext",
        "_concluded",
        "_deadline",
        "_handshaking",
        "_listener",
        "_local",
        "_lost",
        "_negotiation",
        "_outer",
        "_plaintext",
        "_receive",
        "_sender",
        "_successor",
        "_tls",
        "_transport",
    )

    # The transport to hand over, and the transport of the socket; the same without TLS.
    _transport: asyncio.Transport
    _outer: asyncio.Transport
    _negotiation: Negotiation
    _sender: HostPort
    _local: HostPort

    def __init__(self, listener: ListenerState) -> None:
        self._listener = listener
        self._receive: Callable[[bytes], None] = self._negotiate
        self._deadline: asyncio.TimerHandle | None = None
        self._ciphertext: list[bytes] = []
        self._plaintext: list[bytes] = []
        self._tls: Tls | None = None
        self._handshaking = False
        self._concluded = False
        self._lost = False
        self._successor: asyncio.BaseProtocol | None = None

    # Transport callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        listener = self._listener
        self._transport = self._outer = cast(asyncio.Transport, transport)
        self._sender = socket_address(transport.get_extra_info("peername"))
        self._local = socket_address(transport.get_extra_info("sockname"))
        self._negotiation = Negotiation(listener.policy, self._sender)
        if not listener.admit(self._outer):
            self._refuse(Refused(Outcome.OVERLOAD, f"{listener.options.max_connections} connections are open"))
            return
        listener.negotiating.add(self)
        self._deadline = listener.loop.call_later(listener.options.negotiation_timeout, self._expire)

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def eof_received(self) -> None:
        """Let the transport close (by returning None), because negotiation needs both directions."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._successor is not None:
            # The SSL protocol may have scheduled this call before the hand-over.
            self._successor.connection_lost(exc)
        elif self._handshaking:
            reason = f"the connection was lost in the handshake: {exc or 'closed'}"
            self._conclude(Refused(Outcome.TLS_FAILED, reason, _LOST))
        else:
            self._conclude(Refused(Outcome.CLOSED, "the client closed the connection"))

    # Decisions.

    def abort(self) -> None:
        """Close the connection, whose negotiation has not ended."""
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
        """Hand the transport over to the handler, which first gets the bytes read so far."""
        transport = self._transport
        peer = self._peer()
        self._conclude(decision, peer)
        try:
            successor = self._listener.handlers[decision.protocol](peer)
        except BaseException:
            self._outer.abort()
            raise
        self._successor = successor
        # A client may send and close at once; its bytes are then delivered to the handler, too.
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
        # Also breaks the reference cycle, so that this object is freed without garbage collection.
        self._receive = _ignore
        if self._deadline is not None:
            self._deadline.cancel()
        listener = self._listener
        listener.negotiating.discard(self)
        peer = peer or self._peer()
        if isinstance(decision, Refused):
            if decision.cause:
                listener.tls_failures[decision.cause] += 1
            listener.log.refused(decision.outcome, peer, self._negotiation.first_bytes, decision.reason)
        listener.on_outcome(decision.outcome, peer, self._negotiation.first_bytes)

    def _peer(self) -> Peer:
        proxy, options = self._negotiation.proxy, self._listener.options
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

    # TLS. The ClientHello has been read already and is fed to the SSL protocol.

    def _start_tls(self, decision: StartTls) -> None:
        self._handshaking = True
        self._ciphertext.append(decision.data)
        self._receive = self._ciphertext.append
        loop = self._listener.loop
        handshake = loop.create_task(self._handshake())
        self._listener.handshakes.add(handshake)
        handshake.add_done_callback(self._handshake_ended)
        # In the loop's next iteration, the first step of the task installs the SSL protocol and schedules its
        # connection_made; then this callback schedules the feeding, which thus runs after connection_made.
        loop.call_soon(loop.call_soon, self._feed_handshake)

    async def _handshake(self) -> None:
        listener = self._listener
        if self._concluded or self._outer.is_closing() or listener.tls is None:
            return
        # start_tls installs the SSL protocol before it waits, so that data received from now on is decrypted.
        self._receive = self._plaintext.append
        # uvloop keeps the data_received of the protocol before the SSL protocol until the connection ends.
        self._outer.set_protocol(_UNIDENTIFIED)
        timeout = listener.options.negotiation_timeout
        try:
            transport = await listener.loop.start_tls(
                self._outer,
                self,
                listener.tls.context,
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
        self._tls = negotiated_tls(ssl_object)
        self._handshaking = False
        self._negotiation.encrypted()
        self._receive = self._negotiate
        if self._plaintext:
            plaintext, self._plaintext = b"".join(self._plaintext), []
            self._negotiate(plaintext)

    def _handshake_ended(self, handshake: asyncio.Task[None]) -> None:
        self._listener.handshakes.discard(handshake)
        error = None if handshake.cancelled() else handshake.exception()
        if error is not None:
            self._outer.abort()
            self._listener.loop.call_exception_handler(
                {"message": "hand-over after a TLS handshake failed", "exception": error, "transport": self._outer}
            )


# Causes of failed handshakes without an error of OpenSSL.
_LOST, _TIMEOUT = "lost", "timeout"


def _cause(error: OSError | RuntimeError) -> str:
    """Return OpenSSL's reason of a failure, one of a few hundred words."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "unknown").lower()
    return _LOST if isinstance(error, ConnectionError) else "unknown"


_UNIDENTIFIED = asyncio.Protocol()


def _ignore(_: bytes) -> None:
    """Ignore bytes received after a refusal."""


def replay(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Deliver `data` to a protocol of either kind as if the transport had received it."""
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
