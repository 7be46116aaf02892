"""Requests to the name servers: routes, the list of brokers, deletion of topics, and requests of tools."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from proxy.backends.cluster.server_connection import ServerConnection, ServerOptions
from proxy.core.signing import Signer
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode, ToolCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import RemotingError, ServiceUnavailable, TopicNotExist, UnsupportedRequest, no_route
from remoting.fastjson import load_object
from remoting.outcomes import Reply
from remoting.routes import Replicas, TopicRoute, merge_clusters, merge_routes, parse, parse_cluster
from remoting.tasks import spawn

# Seconds to wait for further name servers after the first reply.
_STRAGGLER_TIMEOUT = 1.0
# Request standard JSON instead of fastjson's dialect, whatever version our requests carry.
_STANDARD_JSON = {"acceptStandardJsonOnly": "true"}

_Result = TypeVar("_Result")


class NameServers:
    """All name servers of a cluster. They do not communicate, so each may lack brokers that another one lists."""

    def __init__(
        self,
        addresses: Sequence[str],
        options: ServerOptions,
        signer: Signer | None = None,
    ) -> None:
        self._servers = [ServerConnection(address, options, _refuse) for address in addresses]
        # Of each request, in seconds.
        self._timeout = options.connect_timeout
        self._signer = signer

    @property
    def connections(self) -> Sequence[ServerConnection]:
        """The connections, one for each name server."""
        return self._servers

    async def route(self, topic: str) -> TopicRoute:
        """Return a topic's route, merged from all name servers that answer within a second of the first.

        A restarted name server only lists the brokers that have registered with it again; alone, its route would lack
        queues. Raises TopicNotExist if at least one name server answered and none has the topic, otherwise
        ServiceUnavailable.
        """
        outcomes = await _outcomes([self._route(server, topic) for server in self._servers])
        routes = [route for route in outcomes if isinstance(route, TopicRoute)]
        if routes:
            return merge_routes(routes)
        if any(isinstance(outcome, TopicNotExist) for outcome in outcomes):
            raise no_route(topic)
        reasons = "; ".join(map(str, outcomes))
        raise ServiceUnavailable(f"no name server returned the route of {topic}: {reasons}")

    async def _route(self, server: ServerConnection, topic: str) -> TopicRoute:
        reply = await self._ask(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **_STANDARD_JSON})
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            raise no_route(topic)
        _check_success(server, reply)
        return parse(topic, reply.body)

    async def brokers(self) -> dict[str, Replicas]:
        """Return the brokers of the name servers that answer. Raises ServiceUnavailable if none answers.

        Requests to a broker that has moved wait for it.
        """
        return merge_clusters(await self._ask_all(self._brokers, "can be reached"))

    async def topics(self) -> frozenset[str]:
        """Return the names of all topics on the name servers that answer. Raises ServiceUnavailable if none does."""
        return frozenset().union(*await self._ask_all(self._topics, "returned the list of topics"))

    async def _ask_all(
        self, ask: Callable[[ServerConnection], Coroutine[Any, Any, _Result]], success: str
    ) -> list[_Result]:
        """Return the results of the name servers that answer within a second of the first, since one may hang.

        Raises ServiceUnavailable if none answers.
        """
        outcomes = await _outcomes([ask(server) for server in self._servers])
        results = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        if not results:
            raise ServiceUnavailable(f"no name server {success}: {'; '.join(map(str, outcomes))}")
        return results

    async def _topics(self, server: ServerConnection) -> frozenset[str]:
        reply = await self._ask(server, ToolCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        _check_success(server, reply)
        return frozenset(map(str, load_object(reply.body).get("topicList") or ()))

    async def _brokers(self, server: ServerConnection) -> dict[str, Replicas]:
        reply = await self._ask(server, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        _check_success(server, reply)
        return parse_cluster(reply.body)

    async def delete_topic(self, topic: str) -> None:
        """Remove a deleted topic from all name servers. Raises ServiceUnavailable if one of them failed.

        A name server keeps topics that brokers no longer report (RocketMQ's deleteTopicWithBrokerRegistration is off
        by default).
        """
        await asyncio.gather(*(self._delete_topic(server, topic) for server in self._servers))

    async def _delete_topic(self, server: ServerConnection, topic: str) -> None:
        _check_success(server, await self._ask(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}))

    async def query(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        """Return the reply of the first name server that replies. Raises ServiceUnavailable if none does."""
        reasons: list[str] = []
        for server in self._servers:
            try:
                return await self._ask(server, code, fields)
            except RemotingError as error:
                reasons.append(str(error))
        raise ServiceUnavailable(f"no name server can be reached: {'; '.join(reasons)}")

    async def change(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        """Return the replies of all name servers as one: the first that is not SUCCESS, else the first.

        Raises RemotingError if one of them does not reply.
        """
        replies = await asyncio.gather(*(self._ask(server, code, fields) for server in self._servers))
        return next((reply for reply in replies if reply.code != ResponseCode.SUCCESS), replies[0])

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.close()

    async def _ask(self, server: ServerConnection, code: int, fields: dict[str, str]) -> RemotingCommand:
        future: Reply = asyncio.get_running_loop().create_future()
        command = commands.request(code, dict(fields))
        if self._signer is not None:
            # RocketMQ's own name servers do not check it.
            self._signer.sign(command)
        server.request(command, self._timeout, future)
        return await future


async def _outcomes(requests: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result | BaseException]:
    """Return the results and errors of requests, without those that end over a second after the first result."""
    tasks = [spawn(request) for request in requests]
    done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    while late and not any(task.exception() is None for task in done):
        more, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    if late:
        more, late = await asyncio.wait(late, timeout=_STRAGGLER_TIMEOUT)
        done |= more
    for task in late:
        task.cancel()
    return [task.exception() or task.result() for task in tasks if task in done]


def _check_success(server: ServerConnection, reply: RemotingCommand) -> None:
    if reply.code != ResponseCode.SUCCESS:
        raise ServiceUnavailable(f"{server.address} answered {reply.code}: {reply.remark}")


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"request {command.code} of a name server is not supported")
