"""uvicorn in our loop: on sockets that listen already, without signal handlers, access log and slow callers."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any, cast

import anyio
import anyio.to_thread
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from protocol_negotiation.tls import Refresh, TlsFiles, TlsSource, distinguished_name
from proxy.admin.http import problems
from proxy.admin.http.guard import Application, Guard
from proxy.admin.replica import AdminReplica

_log = logging.getLogger("gantry.admin")

# Seconds that a connection may be silent between two requests, and that answers under way have at the end.
_KEEP_ALIVE = 30
_GRACE = 2
# Seconds that a caller has to take a part of an answer.
_TAKING = 30.0
_MAX_HEAD = 16 * 1024


class Connection(H11Protocol):
    """One caller's connection. It has a moment for each request's head and to take each part of an answer, and is not
    let in where there are too many."""

    # Set by `make`.
    most = 0
    patience = 0.0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        # Whatever waits to be taken counts, also once the connection is only to be closed. Not 0: uvloop's TLS would
        # take an empty buffer for a full one.
        transport.set_write_buffer_limits(high=1, low=0)
        certificate = transport.get_extra_info("peercert")
        self.app_state = {**self.app_state, "subject": distinguished_name(certificate)}
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(_TAKING, self.transport.abort)

    def resume_writing(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so as everything else is."""
        content = problems.content(400, msg, "")
        headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(content)),
            (b"connection", b"close"),
        ]
        # An answer may be under way already.
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()

    def _watch(self) -> None:
        """A head under way has a deadline; after it the body and the answer have their own."""
        # uvicorn declares it otherwise.
        cycle = cast(RequestResponseCycle | None, self.cycle)
        waiting = cycle is None or cycle.response_complete
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self.transport.abort)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """Signals are the process's own affair."""

    tls: TlsSource | None = None
    reload_interval = 0.0

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until_closed(self, sockets: list[socket.socket]) -> None:
        """Serve until `should_exit`."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._refresh)
                await self.serve(sockets)
                group.cancel_scope.cancel()
        finally:
            # Where something else has ended the process, nobody has closed them yet.
            for listening in getattr(self, "servers", ()):
                listening.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    async def _refresh(self) -> None:
        while self.tls is not None:
            await anyio.sleep(self.reload_interval)
            outcome = await anyio.to_thread.run_sync(self.tls.refresh)
            if outcome is Refresh.RELOADED:
                self.tls.context.set_alpn_protocols(["http/1.1"])
            elif outcome is Refresh.FAILED:
                _log.error("the changed certificate is not usable, the former stays in use: %s", self.tls.error)


def make(replica: AdminReplica) -> Server:
    """The server of a replica's API. Raises TlsError."""
    settings = replica.settings.admin
    guard = Guard(_served(replica), replica.admin, _own_names())
    kind = type("Connection", (Connection,), {"most": settings.max_connections, "patience": settings.timeout})
    config = uvicorn.Config(
        guard,
        http=kind,
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
    if settings.files is not None:
        config.load()
        server.tls = _tls(settings.files)
        server.reload_interval = replica.settings.tls.reload_interval
        config.ssl = _following(server.tls, settings.files)
    return server


def _served(replica: AdminReplica) -> Application:
    """This process' API; where there are other workers, all of theirs."""
    api = replica.admin.api
    if replica.admin.colleagues is None:
        return api
    from proxy.admin.http.aggregation_table import ROWS
    from proxy.admin.http.scatter_gather import Together

    return Together(api, replica.admin.colleagues, replica.admin.worker_answers, ROWS)


def _tls(files: TlsFiles) -> TlsSource:
    source = TlsSource(files)
    # A browser that offers HTTP/2 must not get it.
    source.context.set_alpn_protocols(["http/1.1"])
    return source


def _following(source: TlsSource, files: TlsFiles) -> Any:
    """A context that hands every connection on to the newest one: a listening socket keeps the one it began with."""
    context = _tls(files).context

    def follow(connection: Any, _: str | None, __: Any) -> None:
        connection.context = source.context

    context.sni_callback = follow
    return context


def _own_names() -> frozenset[str]:
    """What this host is called, without asking anybody."""
    return frozenset(("localhost", socket.gethostname().lower()))
