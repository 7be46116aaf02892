"""The embedded backend, and the broker's listener."""

import time
from collections.abc import Callable

import orjson
import pytest

from proxy.core.client_registry import Groups
from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.broker.settings import BrokerSettings
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS
from tests.cluster.client import heartbeat, send_fields, strings, v2
from tests.proxy.embedded.broker_harness import START
from tests.proxy.embedded.memory_store import MemoryStore
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio


@pytest.fixture
async def backend() -> EmbeddedBackend:
    return EmbeddedBackend(BrokerSettings(), MemoryStore(lambda: START), lambda channel, command: None, lambda: START)


async def _send(backend: EmbeddedBackend, topic: str) -> RemotingCommand:
    command = commands.request(RequestCode.SEND_MESSAGE_V2, strings(v2(send_fields(topic))), b"x")
    return await backend.request("broker-a", REQUESTS[RequestCode.SEND_MESSAGE_V2], command, 3, FakeChannel())


async def test_routes_follow_the_topics(backend: EmbeddedBackend) -> None:
    assert backend.cached_route("t") is None
    with pytest.raises(TopicNotExist):
        await backend.route("t")
    assert (await _send(backend, "t")).code == ResponseCode.SUCCESS
    route = await backend.route("t")
    assert backend.cached_route("t") is route
    assert (route.brokers, route.queues[0].read) == (("broker-a",), 4)
    assert await backend.brokers() == ("broker-a",)
    assert backend.has_broker("broker-a")
    assert not backend.has_broker("broker-b")


async def test_requests_to_another_broker_are_rejected(backend: EmbeddedBackend) -> None:
    spec, command = REQUESTS[RequestCode.GET_MAX_OFFSET], commands.request(RequestCode.GET_MAX_OFFSET)
    with pytest.raises(ServiceUnavailable, match="broker-b"):
        backend.request("broker-b", spec, command, 3, None)
    with pytest.raises(ServiceUnavailable, match="broker-b"):
        backend.oneway("broker-b", spec, command, None)


async def test_a_request_without_a_response_gets_success(backend: EmbeddedBackend) -> None:
    fields = {"producerGroup": "p", "commitOrRollback": "0", "commitLogOffset": "0", "tranStateTableOffset": "0"}
    command = commands.request(RequestCode.END_TRANSACTION, fields)
    reply = await backend.request("broker-a", REQUESTS[RequestCode.END_TRANSACTION], command, 3, None)
    assert reply.code == ResponseCode.SUCCESS


async def test_register_and_unregister_change_memberships(backend: EmbeddedBackend) -> None:
    channel = FakeChannel()
    body = heartbeat("c", {"g": ["t"], "left": ["t"]}, ["p"])
    channel.session.membership.heartbeat = commands.request(RequestCode.HEART_BEAT, {}, body)
    channel.session.client_id = "c"
    groups = Groups(frozenset({"p"}), frozenset({"g"}))
    await backend.register(channel, groups, ["elsewhere"])
    assert not backend.broker.members.consumers
    await backend.register(channel, groups, ["broker-a"])
    assert list(backend.broker.members.consumers) == ["g"]
    assert backend.broker.members.producers_in_turn("p") == [channel]
    await backend.unregister(channel, groups)
    assert not backend.broker.members.consumers
    assert not backend.broker.members.producers
    channel.closed = True
    await backend.register(channel, groups, ["broker-a"])
    assert not backend.broker.members.consumers


async def test_requests_without_a_client_are_served(backend: EmbeddedBackend) -> None:
    spec = REQUESTS[RequestCode.HEART_BEAT]
    command = commands.request(RequestCode.HEART_BEAT, {}, orjson.dumps({"clientID": "c"}))
    assert (await backend.request("broker-a", spec, command, 3, None)).code == ResponseCode.INVALID_PARAMETER
    config = commands.request(351, {"topic": "TBW102"})
    assert (await backend.request("broker-a", spec, config, 3, None)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("left", "expected"), [(True, 0.06), (False, 0.05)])
async def test_after_parts_of_work_requests_have_as_much_time(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch, left: bool, expected: float
) -> None:
    pauses: list[float] = []

    def tick(now: int) -> bool:
        # The parts of three routines.
        time.sleep(0.06)
        return left

    async def every_once(interval: Callable[[], float], act: Callable[[], None], *, name: str) -> None:
        if name == "routines of the broker":
            act()
            pauses.append(interval())

    monkeypatch.setattr(backend.broker, "tick", tick)
    monkeypatch.setattr("proxy.embedded.backend.every", every_once)
    await backend.run()
    assert pauses[0] >= expected
    assert left or pauses == [expected]
