"""A cluster in this process: name servers and brokers on our own remoting connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.backends.cluster.backend import ClusterBackend
from proxy.core.signing import Signer
from proxy.settings.cluster import ClusterSettings
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.outcomes import Reply
from remoting.timeout_wheel import TimeoutWheel
from tests.ports import free_port

Answer = Callable[[RemotingCommand], RemotingCommand | None]

# GET_ALL_TOPIC_LIST_FROM_NAMESERVER.
_ALL_TOPICS = 206


class Server:
    """A server that answers requests by `answer` (None: no response) and records the received ones."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.answer = answer
        self.port = port or free_port()
        self.received: list[RemotingCommand] = []
        self.connections: list[RemotingConnection] = []
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def codes(self) -> list[int]:
        return [command.code for command in self.received]

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", self.port)

    def stop(self) -> None:
        """Abort the connections and stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Abort the connections and keep listening."""
        for connection in self.connections:
            connection.abort(CloseCause.LOCAL)
        self.connections = []
        self._changed.set()

    async def until(self, condition: Callable[["Server"], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    def _connection(self) -> RemotingConnection:
        wheel = TimeoutWheel(asyncio.get_running_loop().time)
        connection = RemotingConnection(wheel, self._serve, lambda _: self._changed.set(), name="client")
        self.connections.append(connection)
        return connection

    def _serve(self, _: RemotingConnection, command: RemotingCommand) -> Reply | None:
        self.received.append(command)
        self._changed.set()
        answer = self.answer(command)
        if answer is None:
            return None
        reply: Reply = asyncio.get_running_loop().create_future()
        reply.set_result(answer)
        return reply


@dataclass
class Cluster:
    """The name servers' data: `table` has addresses by broker name and id, `topics` has brokers by topic."""

    table: dict[str, dict[str, str]] = field(default_factory=dict)
    topics: dict[str, list[str]] = field(default_factory=dict)
    acting: bool = False
    servers: list[Server] = field(default_factory=list)
    backends: list[ClusterBackend] = field(default_factory=list)
    names: list[Server] = field(default_factory=list)

    async def server(self, answer: Answer, port: int = 0) -> Server:
        server = Server(answer, port)
        self.servers.append(server)
        await server.start()
        return server

    async def name_server(self, port: int = 0, table: dict[str, dict[str, str]] | None = None) -> Server:
        self.names.append(await self.server(lambda command: self._name_server_answer(command, table), port))
        return self.names[-1]

    async def broker(self, name: str = "broker-a", number: int = 0, answer: Answer | None = None) -> Server:
        """Start a broker that the name servers list; by default its replies contain its name and id."""
        signed = commands.success({"by": f"{name}/{number}"})
        server = await self.server(answer or (lambda _: _copy(signed)))
        self.table.setdefault(name, {})[str(number)] = server.address
        return server

    async def backend(
        self, *namesrv: str, push: Any = None, signer: Signer | None = None, **settings: Any
    ) -> ClusterBackend:
        """Start a backend in front of the cluster, by default with one name server."""
        if not namesrv:
            namesrv = ((await self.name_server()).address,)
        wheel = TimeoutWheel(asyncio.get_running_loop().time)
        backend = ClusterBackend(ClusterSettings(namesrv=list(namesrv), **settings), wheel, push, signer=signer)
        self.backends.append(backend)
        await backend.start()
        return backend

    def _name_server_answer(self, command: RemotingCommand, table: dict[str, dict[str, str]] | None) -> RemotingCommand:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return commands.success(body=orjson.dumps({"brokerAddrTable": self._datas(table)}))
        if command.code == RequestCode.DELETE_TOPIC_IN_NAMESRV:
            self.topics.pop(command.fields["topic"], None)
            return commands.success()
        if command.code == _ALL_TOPICS:
            return commands.success(body=orjson.dumps({"topicList": list(self.topics)}))
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return commands.response(3, remark="not a request for a name server")
        topic = command.fields["topic"]
        if topic not in self.topics:
            return commands.response(17, remark=f"no topic {topic}")
        datas = self._datas(table)
        return commands.success(body=orjson.dumps({"brokerDatas": [datas[name] for name in self.topics[topic]]}))

    def _datas(self, table: dict[str, dict[str, str]] | None) -> dict[str, Any]:
        return {
            name: {"cluster": "c", "brokerName": name, "brokerAddrs": addresses, "enableActingMaster": self.acting}
            for name, addresses in (self.table if table is None else table).items()
        }


def _copy(command: RemotingCommand) -> RemotingCommand:
    return commands.response(command.code, dict(command.fields), command.body)


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    """Yield a cluster; at the end, close all of its servers and backends."""
    cluster = Cluster()
    try:
        yield cluster
    finally:
        for backend in cluster.backends:
            backend.close()
        for server in cluster.servers:
            server.stop()
        # The event loop closes transports in callbacks.
        for _ in range(5):
            await asyncio.sleep(0)
        assert all(set(name.codes) <= {105, 106, _ALL_TOPICS, 216} for name in cluster.names), (
            "not a request for a name server"
        )
