"""Requests of tests to the in-process cluster, and its replies."""

import asyncio

from proxy.backends.cluster.backend import ClusterBackend
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeChannel, Reply, settle
from tests.proxy.messages import complete

SEND, PULL, SEND_BACK, POP, MAX_OFFSET, COMMIT = 310, 11, 36, 200050, 30, 15
# Requests for a master or an acting master only: POP, ACK, PEEK, CHANGE_INVISIBLE, NOTIFICATION,
# POLLING_INFO, BATCH_ACK, LOCK, UNLOCK.
ESCAPE = (*range(200050, 200056), 200151, 41, 42)


def ask(backend: ClusterBackend, code: int, channel: FakeChannel | None = None, /, **fields: str) -> Reply:
    return backend.request("broker-a", REQUESTS[code], complete(REQUESTS[code], **fields), 10.0, channel)


async def by(reply: Reply) -> str:
    """Return the name and id of the broker that answered."""
    async with asyncio.timeout(30):
        return (await reply).fields["by"]


async def learn(backend: ClusterBackend) -> None:
    """Refresh the broker table; twice, as a refresh with older data may have been in progress."""
    for _ in range(2):
        await backend.refresh_brokers()
        await settle()


def silent(_: RemotingCommand) -> None:
    """A broker that does not answer."""
