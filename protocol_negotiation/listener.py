"""The listener: binds sockets, accepts connections and negotiates their protocols."""

import asyncio
import errno
import os
import socket
import stat
import sys
from collections import Counter
from typing import Any

from protocol_negotiation.address_limit import AddressLimit
from protocol_negotiation.certificate_expiry import CertificateExpiry
from protocol_negotiation.connection import Connection, Handlers, ListenerState, OnOutcome, Rejectors
from protocol_negotiation.descriptor_share import first_reserved_descriptor
from protocol_negotiation.handshake_queue import HandshakeQueue
from protocol_negotiation.negotiation import HANDED_OVER, Policy
from protocol_negotiation.options import ListenerOptions
from protocol_negotiation.peer import HostPort, socket_address
from protocol_negotiation.refusal_log import RefusalLog
from protocol_negotiation.tls import TlsMode
from protocol_negotiation.tls_files import ContextSource

__all__ = ["Handlers", "Listener", "ListenerOptions", "OnOutcome"]


class Listener:
    """Accepts connections and hands each over to the handler of its protocol.

    A protocol without a handler is refused as unknown. `on_outcome` is called once per accepted connection.
    `rejectors` make the protocols of plaintext connections over the limit of their source address; without one, such
    a connection is closed. Raises ValueError if `handlers` contains a protocol that cannot be handed over, or if TLS is
    enabled without a source.
    """

    def __init__(
        self,
        options: ListenerOptions,
        handlers: Handlers,
        tls: ContextSource[Any] | None,
        on_outcome: OnOutcome,
        rejectors: Rejectors | None = None,
    ) -> None:
        unsupported = handlers.keys() - HANDED_OVER.keys()
        if unsupported:
            raise ValueError(
                f"listener {options.name}: connections cannot be handed over as {', '.join(sorted(unsupported))}"
            )
        if options.tls_mode is not TlsMode.DISABLED and tls is None:
            raise ValueError(f"listener {options.name}: TLS mode {options.tls_mode} needs a certificate and key")
        self.options = options
        self._policy = Policy(options.tls_mode, options.trusted_proxies, frozenset(handlers))
        self._handlers = handlers
        self._rejectors = rejectors or {}
        self._tls = tls
        self._on_outcome = on_outcome
        self._state: ListenerState | None = None
        # Failed TLS handshakes by OpenSSL's reason, "lost" or "timeout".
        self.tls_failures: Counter[str] = Counter()
        self._servers: list[asyncio.AbstractServer] = []
        self._addresses: tuple[HostPort, ...] = ()
        self._socket_file: tuple[str, int, int] | None = None

    @property
    def addresses(self) -> tuple[HostPort, ...]:
        """The bound addresses, with the assigned ports in place of port 0; empty unless started."""
        return self._addresses

    @property
    def connections(self) -> int:
        """The number of connections in negotiation."""
        return len(self._state.negotiating) if self._state is not None else 0

    @property
    def open_connections(self) -> int:
        """The number of open connections, handed over or not. Iterates over them all, so not for hot paths."""
        return self._state.open_connections() if self._state is not None else 0

    def refuse(self, reason: str | None) -> None:
        """Close new connections at once, with this reason in the log; None: accept them again."""
        if self._state is not None:
            self._state.refusal = reason

    async def start(self) -> None:
        """Bind the sockets and accept connections. Raises OSError if an address is in use or cannot be bound."""
        if self._servers:
            raise RuntimeError(f"listener {self.options.name} has been started already")
        loop = asyncio.get_running_loop()
        sockets = await self._bind()
        state = self._state or self._create_state(loop)
        serve = loop.create_unix_server if self.options.address.is_unix else loop.create_server
        try:
            for bound in sockets:
                server = await serve(lambda: Connection(state), sock=bound, backlog=self.options.backlog)
                self._servers.append(server)
        except BaseException:
            for bound in sockets:
                bound.close()
            await self.close()
            raise
        self._addresses = tuple(socket_address(bound.getsockname()) for bound in sockets)

    async def close(self) -> None:
        """Stop accepting; open connections stay open. Does not wait for them, and may be called again."""
        servers, self._servers, self._addresses = self._servers, [], ()
        for server in servers:
            server.close()
        self._remove_socket_file()
        if self._state is not None:
            self._state.log.flush()

    async def abort(self) -> None:
        """Close the listener and the connections in negotiation."""
        await self.close()
        if self._state is not None:
            for connection in tuple(self._state.negotiating):
                connection.abort()
            await asyncio.gather(*self._state.handshakes, return_exceptions=True)

    def _create_state(self, loop: asyncio.AbstractEventLoop) -> ListenerState:
        log = RefusalLog(self.options.name, loop.time, lambda: loop.call_later(1.0, log.flush))
        tls = self._tls
        self._state = ListenerState(
            self.options,
            self._policy,
            self._handlers,
            self._rejectors,
            self._tls,
            self._on_outcome,
            loop,
            log,
            self.tls_failures,
            AddressLimit(self.options.max_connections_per_address, loop.time),
            HandshakeQueue(self.options.max_handshakes, loop),
            CertificateExpiry(self.options.name, loop, lambda: None if tls is None else tls.revocations),
            first_reserved_descriptor() if self.options.leave_descriptors else sys.maxsize,
        )
        return self._state

    async def _bind(self) -> list[socket.socket]:
        address = self.options.address
        if address.unix_path is not None:
            return [self._bind_unix(address.unix_path)]
        if address.host in ("", "::"):
            return [_bind_dual_stack(address, _tcp_options(self.options))]
        return await _bind_host(address, _tcp_options(self.options))

    def _bind_unix(self, path: str) -> socket.socket:
        _remove_stale(path)
        bound = _bound(socket.AF_UNIX, path)
        # Before listen(2), connections are refused.
        os.chmod(path, self.options.socket_mode)
        status = os.stat(path)
        self._socket_file = (path, status.st_dev, status.st_ino)
        return bound

    def _remove_socket_file(self) -> None:
        if self._socket_file is None:
            return
        (path, *identity), self._socket_file = self._socket_file, None
        # The path may belong to a successor that was started earlier, and some loops remove the file themselves.
        try:
            status = os.stat(path)
            if [status.st_dev, status.st_ino] == identity:
                os.unlink(path)
        except FileNotFoundError:
            pass


_SocketOption = tuple[int, int, int]


def _bound(family: int, address: object, *socket_options: _SocketOption) -> socket.socket:
    # asyncio sets TCP_NODELAY only if the protocol is given.
    bound = socket.socket(family, socket.SOCK_STREAM, 0 if family == socket.AF_UNIX else socket.IPPROTO_TCP)
    try:
        bound.setblocking(False)
        for option in socket_options:
            bound.setsockopt(*option)
        bound.bind(address)  # type: ignore[arg-type]
    except BaseException:
        bound.close()
        raise
    return bound


def _tcp_options(options: ListenerOptions) -> tuple[_SocketOption, ...]:
    """Return the options of a TCP listener's socket, which accepted sockets inherit."""
    reuse_address = (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reuse_port = ((socket.SOL_SOCKET, socket.SO_REUSEPORT, 1),) if options.reuse_port else ()
    return (reuse_address, *reuse_port, *_keepalive_options(options.dead_peer_timeout))


# Unanswered keepalive probes after which a connection is closed.
_PROBES = 3


def _keepalive_options(timeout: int) -> tuple[_SocketOption, ...]:
    """Return the options that close a connection `timeout` seconds after its host's last packet; none for 0.

    Half of the time passes before the first keepalive probe. TCP_USER_TIMEOUT (ms) covers connections with unsent
    data, for which there are no probes. Linux counts a window of zero as well (tcp_probe_timer), although the host
    acknowledges the probes: a client that reads nothing for `timeout` seconds while data wait loses its connection.
    """
    if not timeout:
        return ()
    interval = max(1, timeout // (2 * _PROBES))
    return (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, timeout - _PROBES * interval)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout * 1000),
    )


def _bind_dual_stack(address: HostPort, options: tuple[_SocketOption, ...]) -> socket.socket:
    """Bind one socket for IPv6 and IPv4; for host "", IPv4 only if the kernel has no IPv6."""
    # Explicit, because net.ipv6.bindv6only may have any value.
    both = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        return _bound(socket.AF_INET6, ("::", address.port), *options, both)
    except OSError as error:
        if address.host or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
    return _bound(socket.AF_INET, ("0.0.0.0", address.port), *options)  # noqa: S104  # as the settings say


async def _bind_host(address: HostPort, options: tuple[_SocketOption, ...]) -> list[socket.socket]:
    """Bind a socket for each address of the host, all on the same port."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    v6_only = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, _, _, _, (host, _, *rest) in dict.fromkeys(addresses):
            socket_options = (*options, v6_only) if family == socket.AF_INET6 else options
            sockets.append(_bound(family, (host, port, *rest), *socket_options))
            port = sockets[0].getsockname()[1]
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _remove_stale(path: str) -> None:
    """Remove the socket file of a process that has ended. Raises OSError if it is in use or not a socket."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "not a socket", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            # The backlog is full, so a process listens.
            pass
    raise OSError(errno.EADDRINUSE, "another process listens on this socket", path)
