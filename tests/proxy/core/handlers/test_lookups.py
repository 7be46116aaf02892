import pytest

from protocol_negotiation.advertised_address import Advertise
from proxy.core.advertised_listeners import AdvertisedListener, ListenerRoutes
from remoting.codes import version_ordinal
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS
from remoting.routes import TopicRoute
from tests.proxy.fakes import FakeBackend, FakeChannel, peer, stage
from tests.proxy.messages import complete, java, route

pytestmark = pytest.mark.anyio

OLD_JAVA, NEW_JAVA = version_ordinal(4, 9, 4), version_ordinal(4, 9, 5)


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


async def test_turns_of_a_limited_number_of_topics_are_remembered() -> None:
    names = [f"t{number}" for number in range(1000)]
    on = stage(FakeBackend(warm={name: route(name, "broker-a", "broker-b") for name in ("orders", *names)}))
    client = FakeChannel()
    for name in names:
        for topic in (name, "orders"):
            await on.ask(query(topic), client)
    assert len(client.session.query_turns) == 64
    assert client.session.query_turns["orders"] == 1000


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


@pytest.mark.parametrize(
    ("version", "dedicated", "asked"),
    [(OLD_JAVA, ("broker-b",), "ac"), (NEW_JAVA, ("broker-b",), "ab"), (OLD_JAVA, ("broker-a", "broker-b"), "cc")],
)
async def test_clients_ask_brokers_with_a_listener_of_their_own_there(
    version: int, dedicated: tuple[str, ...], asked: str
) -> None:
    listeners = [AdvertisedListener(8081, Advertise(), broker, broker) for broker in dedicated]
    main = AdvertisedListener(8080, Advertise(), None, "main")
    warm = {"orders": route("orders", "broker-a", "broker-b", "broker-c")}
    on = stage(FakeBackend(warm=warm), addresses=ListenerRoutes([main, *listeners]))
    client = FakeChannel(peer(listener="main"))
    for _ in range(2):
        await on.ask(java(query(), version), client)
    assert [sent.broker[-1] for sent in on.backend.sent] == list(asked)


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
