"""Requests that only operators' tools send: each goes to name servers, to all brokers or to one."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from proxy.backends import tool_requests
from proxy.backends.tool_requests import CLUSTER_TOOL_REQUESTS, TOOL_HANDLERS
from proxy.core.handlers import HANDLERS
from remoting import command as commands
from remoting.broker_requests import TOOL_REQUESTS
from remoting.codes import RequestCode, ResponseCode, ToolCode
from remoting.command import RemotingCommand
from remoting.errors import BrokerNotNamed, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.requests import REQUESTS, Action
from tests.cluster.client import Client
from tests.ports import free_port
from tests.proxy.fakes import FakeBackend, FakeChannel, Stage, peer, stage
from tests.proxy.messages import route
from tests.proxy.replica import on_free_port, running

pytestmark = pytest.mark.anyio

_T = ToolCode
_BROKERS = ["broker-b", "broker-a", "broker-c"]
_OF_ONE_BROKER = {
    _T.GET_BROKER_RUNTIME_INFO,
    _T.GET_ALL_CONSUMER_OFFSET,
    _T.GET_BROKER_CONSUME_STATS,
    _T.QUERY_CONSUME_QUEUE,
    _T.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_CONFIG,
}


def _tools(answer: Callable[[str, RemotingCommand], Any] = lambda *_: commands.success()) -> tuple[Stage, FakeBackend]:
    backend = FakeBackend(names=_BROKERS, cold={"orders": route("orders", "broker-a", "broker-c")}, answer=answer)
    return stage(
        backend, handlers={**HANDLERS, **TOOL_HANDLERS}, requests={**REQUESTS, **CLUSTER_TOOL_REQUESTS}
    ), backend


def _lists(name: str, **by_broker: Any) -> Callable[[str, RemotingCommand], Any]:
    """Return brokers' answers, which have this list or are errors."""

    def answer(broker: str, _: RemotingCommand) -> RemotingCommand | RemotingError:
        value = by_broker[broker.removeprefix("broker-")]
        if isinstance(value, RemotingCommand | RemotingError):
            return value
        return commands.success(body=orjson.dumps({name: value, "brokerAddr": broker}))

    return answer


def test_every_request_of_tools_is_served_by_name_servers_or_brokers() -> None:
    assert TOOL_HANDLERS.keys() | _OF_ONE_BROKER == TOOL_REQUESTS.keys() == CLUSTER_TOOL_REQUESTS.keys()
    assert all(row.tool and row.repeatable and row.needs is None for row in CLUSTER_TOOL_REQUESTS.values())


def test_reading_settings_with_secrets_needs_the_permission_to_change_them() -> None:
    changed = {row.name for code, row in CLUSTER_TOOL_REQUESTS.items() if row != TOOL_REQUESTS[code]}
    assert changed == {"GET_BROKER_CONFIG"}
    assert CLUSTER_TOOL_REQUESTS[RequestCode.GET_BROKER_CONFIG].action is Action.UPDATE


@pytest.mark.parametrize("code", [*tool_requests.NAME_SERVER_QUERIES, *tool_requests.NAME_SERVER_CHANGES])
async def test_requests_to_name_servers_are_gantrys_own(code: int) -> None:
    on, backend = _tools()
    fields = {"namespace": "n", "AccessKey": "k", "Signature": "s"}
    assert (await on.ask(commands.request(code, fields))).code == ResponseCode.SUCCESS
    assert backend.asked == [(code, {"namespace": "n"}, code in tool_requests.NAME_SERVER_CHANGES)]
    assert not backend.sent


@pytest.mark.parametrize("code", tool_requests.BROKER_CHANGES)
async def test_changes_reach_all_brokers(code: int) -> None:
    on, backend = _tools()
    assert (await on.ask(commands.request(code, body=b"{}"))).code == ResponseCode.SUCCESS
    assert [sent.broker for sent in backend.sent] == sorted(_BROKERS)
    backend.sent.clear()
    await on.ask(commands.request(code, {"bname": "broker-b"}, b"{}"))
    await on.ask(commands.request(code, {}, b"{}"), FakeChannel(peer(broker="broker-c")))
    assert [sent.broker for sent in backend.sent] == ["broker-b", "broker-c"]


async def test_offsets_are_copied_at_the_brokers_of_the_topic() -> None:
    on, backend = _tools()
    fields = {"srcGroup": "g", "destGroup": "h", "topic": "orders"}
    await on.ask(commands.request(_T.CLONE_GROUP_OFFSET, fields))
    assert [sent.broker for sent in backend.sent] == ["broker-a", "broker-c"]
    with pytest.raises(TopicNotExist):
        await on.ask(commands.request(_T.CLONE_GROUP_OFFSET, {**fields, "topic": "missing"}))


async def test_created_topics_are_looked_up_again() -> None:
    body = orjson.dumps({"topicConfigList": [{"topicName": "one"}, {"topicName": "two"}]})
    on, backend = _tools()
    await on.ask(commands.request(_T.UPDATE_AND_CREATE_TOPIC_LIST, {}, body))
    assert backend.created == ["one", "two"]
    refusing, backend = _tools(lambda *_: commands.response(ResponseCode.INVALID_PARAMETER, remark="no"))
    reply = await refusing.ask(commands.request(_T.UPDATE_AND_CREATE_TOPIC_LIST, {}, body))
    assert (reply.remark, backend.created) == ("broker-a: no", [])


@pytest.mark.parametrize("code", tool_requests.BROKER_QUERIES)
async def test_what_all_brokers_have_comes_from_one(code: int) -> None:
    on, backend = _tools(lambda broker, _: commands.success(body=broker.encode()))
    assert (await on.ask(commands.request(code))).body == b"broker-a"
    assert len(backend.sent) == 1


@pytest.mark.parametrize("code", sorted(_OF_ONE_BROKER))
async def test_state_of_one_broker_needs_its_name(code: int) -> None:
    on, _ = _tools(lambda broker, _: commands.success(body=broker.encode()))
    with pytest.raises(BrokerNotNamed):
        await on.ask(commands.request(code))
    assert (await on.ask(commands.request(code, {"bname": "broker-b"}))).body == b"broker-b"


async def test_groups_of_a_topic_and_topics_of_a_group_are_those_of_all_brokers() -> None:
    on, backend = _tools(_lists("groupList", a=["g", "h"], c=["f", "g"]))
    reply = await on.ask(commands.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}))
    assert orjson.loads(reply.body)["groupList"] == ["f", "g", "h"]
    on, backend = _tools(_lists("topicList", a=["t"], b=None, c=["u"]))
    reply = await on.ask(commands.request(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"}))
    assert orjson.loads(reply.body)["topicList"] == ["t", "u"]
    assert len(backend.sent) == 3


async def test_the_broker_that_knows_a_subscription_answers_while_another_is_away() -> None:
    known = commands.success(body=orjson.dumps({"subscriptionData": {"topic": "orders"}}))
    unknown = commands.success(body=b"{}")
    answers = {"broker-a": ServiceUnavailable("away"), "broker-b": unknown, "broker-c": known}
    on, _ = _tools(lambda broker, _: answers[broker])
    request = commands.request(_T.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g"})
    assert (await on.ask(request)).body == known.body
    answers["broker-c"] = unknown
    with pytest.raises(ServiceUnavailable, match="away"):
        await on.ask(request)


async def test_a_refusal_of_a_change_comes_before_the_absence_of_a_later_broker() -> None:
    refusal = commands.response(ResponseCode.INVALID_PARAMETER, remark="no")
    answers = {"broker-a": refusal, "broker-b": ServiceUnavailable("away"), "broker-c": commands.success()}
    on, _ = _tools(lambda broker, _: answers[broker])
    reply = await on.ask(commands.request(_T.CLEAN_UNUSED_TOPIC))
    assert (reply.code, reply.remark) == (ResponseCode.INVALID_PARAMETER, "broker-a: no")


async def test_progress_in_time_is_that_of_the_queues_of_all_brokers() -> None:
    on, _ = _tools(_lists("consumeTimeSpanSet", a=[{"delayTime": 1}], c=[{"delayTime": 2}]))
    fields = {"topic": "orders", "group": "g"}
    reply = await on.ask(commands.request(RequestCode.QUERY_CONSUME_TIME_SPAN, fields))
    assert orjson.loads(reply.body)["consumeTimeSpanSet"] == [{"delayTime": 1}, {"delayTime": 2}]


async def test_producers_are_listed_once_though_some_brokers_do_not_know_the_group() -> None:
    unknown = commands.response(ResponseCode.SYSTEM_ERROR, remark="the producer group[p] not exist")
    clients = [{"clientId": "one"}, {"clientId": "two"}]
    on, _ = _tools(_lists("connectionSet", a=unknown, b=clients, c=clients[:1]))
    request = commands.request(_T.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    assert orjson.loads((await on.ask(request)).body)["connectionSet"] == clients
    on, _ = _tools(lambda *_: commands.response(ResponseCode.SYSTEM_ERROR, remark="not exist"))
    assert (await on.ask(request)).code == ResponseCode.SYSTEM_ERROR


async def test_the_producers_of_all_groups_are_united() -> None:
    one, two = {"clientId": "one"}, {"clientId": "two"}
    on, _ = _tools(_lists("data", a={"p": [one]}, b={"p": [one, two], "q": [two]}, c=None))
    assert orjson.loads((await on.ask(commands.request(_T.GET_ALL_PRODUCER_INFO))).body)["data"] == {
        "p": [one, two],
        "q": [two],
    }


async def test_a_list_without_that_of_a_broker_is_an_error() -> None:
    on, _ = _tools(_lists("topicList", a=["t"], b=ServiceUnavailable("away"), c=[]))
    with pytest.raises(ServiceUnavailable, match="broker-b: away"):
        await on.ask(commands.request(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"}))
    denied = commands.response(ResponseCode.NO_PERMISSION, remark="User:x has no permission to access Group:g")
    on, _ = _tools(_lists("topicList", a=["t"], b=denied, c=[]))
    reply = await on.ask(commands.request(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"}))
    assert reply.code == ResponseCode.NO_PERMISSION


async def test_a_subscription_comes_from_the_broker_that_knows_it() -> None:
    on, _ = _tools(_lists("subscriptionData", a=None, c={"subString": "*"}))
    fields = {"topic": "orders", "group": "g"}
    reply = await on.ask(commands.request(_T.QUERY_SUBSCRIPTION_BY_CONSUMER, fields))
    assert orjson.loads(reply.body)["subscriptionData"] == {"subString": "*"}
    offline = commands.response(ResponseCode.CONSUMER_NOT_ONLINE)
    on, _ = _tools(_lists("consumerTable", a=offline, c={"client": {}}))
    reply = await on.ask(commands.request(_T.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields))
    assert orjson.loads(reply.body)["consumerTable"] == {"client": {}}


async def test_the_setting_tools_applies_to_them_before_a_cluster() -> None:
    """No name server and no broker is there: requests that are permitted fail later."""
    cluster = {"namesrv": [f"127.0.0.1:{free_port()}"]}
    for permitted, allowed in ((None, {Action.GET}), ("none", set()), ("all", set(Action))):
        async with (
            running(on_free_port(cluster=cluster, tools=permitted)) as app,
            Client(str(app.addresses[0])) as client,
        ):
            for code, row in CLUSTER_TOOL_REQUESTS.items():
                denied = (await client.ask(code, {})).code == ResponseCode.NO_PERMISSION
                assert denied is (row.action not in allowed), row.name
