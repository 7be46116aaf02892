import orjson
import pytest

from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable, TopicNotExist
from remoting.routes import parse
from tests.proxy.fakes import FakeBackend, FakeChannel, settle, stage
from tests.proxy.messages import heartbeat, java, request, route

pytestmark = pytest.mark.anyio


def ask(version: int = STANDARD_JSON_VERSION, **more: str) -> RemotingCommand:
    return java(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders", **more), version)


@pytest.mark.parametrize(
    "backend", [{"warm": {"orders": route()}}, {"cold": {"orders": route()}}], ids=["warm", "cold"]
)
async def test_route_contains_only_addresses_of_the_proxy(backend: dict[str, object]) -> None:
    answer = await stage(FakeBackend(**backend)).ask(ask())  # type: ignore[arg-type]
    (broker,) = orjson.loads(answer.body)["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": "198.51.100.9:8080", "1": "198.51.100.9:8080"}


@pytest.mark.parametrize(
    ("command", "standard"),
    [
        (ask(STANDARD_JSON_VERSION), True),
        (ask(STANDARD_JSON_VERSION - 1), False),
        (ask(0), False),
        (ask(0, acceptStandardJsonOnly="true"), True),
        (ask(0, acceptStandardJsonOnly="false"), False),
    ],
)
async def test_route_is_encoded_in_the_clients_json_dialect(command: RemotingCommand, standard: bool) -> None:
    body = (await stage(FakeBackend(warm={"orders": route()})).ask(command)).body
    assert (b'{"0":' in body, b"{0:" in body) == (standard, not standard)
    assert parse("orders", body).brokers == ("broker-a",)


async def test_route_registers_the_client_at_its_brokers() -> None:
    on = stage(FakeBackend(warm={"orders": route("orders", "broker-a", "broker-b")}))
    client = FakeChannel()
    await on.ask(heartbeat(producers=["p"]), client)
    await on.ask(ask(), client)
    await on.ask(ask(), client)
    await settle()
    assert [set(brokers) for _, _, brokers in on.backend.registered] == [set(), {"broker-a", "broker-b"}]


@pytest.mark.parametrize(("trouble", "code"), [(TopicNotExist("no"), 17), (ServiceUnavailable("no"), 14)])
async def test_missing_route_raises_the_reason(trouble: Exception, code: int) -> None:
    on = stage(FakeBackend(cold={"orders": trouble}))
    with pytest.raises(type(trouble)):
        await on.ask(ask())
    await settle()
    assert on.observed == [("GET_ROUTEINFO_BY_TOPIC", code)]
