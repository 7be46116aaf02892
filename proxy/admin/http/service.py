"""The admin side of a replica, as far as it is there from the start."""

import asyncio
import gc
import importlib
import logging
import socket
from collections import Counter
from functools import cached_property, partial
from typing import TYPE_CHECKING

import anyio.to_thread

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer, socket_address
from protocol_negotiation.tls import server_context
from proxy.admin.http import worker_request
from proxy.admin.http.access import Access
from proxy.core.connections import ConnectionEvent
from proxy.core.health import Health
from proxy.operations import event_log, health_checks
from proxy.operations.audit import Audit
from proxy.operations.event_log import Closed, Ring, Trouble
from proxy.operations.log_levels import LogLevels
from proxy.operations.request_tap import RequestTap
from proxy.settings.loading import Sources

if TYPE_CHECKING:
    from fastapi import FastAPI

    from proxy.admin.http.server import Server
    from proxy.admin.live.pages import Figures
    from proxy.admin.replica import AdminReplica
    from proxy.operations.configuration import Configuration
    from proxy.workers.worker_rpc import Tell, WorkerRpc

_log = logging.getLogger("gantry.admin")

# Connections that a client, or nobody, has ended in good order before there was anything to negotiate.
_UNTROUBLED = frozenset((Outcome.REMOTING, Outcome.GRPC, Outcome.HTTP1, Outcome.CLOSED))
# What a gRPC connection ends with where its client's bytes were at fault.
_FAULTS = ("protocol", "abuse")


class Admin:
    """Health, what has happened of late, and the HTTP API once that runs.

    `pages` are what others show by HTTP: path to page; `/metrics` and `/stats` are meant for it.
    Raises TokenFileError, TlsError.
    """

    def __init__(self, replica: "AdminReplica", sources: Sources | None) -> None:
        self._replica = replica
        self._sources = sources
        self.settings = replica.settings.admin
        self.loop = asyncio.get_running_loop()
        self.started = event_log.now()
        self.access = Access(self.settings)
        if self.settings.files is not None:
            # Before clients are accepted: the server itself comes only then.
            server_context(self.settings.files)
        self.health = Health(partial(health_checks.look, replica))
        self.closed: Ring[Closed] = Ring(self.settings.kept)
        self.troubles: Ring[Trouble] = Ring(self.settings.kept)
        self.audit = Audit(self.settings.kept)
        self.tap = RequestTap(replica.core.observers, self.settings.streams)
        self.log_levels = LogLevels()
        self.requests: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        # What became of what other workers were asked.
        self.worker_answers: Counter[str] = Counter()
        # The other workers, where there are some.
        self.colleagues: WorkerRpc | None = None
        self._origins = {} if sources is None else sources.origins()
        self._sockets: list[socket.socket] = []
        self._server: Server | None = None
        self._closing = False
        self._ended = asyncio.Event()
        if self.settings.address is not None:
            replica.connection_listeners.append(self._note_connection)
        self._watch()

    @property
    def addresses(self) -> list[HostPort]:
        """Where the API is served; empty: nowhere."""
        return [socket_address(bound.getsockname()) for bound in self._sockets if bound.fileno() >= 0]

    @property
    def url(self) -> str | None:
        """Where to point a browser on this host at; None: nowhere."""
        if not self.addresses:
            return None
        address = self.addresses[0]
        shown = HostPort("127.0.0.1" if address.host in ("::", "0.0.0.0") else address.host, address.port)
        return f"{'http' if self.settings.files is None else 'https'}://{shown}"

    @cached_property
    def figures(self) -> "Figures":
        """What the live page shows."""
        from proxy.admin.live.pages import Figures

        return Figures(self._replica)

    @cached_property
    def configuration(self) -> "Configuration":
        """The settings in force."""
        from proxy.operations.configuration import Configuration

        return Configuration(self._replica, self._sources, self._origins)

    @cached_property
    def api(self) -> "FastAPI":
        """The API of this process alone; nothing in it asks who calls."""
        from proxy.admin.http import application

        return application.make(self._replica)

    # Workers.

    def join(self, colleagues: "WorkerRpc | None") -> None:
        """There are other workers, whom this one may ask what it is asked, and the reverse; None: there are not."""
        if colleagues is not None:
            self.colleagues = colleagues
            colleagues.answers[worker_request.NAME] = self._answer

    async def _answer(self, content: bytes, tell: "Tell") -> None:
        # As for `run`: it may be asked before its own API is served, or without one.
        await anyio.to_thread.run_sync(importlib.import_module, "proxy.admin.http.application")
        await worker_request.perform(self.api, worker_request.Question.decode(content), tell)

    # Serving.

    def open(self) -> None:
        """Listen; whoever connects waits until `run`. Raises OSError where a chosen address cannot be had."""
        address = self.settings.address
        if address is None:
            return
        try:
            self._sockets = bind(address)
        except OSError as error:
            if self.settings.chosen:
                raise OSError(error.errno, f"the admin API cannot listen on {address}: {error.strerror}") from None
            _log.warning("no admin API: %s is not free (%s); set admin.listen", address, error.strerror)

    async def run(self) -> None:
        """Serve the HTTP API until `close`."""
        if not self._sockets:
            return
        try:
            # A fifth of a second that clients need not wait for.
            module = await anyio.to_thread.run_sync(importlib.import_module, "proxy.admin.http.server")
            if self._closing:
                return
            self._server = server = module.make(self._replica)
            if gc.get_freeze_count():
                # As at the start: what has come now stays, and no collection need look at it.
                gc.freeze()
            _log.info("the admin API listens on %s", ", ".join(map(str, self.addresses)))
            await server.run_until_closed(self._sockets)
        finally:
            self.release()
            self._ended.set()

    def release(self) -> None:
        """Listen no more."""
        for bound in self._sockets:
            bound.close()

    async def close(self) -> None:
        """End everything in good order."""
        self._closing = True
        self.tap.close()
        self.log_levels.close()
        if self._server is not None:
            self._server.should_exit = True
        if self._sockets:
            await self._ended.wait()

    # What happens.

    def negotiated(self, outcome: Outcome, peer: Peer, first: bytes) -> None:
        """A connection has been negotiated, or refused."""
        if outcome not in _UNTROUBLED:
            self._note_trouble("negotiation", outcome.value, peer, "", first)

    def distrusted(self, peer: Peer, text: str, first: bytes) -> None:
        """A remoting connection has sent what is no frame."""
        self._note_trouble("remoting", "undecodable", peer, text, first)

    def _note_trouble(self, where: str, kind: str, peer: Peer, text: str, first: bytes) -> None:
        via = None if peer.via is None else str(peer.via)
        trouble = Trouble(event_log.now(), where, kind, str(peer.address), via, peer.listener, text, bytes(first[:16]))
        self.troubles.add(trouble)

    def _note_connection(self, event: ConnectionEvent) -> None:
        if event.cause is None:
            return
        self.closed.add(event_log.closed(event, self.loop.time()))
        if event.protocol == "grpc" and event.cause in _FAULTS:
            fault = getattr(getattr(event.connection, "http2", None), "fault", None)
            self._note_trouble("grpc", str(getattr(fault, "reason", event.cause)), event.peer, str(fault or ""), b"")

    def _watch(self) -> None:
        metrics = self._replica.metrics
        metrics.counter("gantry_admin_requests", "Requests of the admin API by status.", "status", self.requests)
        metrics.counter("gantry_admin_refusals", "Requests that the admin API refused.", "reason", self.refusals)
        metrics.counter(
            "gantry_admin_worker_answers",
            "Questions of the admin API to other workers: answered, gone, or late.",
            "outcome",
            self.worker_answers,
        )
        metrics.gauge("gantry_admin_streams", "Live streams of requests.", lambda: len(self.tap.watchers))
        metrics.gauge("gantry_ready", "1: clients may be sent here.", lambda: self.health.report("/readyz").ok)


def bind(address: HostPort) -> list[socket.socket]:
    """Listening sockets for every address of a host, all on the same port. Raises OSError."""
    if address.host in ("", "::") and socket.has_dualstack_ipv6():
        return [socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)]
    host = address.host or "0.0.0.0"
    found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    port = address.port
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            bound.append(socket.create_server((where[0], port), family=family))
            port = bound[0].getsockname()[1]
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound
