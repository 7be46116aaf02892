import asyncio
from typing import Any

import orjson
import pytest

from proxy.core.client_registry import ConsumerData, Member, Role
from proxy.core.handlers import groups
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, RequestTimeout, ServiceUnavailable, TopicNotExist
from remoting.outcomes import Reply
from remoting.requests import RequestSpec
from tests.proxy.fakes import FakeBackend, FakeChannel, Stage, peer, stage
from tests.proxy.messages import heartbeat, java, request, route

pytestmark = pytest.mark.anyio

LIST = RequestCode.GET_CONSUMER_LIST_BY_GROUP
CONNECTIONS = RequestCode.GET_CONSUMER_CONNECTION_LIST
DENIALS = [
    commands.response(16, remark="no permission"),
    commands.response(1, remark="org.apache.rocketmq.acl.common.AclException: No accessKey is configured, Validator"),
]
UNIDENTIFIED = commands.response(206, remark="no consumer")


def says(answers: dict[str, Any]) -> Any:
    """Brokers that answer LIST and CONNECTIONS; brokers without an entry are unreachable."""

    def answer(broker: str, _: RemotingCommand) -> RemotingCommand | Exception:
        said = answers.get(broker, ServiceUnavailable(f"{broker} is away"))
        return commands.success(body=orjson.dumps(said)) if isinstance(said, dict) else said

    return answer


async def joined(answers: dict[str, Any], *clients: str, brokers: tuple[str, ...] = ("broker-a", "broker-b")) -> Stage:
    """Return a stage with local clients in group g, in front of these brokers."""
    on = stage(FakeBackend(names=brokers, warm={"orders": route("orders", *brokers)}, answer=says(answers)))
    for number, client_id in enumerate(clients):
        channel = FakeChannel(peer(f"192.0.2.{number}:50000"))
        await on.ask(java(heartbeat(client_id, {"g": ["orders"]}), 479), channel)
    return on


def ids(*client_ids: str) -> dict[str, Any]:
    return {"consumerIdList": list(client_ids)}


@pytest.mark.parametrize(
    ("answers", "clients", "listed"),
    [
        ({"broker-a": ids("x")}, ["c1"], ["c1", "x"]),
        ({"broker-a": ids("x", "c1")}, ["c1", "c1", "c2"], ["c1", "c2", "x"]),
        ({"broker-a": ids("x")}, [], ["x"]),
        # An unreachable broker is skipped.
        ({"broker-b": ids("x")}, ["c1"], ["c1", "x"]),
        ({}, ["c1"], ["c1"]),
        ({"broker-a": UNIDENTIFIED}, ["c1"], ["c1"]),
        ({"broker-a": {"consumerIdList": None}}, ["c1"], ["c1"]),
    ],
)
async def test_consumer_list_merges_the_registry_and_a_broker(
    answers: dict[str, Any], clients: list[str], listed: list[str]
) -> None:
    on = await joined(answers, *clients)
    answer = await on.ask(request(LIST, consumerGroup="g"))
    assert orjson.loads(answer.body) == ids(*listed)


async def test_consumer_list_includes_members_behind_other_proxies() -> None:
    on = await joined({}, "c1")
    on.registry.heartbeat(Member("far", "far"), [], {"g": ConsumerData({})}, 0)
    assert orjson.loads((await on.ask(request(LIST, consumerGroup="g"))).body) == ids("c1", "far")


@pytest.mark.parametrize("code", [LIST, CONNECTIONS])
async def test_error_of_the_broker_is_returned_for_an_unknown_group(code: int) -> None:
    on = await joined({"broker-a": UNIDENTIFIED})
    answer = await on.ask(request(code, consumerGroup="g"))
    assert (answer.code, answer.remark) == (206, "no consumer")


@pytest.mark.parametrize("code", [LIST, CONNECTIONS])
@pytest.mark.parametrize("brokers", [("broker-a",), ()])
async def test_unknown_group_is_not_online_without_a_broker(code: int, brokers: tuple[str, ...]) -> None:
    on = await joined({}, brokers=brokers)
    with pytest.raises(ConsumerNotOnline):
        await on.ask(request(code, consumerGroup="g"))


async def test_query_goes_to_a_broker_at_which_the_client_is_registered() -> None:
    on = stage(FakeBackend(names=["broker-a", "broker-b"], warm={"orders": route("orders", "broker-b")}))
    client = FakeChannel()
    await on.ask(heartbeat("c1", {"g": ["orders"]}), client)
    await on.ask(request(LIST, consumerGroup="g"), client)
    assert [sent.broker for sent in on.backend.sent] == ["broker-b"]


def connection(client_id: str, address: str) -> dict[str, Any]:
    return {"clientId": client_id, "clientAddr": address, "language": "JAVA", "version": 479}


@pytest.mark.parametrize(
    "said",
    [
        {
            "broker-a": {
                "connectionSet": [connection("c1", "10.0.0.1:1"), connection("x", "10.0.0.2:2")],
                "consumeType": "T",
            }
        },
        {"broker-a": {"connectionSet": [connection("x", "10.0.0.2:2")], "consumeType": "T"}},
    ],
)
async def test_connections_contain_the_real_addresses_of_local_clients(said: dict[str, Any]) -> None:
    on = await joined(said, "c1")
    body = orjson.loads((await on.ask(request(CONNECTIONS, consumerGroup="g"))).body)
    assert body["connectionSet"] == [connection("x", "10.0.0.2:2"), connection("c1", "192.0.2.0:50000")]
    assert body["consumeType"] == "T"


async def test_connections_without_a_broker_come_from_heartbeats() -> None:
    on = await joined({}, "c1", "c2")
    body = orjson.loads((await on.ask(request(CONNECTIONS, consumerGroup="g"))).body)
    assert body == {
        "connectionSet": [connection("c1", "192.0.2.0:50000"), connection("c2", "192.0.2.1:50000")],
        "subscriptionTable": {"orders": {"topic": "orders", "subString": "*"}},
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    }


CHECK, ASSIGN = RequestCode.CHECK_CLIENT_CONFIG, RequestCode.QUERY_ASSIGNMENT


@pytest.mark.parametrize(("code", "body"), [(CHECK, b'{"subscriptionData":{"topic":"t"}}'), (ASSIGN, b'{"topic":"t"}')])
@pytest.mark.parametrize("backend", ["warm", "cold"])
async def test_query_goes_to_the_first_broker_of_the_topic(code: int, body: bytes, backend: str) -> None:
    on = stage(FakeBackend(**{backend: {"t": route("t", "broker-b", "broker-a")}}))  # type: ignore[arg-type]
    assert (await on.ask(request(code, body))).fields == {"served by": "broker-a"}
    assert [(sent.broker, sent.body) for sent in on.backend.sent] == [("broker-a", body)]


@pytest.mark.parametrize(("code", "body"), [(CHECK, b'{"subscriptionData":{"topic":"t"}}'), (ASSIGN, b'{"topic":"t"}')])
async def test_query_on_a_dedicated_listener_goes_to_its_broker(code: int, body: bytes) -> None:
    on = stage()
    answer = await on.ask(request(code, body), FakeChannel(peer(broker="broker-x")))
    assert answer.fields == {"served by": "broker-x"}


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (CHECK, b'{"subscriptionData":{"topic":"t"}}', TopicNotExist),
        (CHECK, b'{"subscriptionData":[1]}', BodyError),
        (ASSIGN, b"nonsense", BodyError),
        (ASSIGN, b'{"topic":"empty"}', ServiceUnavailable),
    ],
)
async def test_query_with_an_invalid_body_or_without_a_broker_is_rejected(
    code: int, body: bytes, error: type[Exception]
) -> None:
    empty = route("empty")
    empty.data.update(queueDatas=[])
    on = stage(FakeBackend(warm={"empty": type(empty)("empty", {"queueDatas": [], "brokerDatas": []}, ())}))
    with pytest.raises(error):
        await on.ask(request(code, body))


async def test_members_that_leave_while_the_broker_is_asked_have_no_connections() -> None:
    on = stage(FakeBackend(names=["broker-a"], warm={"orders": route("orders", "broker-a")}))
    channel = FakeChannel(peer("192.0.2.0:50000"))
    await on.ask(java(heartbeat("c1", {"g": ["orders"]}), 479), channel)
    on.backend.pending = []
    asking = asyncio.ensure_future(on.ask(request(CONNECTIONS, consumerGroup="g")))
    while not on.backend.pending:
        await asyncio.sleep(0)
    [member] = on.registry.members(Role.CONSUMER, "g")
    on.registry.unregister(member.key, member.groups)
    on.backend.pending[0].set_result(UNIDENTIFIED)
    assert (await asking).code == UNIDENTIFIED.code


class Hanging(FakeBackend):
    """Two brokers, of which some answer nothing."""

    def __init__(self, *hanging: str) -> None:
        super().__init__(
            names=["broker-a", "broker-b"], answer=lambda *_: commands.success(body=orjson.dumps(ids("x")))
        )
        self.hanging = hanging

    def request(self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Any) -> Reply:
        if broker in self.hanging:
            return asyncio.get_running_loop().create_future()
        return super().request(broker, spec, command, timeout, channel)


@pytest.mark.parametrize("code", [LIST, CONNECTIONS])
async def test_query_passes_over_a_broker_that_Hanging(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on = stage(Hanging("broker-a"))
    on.backend.unresponsive_brokers = frozenset({"broker-a"})
    async with asyncio.timeout(0.5):
        assert (await on.ask(request(code, consumerGroup="g"))).code == 0
    on.backend.unresponsive_brokers = frozenset()
    monkeypatch.setattr(groups, "_FIRST_SECONDS", 0.01)
    async with asyncio.timeout(0.5):
        assert (await on.ask(request(code, consumerGroup="g"))).code == 0


async def test_query_fails_before_the_client_gives_up_if_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a list of local members only, they would take the queues of members elsewhere."""
    monkeypatch.setattr(groups, "_FIRST_SECONDS", 0.05)
    monkeypatch.setattr(groups, "_ANSWER_SECONDS", 0.1)
    on = stage(Hanging("broker-a", "broker-b"))
    client = FakeChannel()
    await on.ask(heartbeat("c1", {"g": ["orders"]}), client)
    with pytest.raises(RequestTimeout, match="broker-b does not answer"):
        await on.ask(request(LIST, consumerGroup="g"), client)


@pytest.mark.parametrize("denial", DENIALS)
async def test_denial_of_the_broker_is_returned(denial: RemotingCommand) -> None:
    on = await joined({"broker-a": denial}, "c1")
    assert await on.ask(request(LIST, consumerGroup="g")) is denial
