"""Renewal sync: sends this replica's renewals and acknowledgements to other replicas and receives theirs."""

import logging
from functools import partial

import anyio

from grpc_gateway.consuming.renewal import Renewal
from proxy.replication.sync_topic import SyncTopic
from remoting.errors import RemotingError
from remoting.tasks import every

_log = logging.getLogger("gantry.sync")

# Seconds between sends, and between attempts: renewals are made 15 seconds before they are needed.
_SEND_INTERVAL = 1.0
# Maximum number of messages per send: a broker accepts at most 4 MiB in a batch.
_MAX_BATCH = 8
# Number of attempts, after which a renewal is out of date.
_MAX_ATTEMPTS = 5


class RenewalSync:
    """Renewals shared with other replicas over a topic."""

    def __init__(self, topic: SyncTopic, renewal: Renewal) -> None:
        self._topic = topic
        self._renewal = renewal

    async def run(self) -> None:
        """Send and receive renewals until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._topic.read, self._renewal.receive_message)
            group.start_soon(partial(every, _SEND_INTERVAL, self.flush, name="renewals to other replicas"))

    async def flush(self) -> None:
        """Send the pending renewals now."""
        bodies = self._renewal.take_messages()
        for start in range(0, len(bodies), _MAX_BATCH):
            await self._send_batch(bodies[start : start + _MAX_BATCH])

    async def _send_batch(self, bodies: list[bytes]) -> None:
        for _ in range(_MAX_ATTEMPTS):
            try:
                await self._topic.send(bodies)
            except RemotingError as error:
                _log.info("sending renewals failed, retrying: %s", error)
                await anyio.sleep(_SEND_INTERVAL)
            else:
                return
        _log.warning("renewals were not sent to other replicas after %d attempts", _MAX_ATTEMPTS)
