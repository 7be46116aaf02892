"""Senders and receivers of both protocols that continue while servers are killed, and a count of their messages."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import grpc.aio

from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from tests.cluster.client import Client, send_fields, unique, v2
from tests.cluster.grpc.consumer import Consumer, codes
from tests.cluster.servers import Failed

PROTOCOLS = ("remoting", "grpc")
_FAILURES = (OSError, RemotingError, grpc.aio.AioRpcError, AssertionError, asyncio.IncompleteReadError)
# Seconds: pause after a failure, timeout of a send, long poll, lease of a message received over gRPC.
_PAUSE, _SEND_TIMEOUT, _POLL, _INVISIBLE = 0.2, 10.0, 2.0, 15.0
# Seconds after the last send in which both groups receive everything; leases of lost deliveries end meanwhile.
_CATCH_UP = 90.0


class Load:
    """Messages of one topic: sent one at a time, received by one consumer group for each protocol.

    A client reconnects after a failure; a remoting sender continues at the next broker. brokers: addresses by name;
    queues: number of the topic's queues at each.

    acknowledged: bodies of successful sends. deliveries: number of deliveries of each body, by protocol.
    failures: failed calls by protocol and operation.
    """

    def __init__(self, address: str, topic: str, brokers: Mapping[str, str], queues: int = 1) -> None:
        self.acknowledged: set[bytes] = set()
        self.deliveries: dict[str, Counter[bytes]] = {}
        self.failures: Counter[str] = Counter()
        self._address = address
        self._topic = topic
        self._brokers = brokers
        self._queues = queues
        self._group = unique("group")
        self._numbers = itertools.count()
        self._sending = self._receiving = True

    @asynccontextmanager
    async def running(
        self, senders: Sequence[str], receivers: Sequence[str] = PROTOCOLS, pause: float = 0.005
    ) -> AsyncIterator[None]:
        """Send with one client for each of `senders`, and receive with one group for each of `receivers` (protocols).

        pause: seconds between two sends of a client. At the end of the context the sends stop, and it is left when the
        groups have received all acknowledged messages. Raises Failed if they do not within 90 s.
        """
        async with anyio.create_task_group() as tasks:
            for protocol in receivers:
                self.deliveries[protocol] = Counter()
                receive = self._receive_remoting if protocol == "remoting" else self._receive_grpc
                for broker in self._brokers:
                    for queue in range(self._queues) if protocol == "remoting" else (-1,):
                        tasks.start_soon(receive, broker, queue)
            async with anyio.create_task_group() as sending:
                for number, protocol in enumerate(senders):
                    send = self._send_remoting if protocol == "remoting" else self._send_grpc
                    sending.start_soon(send, number, pause)
                yield
                self._sending = False
            await self._catch_up()
            self._receiving = False

    async def _repeat(self, operation: str, active: Callable[[], bool], use: Callable[[], Awaitable[None]]) -> None:
        """Use a connection until it fails, then another one, while active."""
        while active():
            try:
                await use()
            except _FAILURES:
                self.failures[operation] += 1
                await anyio.sleep(_PAUSE)

    async def _send_remoting(self, number: int, pause: float) -> None:
        names = itertools.islice(itertools.cycle(self._brokers), number, None)

        async def use() -> None:
            async with Client(self._address, broker=next(names)) as client:
                while self._sending:
                    body = b"remoting-%d" % next(self._numbers)
                    fields = v2(client.named(send_fields(self._topic, queue=0)))
                    reply = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body, timeout=_SEND_TIMEOUT)
                    assert reply.code == ResponseCode.SUCCESS, reply.remark
                    self.acknowledged.add(body)
                    await anyio.sleep(pause)

        await self._repeat("remoting send", lambda: self._sending, use)

    async def _send_grpc(self, _: int, pause: float) -> None:
        async def use() -> None:
            async with Consumer(self._address, "load", self._topic) as client:
                while self._sending:
                    body = b"grpc-%d" % next(self._numbers)
                    await client.send(body)
                    self.acknowledged.add(body)
                    await anyio.sleep(pause)

        await self._repeat("grpc send", lambda: self._sending, use)

    async def _receive_remoting(self, broker: str, queue: int) -> None:
        """Pull one queue; as in official clients, the offset outlives the connection."""
        offset = 0

        async def use() -> None:
            nonlocal offset
            async with Client(self._address, broker=broker) as client:
                while self._receiving:
                    found = await client.pull(self._topic, self._group, queue, offset, wait=int(_POLL * 1000))
                    if found:
                        self.deliveries["remoting"].update(message.body for message in found)
                        offset = found[-1].queue_offset + 1

        await self._repeat("remoting receive", lambda: self._receiving, use)

    async def _receive_grpc(self, broker: str, queue: int) -> None:
        async def use() -> None:
            async with Consumer(self._address, f"{self._group}-grpc", self._topic) as client:
                while self._receiving:
                    found = await client.receive(broker=broker, queue=queue, wait=_POLL, invisible=_INVISIBLE)
                    if found:
                        self.deliveries["grpc"].update(message.body for message in found)
                        response = await client.ack(*found)
                        assert set(codes(response)) == {Code.OK}, response

        await self._repeat("grpc receive", lambda: self._receiving, use)

    async def _catch_up(self) -> None:
        with anyio.move_on_after(_CATCH_UP):
            while any(self.acknowledged - bodies.keys() for bodies in self.deliveries.values()):
                await anyio.sleep(_PAUSE)
            return
        missing = {name: len(self.acknowledged - bodies.keys()) for name, bodies in self.deliveries.items()}
        raise Failed(f"of {len(self.acknowledged)} acknowledged messages, {missing} were not received; {self}")

    def duplicates(self, protocol: str) -> int:
        """Return the number of deliveries after the first one of each message."""
        return self.deliveries[protocol].total() - len(self.deliveries[protocol])

    def most(self, protocol: str) -> int:
        """Return the largest number of deliveries of one message."""
        return max(self.deliveries[protocol].values(), default=0)

    def __str__(self) -> str:
        received = [
            f"{protocol} group: {len(bodies)} received, {self.duplicates(protocol)} duplicates, "
            f"at most {self.most(protocol)} deliveries of one"
            for protocol, bodies in self.deliveries.items()
        ]
        failed = ", ".join(f"{count} {name}s" for name, count in sorted(self.failures.items())) or "none"
        return "; ".join((f"{len(self.acknowledged)} acknowledged", *received, f"failed calls: {failed}"))

    async def lost(self) -> set[bytes]:
        """Return the acknowledged messages that no broker has stored."""
        stored: set[bytes] = set()
        for name, address in self._brokers.items():
            async with Client(address, broker=name) as client:
                for queue in range(self._queues):
                    offset = 0
                    while found := await client.pull(self._topic, "check", queue=queue, offset=offset, wait=0):
                        stored.update(message.body for message in found)
                        offset = found[-1].queue_offset + 1
        return self.acknowledged - stored
