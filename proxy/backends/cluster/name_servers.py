"""The name servers: asked for routes and for the list of brokers, told what a tool has deleted, and nothing else."""

import asyncio
from collections.abc import Sequence

from proxy.backends.cluster.server_connection import ServerConnection
from proxy.observability.metrics.upstream import Upstreams
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import ServiceUnavailable, TopicNotExist, UnsupportedRequest
from remoting.routes import Replicas, TopicRoute, merge_clusters, merge_routes, parse, parse_cluster
from remoting.tasks import spawn
from remoting.timeout_wheel import TimeoutWheel

# Seconds that slower name servers get once one has answered.
_STRAGGLER = 1.0
# Standard JSON instead of fastjson's dialect, whatever our version tells the name server.
_STANDARD_JSON = {"acceptStandardJsonOnly": "true"}


class NameServers:
    """All name servers of a cluster. They do not talk to each other, so any may know less than the others."""

    def __init__(
        self, addresses: Sequence[str], wheel: TimeoutWheel, timeout: float, upstreams: Upstreams | None = None
    ) -> None:
        self._links = [ServerConnection(address, wheel, _refuse, timeout, upstreams=upstreams) for address in addresses]
        self._timeout = timeout

    @property
    def links(self) -> Sequence[ServerConnection]:
        """The connections, one for each name server."""
        return self._links

    async def route(self, topic: str) -> TopicRoute:
        """A topic's route, joined from what all name servers know of it.

        One that was just restarted knows the brokers that have registered with it so far, so its
        word alone would make queues disappear. Whoever answers a second later than the first is not
        waited for. Raises TopicNotExist when at least one of them answered and none knows the
        topic, otherwise ServiceUnavailable.
        """
        tasks = [spawn(self._route(link, topic)) for link in self._links]
        done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        while late and not any(task.exception() is None for task in done):
            more, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        if late:
            more, late = await asyncio.wait(late, timeout=_STRAGGLER)
            done |= more
        for task in late:
            task.cancel()
        outcomes = [task.exception() or task.result() for task in tasks if task in done]
        routes = [route for route in outcomes if isinstance(route, TopicRoute)]
        if routes:
            return merge_routes(routes)
        if any(isinstance(outcome, TopicNotExist) for outcome in outcomes):
            raise TopicNotExist(f"no route info of topic {topic}")
        trouble = "; ".join(map(str, outcomes))
        raise ServiceUnavailable(f"no name server can be asked for the route of {topic}: {trouble}")

    async def _route(self, link: ServerConnection, topic: str) -> TopicRoute:
        reply = await self._ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **_STANDARD_JSON})
        if reply.code == ResponseCode.SUCCESS:
            return parse(topic, reply.body)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotExist(f"no route info of topic {topic}")
        raise ServiceUnavailable(f"{link.address} answered {reply.code}: {reply.remark}")

    async def brokers(self) -> dict[str, Replicas]:
        """All brokers that any reachable name server knows. Raises ServiceUnavailable when none answers."""
        answers = await asyncio.gather(*map(self._view, self._links), return_exceptions=True)
        views = [answer for answer in answers if not isinstance(answer, BaseException)]
        if not views:
            raise ServiceUnavailable(f"no name server can be reached: {'; '.join(map(str, answers))}")
        return merge_clusters(views)

    async def _view(self, link: ServerConnection) -> dict[str, Replicas]:
        reply = await self._ask(link, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        if reply.code != ResponseCode.SUCCESS:
            raise ServiceUnavailable(f"{link.address} answered {reply.code}: {reply.remark}")
        return parse_cluster(reply.body)

    async def delete_topic(self, topic: str) -> None:
        """Take a deleted topic out of all of them. Raises ServiceUnavailable where one still has it.

        Brokers cannot: a name server keeps what a broker no longer reports (RocketMQ's
        deleteTopicWithBrokerRegistration, off by default).
        """
        await asyncio.gather(*(self._delete_topic(link, topic) for link in self._links))

    async def _delete_topic(self, link: ServerConnection, topic: str) -> None:
        reply = await self._ask(link, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
        if reply.code != ResponseCode.SUCCESS:
            raise ServiceUnavailable(f"{link.address} answered {reply.code}: {reply.remark}")

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    async def _ask(self, link: ServerConnection, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        link.request(commands.request(code, dict(fields)), self._timeout, future)
        return await future


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"a name server has no business asking {command.code}")
