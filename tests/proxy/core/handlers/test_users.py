import orjson
import pytest

from proxy.core.principal import UNAUTHENTICATED
from proxy.core.signing import Signer, SigningPolicy
from remoting import command as commands
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, ServiceUnavailable, UnsupportedRequest
from remoting.requests import REQUESTS, Action
from remoting.signature import Credentials
from tests.proxy.fakes import Answer, FakeBackend, FakeChannel, peer, stage
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio

_CREATE = request(RequestCode.AUTH_CREATE_USER, b"{}", username="alice")
_LIST = request(RequestCode.AUTH_LIST_USER)


def _brokers(answer: Answer = lambda broker, _: commands.success(body=broker.encode())) -> FakeBackend:
    return FakeBackend(names=["broker-b", "broker-a"], answer=answer)


def _failing(*names: str) -> Answer:
    return lambda broker, _: ServiceUnavailable("away") if broker in names else commands.success(body=broker.encode())


async def test_changes_reach_every_broker_and_queries_one() -> None:
    on = stage(_brokers())
    assert (await on.ask(_CREATE)).code == ResponseCode.SUCCESS
    assert [(sent.broker, sent.body) for sent in on.backend.sent] == [("broker-a", b"{}"), ("broker-b", b"{}")]
    on.backend.sent.clear()
    assert (await on.ask(_LIST)).body == b"broker-a"
    assert [sent.broker for sent in on.backend.sent] == ["broker-a"]


async def test_listener_of_one_broker_manages_its_users_only() -> None:
    on = stage(_brokers())
    client = FakeChannel(peer(broker="broker-b"))
    await on.ask(_CREATE, client)
    await on.ask(_LIST, client)
    assert [sent.broker for sent in on.backend.sent] == ["broker-b", "broker-b"]


async def test_queries_pass_over_a_broker_that_is_away_and_changes_report_it() -> None:
    on = stage(_brokers(_failing("broker-a")))
    assert (await on.ask(_LIST)).body == b"broker-b"
    with pytest.raises(ServiceUnavailable, match="broker-a: away"):
        await on.ask(_CREATE)
    with pytest.raises(ServiceUnavailable, match="away"):
        await stage(_brokers(_failing("broker-a", "broker-b"))).ask(_LIST)


async def test_refusal_of_one_broker_names_it() -> None:
    def answer(broker: str, _: RemotingCommand) -> RemotingCommand:
        refused = commands.response(ResponseCode.NO_PERMISSION, remark="The user is existed")
        return refused if broker == "broker-b" else commands.success()

    reply = await stage(_brokers(answer)).ask(_CREATE)
    assert (reply.code, reply.remark) == (ResponseCode.NO_PERMISSION, "broker-b: The user is existed")


async def test_requests_of_unknown_senders_are_not_signed_as_gantrys_own() -> None:
    on = stage(_brokers())
    stranger = FakeChannel(principal=UNAUTHENTICATED)
    on.core.signing = SigningPolicy(Signer(Credentials("gantry", "secret"), replaces_signatures=True))
    for command in (_CREATE, _LIST):
        with pytest.raises(NotPermitted, match="authentication"):
            await on.ask(command, stranger)
    assert on.backend.sent == []


@pytest.mark.parametrize("code", [code for code in RequestCode if code.name.startswith("AUTH_")])
def test_tools_that_may_only_read_get_no_passwords(code: RequestCode) -> None:
    row = REQUESTS[code]
    assert row.tool
    assert (row.action is Action.GET) == (code in (RequestCode.AUTH_GET_ACL, RequestCode.AUTH_LIST_ACL))


async def test_code_after_the_last_is_unsupported() -> None:
    """RocketMQ 5.4 and 5.5 end with AUTH_LIST_ACL, 3010."""
    with pytest.raises(UnsupportedRequest, match="3011"):
        await stage(_brokers()).ask(request(3011))


async def test_list_of_brokers_has_the_proxys_addresses() -> None:
    reply = await stage(_brokers()).ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
    data = fastjson.loads(reply.body)
    assert data["clusterAddrTable"] == {"DefaultCluster": ["broker-a", "broker-b"]}
    assert data["brokerAddrTable"]["broker-a"] == {
        "brokerName": "broker-a",
        "cluster": "DefaultCluster",
        "brokerAddrs": {"0": "198.51.100.9:8080"},
    }, orjson.dumps(data)
