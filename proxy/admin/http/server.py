"""uvicorn in this process's event loop, on sockets that already listen, with deadlines for callers."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from protocol_negotiation.tls import Refresh, SessionTickets, TlsFiles, TlsSource
from protocol_negotiation.tls_peer import distinguished_name, not_after
from proxy.admin.access import Gatekeeping
from proxy.admin.http import problems
from proxy.admin.http.guard import Application, Guard
from proxy.admin.http.names_in_paths import NamesInPaths
from proxy.admin.http.replica_forwarder import ReplicaForwarder
from proxy.admin.tls_reload import reload
from proxy.operations.peers import Peers
from remoting.tasks import every

# Seconds that a connection may be idle between two requests, and for requests in flight at shutdown.
_KEEP_ALIVE = 30
_GRACE = 2
# Seconds for a caller to read a part of a response.
_READ_TIMEOUT = 30.0
_MAX_HEAD = 16 * 1024


class Connection(H11Protocol):
    """One caller's connection, with deadlines for each request's head and for each part of a response. It is aborted if
    there are too many, and when the caller's certificate expires or is revoked."""

    # Set by `make`. Seconds for a request's head. tls: None without TLS.
    max_connections = 0
    head_timeout = 0.0
    tls: TlsSource | None = None

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._head_deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._certificate_end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Its handshake may have begun before the revocation list was read.
        if len(self.connections) > self.max_connections or _is_revoked(transport, self.tls):
            transport.abort()
            return
        # Any unread byte starts the deadline, also while the connection is closing. Not 0: uvloop's TLS would take an
        # empty buffer for a full one.
        transport.set_write_buffer_limits(high=1, low=0)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            remaining = not_after(certificate) - time.time()
            self._certificate_end = self.loop.call_later(remaining, transport.abort)
        self.app_state = {**self.app_state, "subject": distinguished_name(certificate), "transport": transport}
        self._update_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_deadline, self._read_deadline, self._certificate_end):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_deadline = self.loop.call_later(_READ_TIMEOUT, self.transport.abort)

    def resume_writing(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Reply to malformed HTTP with a problem, like all errors."""
        content = problems.content(400, msg, "")
        headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(content)),
            (b"connection", b"close"),
        ]
        # A response may have begun.
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()

    def _update_deadline(self) -> None:
        """Start the head's deadline between requests, and stop it when a head is complete."""
        # uvicorn declares another type.
        cycle = cast(RequestResponseCycle | None, self.cycle)
        waiting = cycle is None or cycle.response_complete
        if waiting and self._head_deadline is None:
            self._head_deadline = self.loop.call_later(self.head_timeout, self.transport.abort)
        elif not waiting and self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None


class Server(uvicorn.Server):
    """uvicorn server without signal handlers."""

    tls: TlsSource | None = None
    reload_interval = 0.0

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until_closed(self, sockets: list[socket.socket]) -> None:
        """Serve until `should_exit`."""
        try:
            async with anyio.create_task_group() as group:
                if self.tls is not None:
                    work = partial(self._reload, self.tls)
                    group.start_soon(partial(every, self.reload_interval, work, name="certificate of the admin API"))
                await self.serve(sockets)
                group.cancel_scope.cancel()
        finally:
            # uvicorn does not close them if this task is cancelled.
            for listening in getattr(self, "servers", ()):
                listening.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    async def _reload(self, tls: TlsSource) -> None:
        if await reload(tls) is Refresh.RELOADED:
            tls.context.set_alpn_protocols(["http/1.1"])
            for connection in list(self.server_state.connections):
                if _is_revoked(connection.transport, tls):
                    connection.transport.abort()


def _is_revoked(transport: Any, tls: TlsSource | None) -> bool:
    """Return whether the certificate of a connection's caller has been revoked."""
    if tls is None or tls.revocations is None:
        return False
    return tls.revocations.contain_peer(transport.get_extra_info("ssl_object"))


def make(application: Application, peers: Peers, gatekeeping: Gatekeeping, reload_interval: float) -> Server:
    """Return the server of an application. reload_interval: seconds between checks for a changed certificate.

    Raises TlsError.
    """
    settings = gatekeeping.settings
    guard = Guard(ReplicaForwarder(NamesInPaths(application), peers), gatekeeping, _own_names())
    tls = None if settings.files is None else _tls(settings.files)
    connection = type(
        "Connection",
        (Connection,),
        {"max_connections": settings.max_connections, "head_timeout": settings.timeout, "tls": tls},
    )
    config = uvicorn.Config(
        guard,
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=_MAX_HEAD,
    )
    server = Server(config)
    if settings.files is not None and tls is not None:
        config.load()
        server.tls = tls
        server.reload_interval = reload_interval
        config.ssl = _following(tls, settings.files)
    return server


def _tls(files: TlsFiles) -> TlsSource:
    # The session ticket keys of a listening socket's context would never change, and sessions could outlive a change of
    # the certificate authorities.
    source = TlsSource(replace(files, options=replace(files.options, tickets=SessionTickets.OFF)))
    # The server does not speak HTTP/2.
    source.context.set_alpn_protocols(["http/1.1"])
    return source


def _following(source: TlsSource, files: TlsFiles) -> Any:
    """Return a context that passes each connection to the newest one: a listening socket keeps its first context."""
    context = _tls(files).context

    def follow(connection: Any, _: str | None, __: Any) -> None:
        connection.context = source.context

    context.sni_callback = follow
    return context


def _own_names() -> frozenset[str]:
    """Return the names of this host, without a DNS query."""
    return frozenset(("localhost", socket.gethostname().lower()))
