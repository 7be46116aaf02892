"""Name server requests that clients cause by unknown names."""

import asyncio

import pytest

from remoting import command as commands
from remoting.codes import RequestCode
from remoting.errors import Overloaded, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.servers import Cluster

pytestmark = pytest.mark.anyio

_COUNT = 1_000


async def test_random_topics_cause_few_requests_and_a_new_topic_is_found(cluster: Cluster) -> None:
    await cluster.broker()
    backend = await cluster.backend()
    [name_server] = cluster.names

    async def look_up(topic: str) -> type[RemotingError] | None:
        try:
            await backend.route(topic)
        except RemotingError as error:
            return type(error)
        return None

    unknown = await asyncio.gather(*(look_up(f"random-{number}") for number in range(_COUNT)))
    assert set(unknown) == {TopicNotExist}
    assert len(name_server.received) < _COUNT / 5
    # Created during the flood.
    flood = asyncio.gather(*(look_up(f"more-{number}") for number in range(_COUNT)))
    await asyncio.sleep(0)
    cluster.topics["new"] = ["broker-a"]
    async with asyncio.timeout(20):
        assert (await backend.route("new")).brokers == ("broker-a",)
    await flood
    assert len(name_server.received) < _COUNT / 4


async def test_random_brokers_cause_few_requests_and_a_new_broker_is_found(cluster: Cluster) -> None:
    await cluster.broker()
    backend = await cluster.backend()
    [name_server] = cluster.names
    spec = REQUESTS[RequestCode.GET_MAX_OFFSET]

    def ask(broker: str) -> "asyncio.Future[commands.RemotingCommand]":
        fields = {"topic": "t", "queueId": "0", "bname": broker}
        return backend.request(broker, spec, commands.request(spec.code, fields), 10, None)

    for start in (0, _COUNT):
        replies = await asyncio.gather(*(ask(f"random-{start + n}") for n in range(_COUNT)), return_exceptions=True)
        assert {type(reply) for reply in replies} == {ServiceUnavailable}
    await cluster.broker("broker-b")
    async with asyncio.timeout(20):
        assert (await ask("broker-b")).code == 0
    assert name_server.codes.count(RequestCode.GET_BROKER_CLUSTER_INFO) <= 12


async def test_without_a_list_of_topics_look_ups_are_refused(cluster: Cluster) -> None:
    await cluster.broker()
    backend = await cluster.backend()
    [name_server] = cluster.names
    answer = name_server.answer
    name_server.answer = lambda command: (
        commands.response(1, remark="disable") if command.code == 206 else answer(command)
    )
    outcomes = await asyncio.gather(*(backend.route(f"random-{n}") for n in range(200)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {TopicNotExist, Overloaded}
