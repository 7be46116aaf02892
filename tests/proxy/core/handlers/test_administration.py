from collections.abc import Callable
from typing import Any

import pytest

from proxy.settings.auth import AuthSettings
from proxy.settings.grpc import GrpcSettings
from proxy.settings.model import Settings
from proxy.settings.replication import SyncSettings
from remoting import command as commands
from remoting import fastjson
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.fastjson import ObjectKeys
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeBackend, FakeChannel, peer, stage
from tests.proxy.messages import complete, route

pytestmark = pytest.mark.anyio

_C = RequestCode
_BROKERS = ["broker-b", "broker-a", "broker-c"]


def backend(answer: Callable[[str, RemotingCommand], Any] = lambda *_: commands.success()) -> FakeBackend:
    return FakeBackend(names=_BROKERS, cold={"orders": route("orders", "broker-a", "broker-c")}, answer=answer)


def tool(code: RequestCode, **fields: str) -> RemotingCommand:
    """Return a request as a tool sends it: without a broker's name."""
    command = complete(REQUESTS[code], **fields)
    command.fields.pop("bname", None)
    command.fields.pop("n", None)
    return command


def table(*rates: str, **queues: int) -> bytes:
    """Return a body with a number of messages for queue 0 of each broker, and rates of 1.5."""
    pairs = (({"brokerName": name.replace("_", "-"), "queueId": 0}, {"max": end}) for name, end in queues.items())
    return fastjson.dumps({**dict.fromkeys(rates, 1.5), "offsetTable": ObjectKeys(tuple(pairs))})


@pytest.mark.parametrize(
    "code",
    [
        _C.UPDATE_AND_CREATE_TOPIC,
        _C.DELETE_TOPIC_IN_BROKER,
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        _C.DELETE_SUBSCRIPTIONGROUP,
    ],
)
async def test_changes_reach_all_brokers(code: RequestCode) -> None:
    on = stage(backend())
    assert (await on.ask(tool(code))).code == ResponseCode.SUCCESS
    assert [sent.broker for sent in on.backend.sent] == sorted(_BROKERS)


@pytest.mark.parametrize("topic", ["own-members", "own-renewals", "own-traces", "own-audit"])
async def test_topics_of_the_settings_are_not_deleted(topic: str) -> None:
    own = Settings(
        sync=SyncSettings(topic="own-members", renewals="own-renewals"),
        grpc=GrpcSettings(trace_topic="own-traces"),
        auth=AuthSettings(audit_topic="own-audit"),
    )
    on = stage(backend(), settings=own)
    with pytest.raises(NotPermitted, match=f"topic {topic} belongs to Gantry"):
        await on.ask(tool(_C.DELETE_TOPIC_IN_BROKER, topic=topic))
    assert on.backend.sent == []


@pytest.mark.parametrize(
    ("fields", "channel"), [({"bname": "broker-c"}, FakeChannel()), ({}, FakeChannel(peer(broker="broker-c")))]
)
@pytest.mark.parametrize("code", [_C.UPDATE_AND_CREATE_TOPIC, _C.GET_TOPIC_CONFIG, _C.GET_TOPIC_STATS_INFO])
async def test_a_named_broker_is_the_only_one(code: RequestCode, fields: dict[str, str], channel: FakeChannel) -> None:
    on = stage(backend())
    command = tool(code)
    command.fields.update(fields)
    await on.ask(command, channel)
    assert [sent.broker for sent in on.backend.sent] == ["broker-c"]


async def test_the_first_refusal_names_its_broker() -> None:
    def answer(broker: str, _: RemotingCommand) -> RemotingCommand:
        refused = commands.response(ResponseCode.INVALID_PARAMETER, remark="no")
        return refused if broker == "broker-b" else commands.success()

    reply = await stage(backend(answer)).ask(tool(_C.UPDATE_AND_CREATE_TOPIC))
    assert (reply.code, reply.remark) == (ResponseCode.INVALID_PARAMETER, "broker-b: no")


@pytest.mark.parametrize("code", [_C.UPDATE_AND_CREATE_TOPIC, _C.GET_TOPIC_STATS_INFO])
async def test_a_broker_that_is_away_is_an_error(code: RequestCode) -> None:
    def answer(broker: str, _: RemotingCommand) -> RemotingCommand | RemotingError:
        return ServiceUnavailable("away") if broker == "broker-c" else commands.success(body=table(broker_a=1))

    with pytest.raises(ServiceUnavailable, match="broker-c: away"):
        await stage(backend(answer)).ask(tool(code, topic="orders"))


async def test_a_created_topic_is_looked_up_again() -> None:
    on = stage(backend())
    await on.ask(tool(_C.UPDATE_AND_CREATE_TOPIC, topic="new"))
    assert on.backend.created == ["new"]
    refusing = stage(backend(lambda *_: commands.response(ResponseCode.INVALID_PARAMETER)))
    await refusing.ask(tool(_C.UPDATE_AND_CREATE_TOPIC, topic="new"))
    assert refusing.backend.created == []


@pytest.mark.parametrize(
    ("code", "first"),
    [
        (_C.GET_TOPIC_CONFIG, "broker-a"),
        (_C.GET_SUBSCRIPTIONGROUP_CONFIG, "broker-a"),
        (_C.GET_ALL_TOPIC_CONFIG, "broker-a"),
    ],
)
async def test_queries_ask_one_broker(code: RequestCode, first: str) -> None:
    on = stage(backend(lambda broker, _: commands.success(body=broker.encode())))
    assert (await on.ask(tool(code, topic="orders"))).body == first.encode()
    assert len(on.backend.sent) == 1


async def test_tables_of_all_brokers_of_the_topic_are_united() -> None:
    def answer(broker: str, _: RemotingCommand) -> RemotingCommand:
        return commands.success(body=table("topicPutTps", **{broker.replace("-", "_"): 7}))

    reply = await stage(backend(answer)).ask(tool(_C.GET_TOPIC_STATS_INFO, topic="orders"))
    merged = fastjson.load_object(reply.body)
    assert merged == {
        "topicPutTps": 1.5,
        "offsetTable": ObjectKeys(
            (
                ({"brokerName": "broker-a", "queueId": 0}, {"max": 7}),
                ({"brokerName": "broker-c", "queueId": 0}, {"max": 7}),
            )
        ),
    }


async def test_progress_of_a_group_is_that_of_all_brokers() -> None:
    def answer(broker: str, _: RemotingCommand) -> RemotingCommand:
        queues = {} if broker == "broker-b" else {broker.replace("-", "_"): 7}
        return commands.success(body=table("consumeTps", **queues))

    reply = await stage(backend(answer)).ask(tool(_C.GET_CONSUME_STATS))
    merged = fastjson.load_object(reply.body)
    assert merged["consumeTps"] == 1.5
    assert [key["brokerName"] for key, _ in merged["offsetTable"].pairs] == ["broker-a", "broker-c"]


async def test_the_only_brokers_table_is_unchanged() -> None:
    body = b'{ "offsetTable" : {} }'
    on = stage(FakeBackend(names=["broker-a"], answer=lambda *_: commands.success(body=body)))
    assert (await on.ask(tool(_C.GET_CONSUME_STATS))).body == body


async def test_statistics_of_a_topic_that_does_not_exist_are_refused() -> None:
    with pytest.raises(TopicNotExist):
        await stage(backend()).ask(tool(_C.GET_TOPIC_STATS_INFO, topic="missing"))
