"""The name servers: asked for routes and for the list of brokers, and never for anything else."""

import asyncio
from collections.abc import Sequence

from proxy.cluster.link import Link
from proxy.routes import Replicas, TopicRoute, merge, parse, parse_cluster
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import RemotingError, ServiceUnavailable, TopicNotExist, UnsupportedRequest
from remoting.wheel import TimeoutWheel

# Standard JSON instead of fastjson's dialect, whatever our version tells the name server.
_STANDARD_JSON = {"acceptStandardJsonOnly": "true"}


class NameServers:
    """All name servers of a cluster. They do not talk to each other, so any may know less than the others."""

    def __init__(self, addresses: Sequence[str], wheel: TimeoutWheel, timeout: float) -> None:
        self._links = [Link(address, wheel, _refuse, timeout) for address in addresses]
        self._timeout = timeout

    async def route(self, topic: str) -> TopicRoute:
        """A topic's route from the first name server that knows it, asked one after the other.

        Raises TopicNotExist when at least one of them answered and none knows the topic, otherwise
        ServiceUnavailable.
        """
        unknown = False
        trouble: list[str] = []
        for link in self._ordered():
            try:
                reply = await self._ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **_STANDARD_JSON})
                if reply.code == ResponseCode.SUCCESS:
                    return parse(topic, reply.body)
            except RemotingError as error:
                trouble.append(str(error))
                continue
            if reply.code == ResponseCode.TOPIC_NOT_EXIST:
                unknown = True
            else:
                trouble.append(f"{link.address} answered {reply.code}: {reply.remark}")
        if unknown:
            raise TopicNotExist(f"no route info of topic {topic}")
        raise ServiceUnavailable(f"no name server can be asked for the route of {topic}: {'; '.join(trouble)}")

    async def brokers(self) -> dict[str, Replicas]:
        """All brokers that any reachable name server knows. Raises ServiceUnavailable when none answers."""
        answers = await asyncio.gather(*map(self._view, self._links), return_exceptions=True)
        views = [answer for answer in answers if not isinstance(answer, BaseException)]
        if not views:
            raise ServiceUnavailable(f"no name server can be reached: {'; '.join(map(str, answers))}")
        return merge(views)

    async def _view(self, link: Link) -> dict[str, Replicas]:
        reply = await self._ask(link, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        if reply.code != ResponseCode.SUCCESS:
            raise ServiceUnavailable(f"{link.address} answered {reply.code}: {reply.remark}")
        return parse_cluster(reply.body)

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    def _ordered(self) -> list[Link]:
        """The name servers, those that could not be reached lately last."""
        return sorted(self._links, key=lambda link: link.failed_at or 0.0)

    async def _ask(self, link: Link, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        link.request(commands.request(code, dict(fields)), self._timeout, future)
        return await future


def _refuse(_: RemotingConnection, command: RemotingCommand) -> None:
    raise UnsupportedRequest(f"a name server has no business asking {command.code}")
