"""The listener of the Admin service, with the same negotiation as the clients' port."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import cast

import grpc

from grpc_gateway.server import Server
from grpc_gateway.server.server_options import ServerOptions
from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.tls import TlsMode, TlsSource
from protos.apache.rocketmq.v2.admin_pb2_grpc import AdminServicer, add_AdminServicer_to_server
from proxy.admin.access import Gatekeeping
from proxy.admin.grpc.groups import find_members
from proxy.admin.grpc.replica import read_stats
from proxy.admin.grpc.service import AdminService, forward_call
from proxy.admin.grpc.throughput import Throughput
from proxy.admin.tls_reload import reload
from proxy.observability.metrics.family import Family, Kind, Samples
from proxy.operations.catalogue import OPERATIONS
from proxy.operations.services import AdminServices
from remoting.tasks import every

_log = logging.getLogger("gantry.admin")

# Seconds for calls in flight at the end.
_GRACE = 2.0
# Bytes of a message to send in addition to its body.
_BESIDES = 64 * 1024
# Closed in good order, or by calls.
_UNTROUBLED = (Outcome.GRPC, Outcome.CLOSED)
_CALLS = Family(
    "gantry_admin_calls", Kind.COUNTER, "Calls of the Admin gRPC service, by rpc and v2 code.", ("method", "code")
)


class AdminServer:
    """The Admin service on the address `admin.grpc`. Call `open`, `run`, and `close` at the end.

    Raises TlsError.
    """

    def __init__(self, services: AdminServices, gatekeeping: Gatekeeping) -> None:
        settings, replica = services.settings, services.replica
        assert settings.grpc_address is not None
        self._services = services
        self._gatekeeping = gatekeeping
        throughput = Throughput(services.loop.time)
        replica.core.observers.append(throughput.observe)
        self._service = service = AdminService(services, gatekeeping)
        services.workers.serve(services, [*OPERATIONS, find_members])
        services.workers.serve((services, throughput), [read_stats])
        services.workers.serve(service, [forward_call])
        largest = replica.settings.grpc.max_body + _BESIDES
        self._server = Server(ServerOptions(max_receive_message=largest, max_request_bytes=2 * largest))
        # The server accepts grpc.aio's registration; the service has every rpc.
        add_AdminServicer_to_server(cast(AdminServicer, service), cast(grpc.aio.Server, self._server))
        self._tls = None if settings.files is None else TlsSource(settings.files)
        self._reload_interval = replica.settings.tls.reload_interval
        options = ListenerOptions(
            name="admin.grpc",
            address=settings.grpc_address,
            tls_mode=TlsMode.DISABLED if self._tls is None else TlsMode.ENFORCING,
            negotiation_timeout=settings.timeout,
            max_connections=settings.max_connections,
        )
        self._listener = Listener(options, {Protocol.GRPC: self._server.protocol}, self._tls, self._negotiated)

    @property
    def addresses(self) -> list[HostPort]:
        """The bound addresses."""
        return list(self._listener.addresses)

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the family of this module."""
        yield _CALLS, dict(self._service.calls.items())

    async def open(self) -> None:
        """Listen. Raises OSError."""
        address = self._listener.options.address
        try:
            await self._listener.start()
        except OSError as error:
            raise OSError(error.errno, f"the Admin service cannot listen on {address}: {error.strerror}") from None
        _log.info("the Admin gRPC service listens on %s", ", ".join(map(str, self.addresses)))

    async def run(self) -> None:
        """Reload changed certificate files, until cancelled."""
        if self._tls is not None:
            work = partial(reload, self._tls)
            await every(self._reload_interval, work, name="certificate of the Admin gRPC service")

    async def close(self) -> None:
        """Stop accepting connections, and let calls in flight finish."""
        await self._listener.abort()
        await self._server.drain(_GRACE)

    def _negotiated(self, outcome: Outcome, peer: Peer, first: bytes) -> None:
        if outcome not in _UNTROUBLED:
            self._gatekeeping.refusals[outcome.value] += 1
            self._services.events.negotiated(outcome, peer, first)
