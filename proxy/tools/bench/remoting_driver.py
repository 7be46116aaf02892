"""The load generator's connections over remoting."""

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from proxy.tools.bench.drivers import STAMP, Delivery, Driver, Fault
from proxy.tools.cli import messages, receiving
from proxy.tools.cli.client import Client, CommandError, connected
from proxy.tools.cli.group_member import joined
from remoting import properties
from remoting.codes import STORED, RequestCode
from remoting.errors import RemotingError
from remoting.routes import TopicRoute

_BATCH = 32
# A new group begins with the first message, or with those that follow (ConsumeInitMode).
_FROM_FIRST, _FROM_NOW = 0, 1


class _RemotingDriver:
    def __init__(self, client: Client, route: TopicRoute, options: argparse.Namespace) -> None:
        self.sources = route.readable()
        self._client = client
        self._queues = route.writable
        self._options = options
        self._mode = _FROM_FIRST if options.action == "receive" else _FROM_NOW

    async def send(self, body: bytes, stamp: str, turn: int) -> None:
        broker, queue = self._queues[turn % len(self._queues)]
        pairs = {
            STAMP: stamp,
            properties.WAIT_STORE_MSG_OK: "true",
            properties.UNIQ_CLIENT_MESSAGE_ID: messages.message_id(),
        }
        fields = messages.send_fields(self._options.topic, broker, queue, pairs)
        try:
            await self._client.ask(RequestCode.SEND_MESSAGE_V2, fields, body, accept=STORED, attempts=1)
        except (CommandError, RemotingError) as error:
            raise Fault(str(error)) from None

    async def receive(self, source: str, wait: float) -> list[Delivery]:
        try:
            popped = await receiving.pop_messages(self._client, self._options, source, _BATCH, wait, mode=self._mode)
        except (CommandError, RemotingError) as error:
            raise Fault(str(error)) from None
        return [Delivery(one.message.get(STAMP) or "", len(one.message.body), one) for one in popped]

    async def acknowledge(self, source: str, delivery: Delivery) -> None:
        try:
            await receiving.acknowledge(self._client, self._options, source, delivery.handle)
        except (CommandError, RemotingError) as error:
            raise Fault(str(error)) from None


@asynccontextmanager
async def connection(options: argparse.Namespace, role: str) -> AsyncIterator[Driver]:
    """Open a connection, which joins the group if it receives. Raises CommandError."""
    async with connected(options) as client, AsyncExitStack() as stack:
        route = await client.route(options.topic)
        if role == "send" and not route.writable:
            raise CommandError(f"no queue of topic {options.topic} takes messages now")
        if role == "receive":
            if not route.readable():
                raise CommandError(f"topic {options.topic} has no queue that can be read now")
            await stack.enter_async_context(joined(client, options.group, options.topic, options.filter))
        client.lasting = True
        yield _RemotingDriver(client, route, options)
