"""The HTTP API of a replica: its sockets and its lifecycle."""

import asyncio
import gc
import importlib
import logging
import socket
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import anyio.to_thread

from protocol_negotiation.peer import HostPort, socket_address
from protocol_negotiation.tls import TlsSource
from proxy.admin.access import Access, Gatekeeping
from proxy.observability.metrics.family import Family, Kind, Samples, by_label
from proxy.operations.services import AdminServices
from proxy.settings.naming import naming
from proxy.workers.worker_rpc import WorkerRpc

if TYPE_CHECKING:
    from fastapi import FastAPI

    from proxy.admin.http.server import Server

_log = logging.getLogger("gantry.admin")

REQUESTS = Family("gantry_admin_requests", Kind.COUNTER, "Requests of the admin API by status.", ("status",))
REFUSALS = Family("gantry_admin_refusals", Kind.COUNTER, "Requests that the admin API refused.", ("reason",))


class AdminApi:
    """The HTTP API: `open` it, `run` it, `close` it at the end. Raises TokenFileError, TlsError."""

    def __init__(
        self, services: AdminServices, users: Callable[[str, str], tuple[str, str] | None] | None = None
    ) -> None:
        self.services = services
        self.settings = services.settings
        with naming("admin.tokens"):
            access = Access(self.settings, users=users)
        self.gatekeeping = Gatekeeping(self.settings, access, services.audit)
        if self.settings.files is not None:
            # Report errors before clients are accepted; the server itself starts later.
            with naming("admin"):
                TlsSource(self.settings.files)
        self._sockets: list[socket.socket] = []
        self._server: Server | None = None
        self._closing = False
        self._ended = asyncio.Event()

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        yield REQUESTS, by_label(self.gatekeeping.requests)
        yield REFUSALS, by_label(self.gatekeeping.refusals)

    @property
    def addresses(self) -> list[HostPort]:
        """The bound addresses; empty if the API is not served."""
        return [socket_address(bound.getsockname()) for bound in self._sockets if bound.fileno() >= 0]

    @property
    def url(self) -> str | None:
        """The URL for a browser on this host; None if the API is not served."""
        if not self.addresses:
            return None
        address = self.addresses[0]
        local = HostPort("127.0.0.1" if address.is_wildcard else address.host, address.port)
        return f"{'http' if self.settings.files is None else 'https'}://{local}"

    @cached_property
    def application(self) -> "FastAPI":
        """The application, without authentication."""
        from proxy.admin.http import application

        api = application.make(self.services)
        api.state.gatekeeping = self.gatekeeping
        return api

    def join(self, rpc: WorkerRpc | None) -> None:
        """Become one of several workers; None: stay alone."""
        if rpc is not None:
            self.services.join(rpc, self._prepare)

    async def _prepare(self) -> None:
        """Register operations: other workers may call them before this worker's API runs, or without one."""
        await anyio.to_thread.run_sync(getattr, self, "application")

    def open(self) -> None:
        """Listen; connections wait until `run`. Raises OSError if an explicitly configured address is in use."""
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
        """Serve until `close`."""
        if not self._sockets:
            return
        try:
            # Importing takes 0.5 s, during which clients are served.
            module = await anyio.to_thread.run_sync(importlib.import_module, "proxy.admin.http.server")
            application = await anyio.to_thread.run_sync(getattr, self, "application")
            if self._closing:
                return
            self._server = server = module.make(
                application,
                self.services.peers,
                self.gatekeeping,
                self.services.replica.settings.tls.reload_interval,
            )
            if gc.get_freeze_count():
                # As at startup: exclude the imported modules from garbage collection.
                gc.freeze()
            _log.info("the admin API listens on %s", ", ".join(map(str, self.addresses)))
            await server.run_until_closed(self._sockets)
        finally:
            self.release()
            self._ended.set()

    def release(self) -> None:
        """Close the listening sockets."""
        for bound in self._sockets:
            bound.close()

    async def close(self) -> None:
        """Finish requests in flight, and end all streams."""
        self._closing = True
        self.services.close()
        if self._server is not None:
            self._server.should_exit = True
        if self._sockets:
            await self._ended.wait()


def bind(address: HostPort) -> list[socket.socket]:
    """Return listening sockets for every address of a host, all on the same port. Raises OSError."""
    if address.host in ("", "::") and socket.has_dualstack_ipv6():
        return [socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)]
    host = address.host or "0.0.0.0"  # noqa: S104  # as the settings say
    found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    port = address.port
    try:
        for family, _, _, _, sockaddr in dict.fromkeys(found):
            bound.append(socket.create_server((sockaddr[0], port), family=family))
            port = bound[0].getsockname()[1]
    except BaseException:
        for listening in bound:
            listening.close()
        raise
    return bound
