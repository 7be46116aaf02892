"""The drain of a replica: its clients move to other replicas."""

import anyio

from proxy.core.messaging import Messaging
from proxy.frontends.grpc_frontend import GrpcFrontend
from proxy.frontends.listeners import Listeners
from proxy.frontends.remoting_frontend import RemotingFrontend


class ReplicaDrain:
    """Drains a replica, while it goes on serving or at its end."""

    def __init__(self, core: Messaging, remoting: RemotingFrontend, grpc: GrpcFrontend, listeners: Listeners) -> None:
        self._core = core
        self._remoting = remoting
        self._grpc = grpc
        self._listeners = listeners

    def start(self) -> None:
        """Ask clients to reconnect elsewhere, as at shutdown; requests are still served."""
        self._core.drain.start()
        self._grpc.start_drain()

    def stop(self) -> None:
        """Stop asking clients to reconnect elsewhere."""
        self._core.drain.stop()

    async def finish(self) -> None:
        """Fail health checks, stop accepting connections, ask clients to reconnect elsewhere, finish requests.

        Clients that do not support GO_AWAY are served until their requests have finished.
        """
        self._core.drain.announced = True
        await self._grpc.announce_drain()
        # Load balancers need this time to notice the failed health checks.
        await anyio.sleep(self._core.settings.drain_delay)
        await self._listeners.close()
        self._core.drain.start()
        timeout = self._core.settings.drain_timeout
        async with anyio.create_task_group() as group:
            group.start_soon(self._grpc.drain, timeout)
            await self._remoting.finish_requests(timeout)
            await self._listeners.abort()
            await self._remoting.close()
