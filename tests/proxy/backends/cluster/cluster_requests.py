"""Requests of tests to the in-process cluster, and its replies."""

import asyncio

from proxy.backends.cluster.backend import ClusterBackend
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeChannel, settle
from tests.proxy.messages import complete

SEND, PULL, POP = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE
SEND_BACK, MAX_OFFSET = RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.GET_MAX_OFFSET
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
# Requests for a master or an acting master only.
MASTER_ONLY = (
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)


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
