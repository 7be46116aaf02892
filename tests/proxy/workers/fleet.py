"""Two worker processes with clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx

from protos.apache.rocketmq.v2.admin_pb2_grpc import AdminStub
from remoting import command as commands
from remoting.codes import RequestCode
from tests.cluster.client import Client, create_topic, subscription
from tests.ports import free_port
from tests.proxy.workers.processes import Process

GROUP = "billing"
_QUEUE = b'{"brokerName":"broker-a","queueId":1,"topic":"t"}'
_RUNNING = (
    b'{"mqTable":{'
    + _QUEUE
    + b':{"commitOffset":1}},"properties":{"a":"b"},"subscriptionSet":[],"statusTable":{},"jstack":"at work"}'
)
# Of a client with connections to both workers.
TWIN = "twin@1"


@dataclass
class Fleet:
    """Two workers with clients; `apis` are their admin ports."""

    process: Process
    apis: list[httpx.AsyncClient]
    # The Admin gRPC services.
    stubs: list[Any]
    topic: str
    # Client ids by worker.
    clients: dict[int, str] = field(default_factory=dict)

    async def get(self, path: str, at: int = 0, status: int = 200, **query: Any) -> Any:
        """Return a worker's reply once no worker is missing: on a busy machine a worker may be late."""
        found: Any = None

        async def answered() -> bool:
            nonlocal found
            answer = await self.apis[at].get(path, params=query)
            found = answer.json()
            return answer.status_code == status and "missing_workers" not in found

        await until(answered, lambda: found)
        return found

    async def write(self, method: str, path: str, body: Any = None, worker: int = 0) -> Any:
        """Return the reply to a write; repeat it if a worker was late."""
        found: Any = None

        async def done() -> bool:
            nonlocal found
            answer = await self.apis[worker].request(method, path, json=body)
            found = answer.json() if answer.content else None
            return answer.status_code < 300

        await until(done, lambda: found)
        return found


async def until(check: Callable[[], Awaitable[object]], describe: Callable[[], object] = lambda: "") -> None:
    """Wait until `check` returns true."""
    try:
        async with asyncio.timeout(60):
            while not await check():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(describe()) from None


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Fleet]:
    """Run two workers, and wait until their APIs answer."""
    first = free_port(4)
    addresses = f"127.0.0.1:{first}", f"127.0.0.1:{first + 2}"
    process = await asyncio.to_thread(Process, folder, 2, *addresses)
    try:
        async with AsyncExitStack() as stack:
            urls = (f"http://127.0.0.1:{first + number}" for number in range(2))
            apis = [await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60)) for url in urls]
            channels = [
                await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{first + 2 + number}"))
                for number in range(2)
            ]
            fleet = Fleet(
                process,
                apis,
                [AdminStub(channel) for channel in channels],
                await create_topic(f"127.0.0.1:{process.port}", "orders"),
            )
            for number in range(2):
                await fleet.get("/v1/version", number)
            yield fleet
        await asyncio.to_thread(process.end)
    finally:
        process.process.kill()
        process.process.wait()


async def connect(fleet: Fleet, stack: AsyncExitStack) -> None:
    """Connect clients until each worker has one: the kernel chooses the worker."""
    for number in range(100):
        client_id = f"c{number}@1"
        client = Client(f"127.0.0.1:{fleet.process.port}", client_id)
        client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: commands.success(body=_RUNNING)
        await client.__aenter__()
        data = subscription(fleet.topic, f"Tag{number}")
        await client.heartbeat({GROUP: [fleet.topic]}, ["shop"], subscriptionDataSet=[data])
        (worker,) = await _workers_of(fleet, client_id)
        if worker in fleet.clients:
            await client.__aexit__(None, None, None)
        else:
            fleet.clients[worker] = client_id
            stack.push_async_exit(client)
        if len(fleet.clients) == 2:
            return


async def connect_twin(fleet: Fleet, stack: AsyncExitStack) -> None:
    while len(await _workers_of(fleet, TWIN)) < 2:
        client = await stack.enter_async_context(Client(f"127.0.0.1:{fleet.process.port}", TWIN))
        await client.heartbeat({}, ["twins"])


async def _workers_of(fleet: Fleet, client_id: str) -> set[int]:
    answer = await fleet.apis[0].get(f"/v1/clients/{client_id}")
    if answer.status_code == 404:
        return set()
    client = await fleet.get(f"/v1/clients/{client_id}")
    return {int(number.partition(":")[0]) for number in client["connections"]}
