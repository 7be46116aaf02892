import pytest

from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS
from remoting.routes import TopicRoute
from tests.proxy.fakes import FakeBackend, FakeChannel, peer, stage
from tests.proxy.messages import complete, route

pytestmark = pytest.mark.anyio


def query(topic: str = "orders") -> RemotingCommand:
    command = complete(REQUESTS[12], topic=topic)
    del command.fields["bname"]
    return command


async def test_queries_without_a_broker_name_go_to_each_broker_in_turn() -> None:
    warm = {topic: route(topic, "broker-a", "broker-b", "broker-c") for topic in ("orders", "bills")}
    on = stage(FakeBackend(warm=warm))
    one, two = FakeChannel(), FakeChannel()
    turns = [(one, "orders"), (one, "orders"), (two, "orders"), (one, "bills"), (one, "orders"), (one, "orders")]
    for client, topic in turns:
        await on.ask(query(topic), client)
    assert [sent.broker[-1] for sent in on.backend.sent] == ["a", "b", "a", "a", "c", "a"]


@pytest.mark.parametrize(
    ("command", "channel", "broker"),
    [
        (complete(REQUESTS[12], bname="broker-x"), FakeChannel(), "broker-x"),
        (query(), FakeChannel(peer(broker="broker-y")), "broker-y"),
    ],
)
async def test_query_goes_to_the_named_broker(command: RemotingCommand, channel: FakeChannel, broker: str) -> None:
    on = stage(FakeBackend(warm={"orders": route()}))
    for _ in range(2):
        await on.ask(command, channel)
    assert [sent.broker for sent in on.backend.sent] == [broker] * 2


async def test_query_loads_a_missing_route() -> None:
    on = stage(FakeBackend(cold={"orders": route()}))
    assert (await on.ask(query())).fields == {"served by": "broker-a"}


@pytest.mark.parametrize(
    ("backend", "error"),
    [
        (FakeBackend(), TopicNotExist),
        (
            FakeBackend(warm={"orders": TopicRoute("orders", {"queueDatas": [], "brokerDatas": []}, ())}),
            ServiceUnavailable,
        ),
    ],
)
async def test_query_for_a_topic_without_brokers_is_unavailable(backend: FakeBackend, error: type[Exception]) -> None:
    with pytest.raises(error):
        await stage(backend).ask(query())
