"""One accepted connection, from the accept to its hand-over to a protocol's handler."""

import asyncio
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from weakref import WeakSet

from protocol_negotiation.address_limit import AddressLimit, source_of
from protocol_negotiation.certificate_expiry import CertificateExpiry
from protocol_negotiation.detect import Protocol
from protocol_negotiation.handshake_failure import EXPIRED, FLOOD, LOST, TIMEOUT, explain
from protocol_negotiation.handshake_queue import HandshakeQueue
from protocol_negotiation.negotiation import HandOver, Negotiation, Outcome, Policy, Refused, StartTls
from protocol_negotiation.options import ListenerOptions
from protocol_negotiation.peer import HostPort, Peer, Tls, socket_address
from protocol_negotiation.refusal_log import RefusalLog
from protocol_negotiation.standstill import GRACE_SECONDS, is_late
from protocol_negotiation.tls_files import ContextSource
from protocol_negotiation.tls_peer import negotiated_tls
from protocol_negotiation.tls_reads import CountingSslObject, TlsReads

# Creates the protocol that a connection is handed over to; it may be a BufferedProtocol.
Handler = Callable[[Peer], asyncio.BaseProtocol]
Handlers = Mapping[Protocol, Handler]
# Creates the protocol that rejects a connection with an error text, and then closes it.
Rejectors = Mapping[Protocol, Callable[[str], asyncio.BaseProtocol]]
# Called once per accepted connection with the outcome, the peer as far as it is known, and up to 16 first bytes.
OnOutcome = Callable[[Outcome, Peer, bytes], None]

_SWEEP_INTERVAL = 0.1
# Connections over the limit of their address that get a response, per second and listener; others are closed at once.
_MAX_REJECTIONS_PER_SECOND = 100
# Seconds for their first bytes.
_REJECTION_TIMEOUT = 1.0
# Bytes of a ClientHello that waits for a handshake: one TLS record (RFC 8446 section 5.1).
_MAX_WAITING_HELLO = 5 + 2**14
_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class ListenerState:
    """State that the connections of one listener share."""

    options: ListenerOptions
    policy: Policy
    handlers: Handlers
    rejectors: Rejectors
    tls: ContextSource[Any] | None
    on_outcome: OnOutcome
    loop: asyncio.AbstractEventLoop
    log: RefusalLog
    tls_failures: Counter[str]
    addresses: AddressLimit
    handshake_queue: HandshakeQueue
    certificate_expiry: CertificateExpiry
    # Connections with this descriptor or a higher one are refused.
    first_reserved_descriptor: int
    # The oldest first. A dict would take longer and longer to find its first key.
    negotiating: "OrderedDict[Connection, None]" = field(default_factory=OrderedDict)
    handshakes: set[asyncio.Task[None]] = field(default_factory=set)
    # Weak, so that a connection has no cost and no reference after its hand-over.
    transports: "WeakSet[asyncio.BaseTransport]" = field(default_factory=WeakSet)
    next_sweep: float = 0.0
    # The reason for which new connections are refused.
    refusal: str | None = None
    rejection_second: int = 0
    rejections: int = 0

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count one more connection; return False if the limit is reached."""
        if len(self.transports) >= self.options.max_connections:
            self._sweep()
            if len(self.transports) >= self.options.max_connections:
                return False
        self.transports.add(transport)
        return True

    def begin_negotiation(self, connection: "Connection") -> None:
        """Add a connection in negotiation. Above the limit, close the oldest: a client's own takes round trips only."""
        if len(self.negotiating) >= self.options.max_negotiations:
            next(iter(self.negotiating)).shed(f"{len(self.negotiating)} connections are in negotiation")
        self.negotiating[connection] = None

    def may_reject(self) -> bool:
        """Count one more response to a connection over the limit of its address; return False if there are too many."""
        second = int(self.loop.time())
        if second != self.rejection_second:
            self.rejection_second, self.rejections = second, 0
        self.rejections += 1
        return self.rejections <= _MAX_REJECTIONS_PER_SECOND

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
        "_admitted",
        "_ciphertext",
        "_concluded",
        "_deadline",
        "_handshaking",
        "_listener",
        "_local",
        "_lost",
        "_negotiation",
        "_outer",
        "_over_address_limit",
        "_plaintext",
        "_reads",
        "_receive",
        "_sender",
        "_successor",
        "_tls",
        "_transport",
        "_waiting",
    )

    # The transport to hand over, and the transport of the socket; the same without TLS.
    _transport: asyncio.Transport
    _outer: asyncio.Transport
    _negotiation: Negotiation
    _reads: TlsReads
    _sender: HostPort
    _local: HostPort

    def __init__(self, listener: ListenerState) -> None:
        self._listener = listener
        self._receive: Callable[[bytes], None] = self._negotiate
        self._deadline: asyncio.TimerHandle | None = None
        self._ciphertext: list[bytes] = []
        self._plaintext: list[bytes] = []
        self._tls: Tls | None = None
        # Counted towards the limit of its address, or exempt.
        self._admitted = False
        self._over_address_limit = False
        self._handshaking = False
        # For a slot of a TLS handshake.
        self._waiting = False
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
        if listener.refusal is not None:
            self._refuse(Refused(Outcome.OVERLOAD, listener.refusal))
            return
        if transport.get_extra_info("socket").fileno() >= listener.first_reserved_descriptor:
            reason = "clients have their share of the process's descriptors (ulimit -n)"
            self._refuse(Refused(Outcome.OVERLOAD, reason))
            return
        if not listener.admit(self._outer):
            self._refuse(Refused(Outcome.OVERLOAD, f"{listener.options.max_connections} connections are open"))
            return
        timeout = listener.options.negotiation_timeout
        if not self._admit_address():
            if not listener.may_reject():
                self._refuse(self._address_refusal())
                return
            self._over_address_limit = True
            timeout = min(timeout, _REJECTION_TIMEOUT)
        listener.begin_negotiation(self)
        due = listener.loop.time() + timeout
        self._deadline = listener.loop.call_at(due, self._check_deadline, due)

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
            self._conclude(Refused(Outcome.TLS_FAILED, reason, LOST))
        else:
            self._conclude(Refused(Outcome.CLOSED, "the client closed the connection"))

    # Decisions.

    def abort(self) -> None:
        """Close the connection, whose negotiation has not ended."""
        self._refuse(Refused(Outcome.CLOSED, "the listener was aborted"))

    def shed(self, reason: str) -> None:
        """Close the connection, because the listener is overloaded."""
        self._refuse(Refused(Outcome.OVERLOAD, reason))

    def _negotiate(self, data: bytes) -> None:
        decision = self._negotiation.feed(data)
        if decision is None:
            return
        if isinstance(decision, Refused):
            self._refuse(decision)
        elif self._over_address_limit:
            self._reject(decision)
        elif not self._admit_address():
            # The address is that of a PROXY header.
            if self._listener.may_reject():
                self._reject(decision)
            else:
                self._refuse(self._address_refusal())
        elif isinstance(decision, HandOver):
            self._hand_over(decision)
        else:
            self._start_tls(decision)

    def _admit_address(self) -> bool:
        """Count the connection with its source address, if it is known; return False if the limit is reached."""
        source = None if self._admitted else self._negotiation.source
        if source is None:
            return True
        self._admitted = self._listener.addresses.admit(self._outer, source)
        return self._admitted

    def _address_refusal(self) -> Refused:
        source = self._negotiation.source or self._sender
        limit = self._listener.addresses.limit
        return Refused(Outcome.ADDRESS_LIMIT, f"{limit} connections from {source.host} are open")

    def _reject(self, decision: HandOver | StartTls) -> None:
        """Reject a connection over the limit of its address: in its protocol, unless that is inside TLS or has none."""
        protocol = decision.protocol if isinstance(decision, HandOver) else None
        rejector = None if protocol is None else self._listener.rejectors.get(protocol)
        if rejector is None or isinstance(decision, StartTls):
            self._refuse(self._address_refusal())
            return
        self._conclude(self._address_refusal())
        limit = self._listener.addresses.limit
        self._install(rejector(f"connection limit of {limit} per address reached"), decision.data)

    def _hand_over(self, decision: HandOver) -> None:
        """Hand the transport over to the handler, which first gets the bytes read so far."""
        peer = self._peer()
        self._conclude(decision, peer)
        try:
            successor = self._listener.handlers[decision.protocol](peer)
        except BaseException:
            self._outer.abort()
            raise
        self._install(successor, decision.data)

    def _install(self, successor: asyncio.BaseProtocol, data: bytes) -> None:
        transport = self._transport
        self._successor = successor
        # A client may send and close at once; its bytes are then delivered to the handler, too.
        was_closing = transport.is_closing()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if was_closing or not transport.is_closing():
            replay(successor, data)

    def _refuse(self, decision: Refused) -> None:
        self._conclude(decision)
        self._outer.abort()

    def _check_deadline(self, due: float) -> None:
        loop = self._listener.loop
        if is_late(loop, due):
            self._deadline = loop.call_later(GRACE_SECONDS, self._expire)
        else:
            self._expire()

    def _expire(self) -> None:
        if self._waiting:
            self.shed("too many TLS handshakes before the deadline")
        elif self._handshaking:
            self._refuse(Refused(Outcome.TLS_FAILED, "the handshake was not finished before the deadline", TIMEOUT))
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
        listener.negotiating.pop(self, None)
        self._leave_handshakes()
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
        if self._listener.handshake_queue.enter(self, self._handshake_source()):
            return
        if len(decision.data) > _MAX_WAITING_HELLO:
            self.shed("a long ClientHello while TLS handshakes wait")
            return
        self._waiting = True
        self._outer.pause_reading()

    def begin_handshake(self) -> None:
        """Start the TLS handshake, which has a slot of the queue."""
        if self._waiting:
            self._waiting = False
            if not self._outer.is_closing():
                self._outer.resume_reading()
        loop = self._listener.loop
        handshake = loop.create_task(self._handshake())
        self._listener.handshakes.add(handshake)
        handshake.add_done_callback(self._handshake_ended)
        # In the loop's next iteration, the first step of the task installs the SSL protocol and schedules its
        # connection_made; then this callback schedules the feeding, which thus runs after connection_made.
        loop.call_soon(loop.call_soon, self._feed_handshake)

    def evict_handshake(self) -> None:
        """Close the connection, whose TLS handshake is slow while others wait."""
        self.shed("a slow TLS handshake while others wait")

    def _handshake_source(self) -> str | int | None:
        source = self._negotiation.source
        return None if source is None else source_of(source)

    def _leave_handshakes(self) -> None:
        if self._handshaking:
            self._handshaking = self._waiting = False
            self._listener.handshake_queue.leave(self, self._handshake_source())

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
            cause, reason = explain(error)
            self._refuse(Refused(Outcome.TLS_FAILED, reason, cause))
            return
        if not self._concluded:
            self._encrypted(transport)

    def _feed_handshake(self) -> None:
        ciphertext, self._ciphertext = b"".join(self._ciphertext), []
        if not self._concluded and not self._outer.is_closing():
            self._reads = TlsReads(self._listener.loop, self._outer, self._outer.get_protocol(), self._refuse_flood)
            self._outer.set_protocol(self._reads)
            replay(self._reads, ciphertext)

    def _refuse_flood(self, reason: str) -> None:
        self._refuse(Refused(Outcome.TLS_FAILED, reason, FLOOD))

    def _encrypted(self, transport: asyncio.Transport | None) -> None:
        ssl_object = transport.get_extra_info("ssl_object") if transport is not None else None
        if transport is None or ssl_object is None:
            self._refuse(Refused(Outcome.TLS_FAILED, "the connection was lost in the handshake", LOST))
            return
        self._transport = transport
        self._tls = negotiated_tls(ssl_object)
        certificate = self._tls.certificate
        # OpenSSL does not look at the times of the certificate of a resumed session.
        expiry = self._listener.certificate_expiry
        if certificate is not None and not expiry.add(self._outer, certificate, ssl_object):
            self._refuse(Refused(Outcome.TLS_FAILED, "the client's certificate has expired", EXPIRED))
            return
        self._leave_handshakes()
        on_flood = partial(self._listener.log.refused, Outcome.TLS_FAILED, self._peer(), b"")
        self._reads.end_handshake(transport, cast(CountingSslObject, ssl_object), on_flood)
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
