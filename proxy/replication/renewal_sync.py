"""The exchange of renewals: what this replica renewed or settled, told to the others, and the other way round."""

import logging

import anyio

from grpc_gateway.consuming.renewal import Renewal
from proxy.replication.sync_topic import SyncTopic
from remoting.errors import RemotingError

_log = logging.getLogger("gantry.sync")

# Seconds between messages: renewals come a quarter of a minute before they matter.
_GATHER = 1.0
# Messages of one send, which is one batch that a broker has to take whole (4 MiB).
_BATCH = 8
# What could not be told is tried again this often, then it is of no more use.
_TRIES = 5


class RenewalSync:
    """Renewals shared with other replicas over a topic."""

    def __init__(self, topic: SyncTopic, renewal: Renewal) -> None:
        self._topic = topic
        self._renewal = renewal

    async def run(self) -> None:
        """HeartbeatSync until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._topic.read, self._renewal.receive_message)
            group.start_soon(self._send)

    async def _send(self) -> None:
        while True:
            await anyio.sleep(_GATHER)
            await self.flush()

    async def flush(self) -> None:
        """Tell now what there is to tell."""
        news = self._renewal.take_messages()
        for start in range(0, len(news), _BATCH):
            await self._tell(news[start : start + _BATCH])

    async def _tell(self, bodies: list[bytes]) -> None:
        for _ in range(_TRIES):
            try:
                await self._topic.send(bodies)
            except RemotingError as error:
                _log.info("renewals have to wait: %s", error)
                await anyio.sleep(_GATHER)
            else:
                return
        _log.warning("other replicas could not be told of renewals")
