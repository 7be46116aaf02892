"""The embedded broker's own listener: the checks, limits, rules and counts of the clients' listeners apply there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.app import App
from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.broker.dispatch import BROKER, NAME_SERVER
from remoting.broker_requests import BROKER_REQUESTS, TOOL_REQUESTS
from remoting.codes import RequestCode as C
from remoting.codes import ResponseCode, ToolCode
from remoting.errors import RemotingError
from remoting.messages import decode_messages
from remoting.requests import REQUESTS, Action
from tests.cluster.client import Client, described, json, lists, pull_fields, wait_until
from tests.cluster.servers import eventually
from tests.ports import free_port
from tests.proxy.replica import on_free_port, running

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(directory: Path, **settings: Any) -> AsyncIterator[tuple[App, str]]:
    """Run a replica; yield it and the address of its broker's listener."""
    broker = f"127.0.0.1:{free_port()}"
    async with running(on_free_port(embedded={"directory": directory, "listen": broker}, **settings)) as app:
        yield app, broker


def test_every_request_that_the_broker_serves_has_a_row() -> None:
    assert {**NAME_SERVER, **BROKER}.keys() <= BROKER_REQUESTS.keys()
    assert all(BROKER_REQUESTS[code].tool for code in ToolCode)
    assert {
        row.name
        for code, row in BROKER_REQUESTS.items()
        if not row.tool and (code not in REQUESTS or REQUESTS[code].tool)
    } == {
        "GET_BROKER_CLUSTER_INFO",
        "GET_TOPIC_CONFIG",
        "GET_SUBSCRIPTIONGROUP_CONFIG",
    }


_CHANGES: dict[int, dict[str, object]] = {
    C.UPDATE_AND_CREATE_TOPIC: {
        "topic": "new",
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    },
    C.DELETE_TOPIC_IN_BROKER: {"topic": "t"},
    C.DELETE_SUBSCRIPTIONGROUP: {"groupName": "g"},
    ToolCode.PUT_KV_CONFIG: {"namespace": "n", "key": "k", "value": "v"},
    ToolCode.CLONE_GROUP_OFFSET: {"srcGroup": "g", "destGroup": "h", "topic": "t"},
    ToolCode.SET_MESSAGE_REQUEST_MODE: {},
}
_READS: dict[int, dict[str, object]] = {
    C.GET_ALL_TOPIC_CONFIG: {},
    C.GET_CONSUME_STATS: {"consumerGroup": "g"},
    C.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": "t"},
    ToolCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    ToolCode.GET_BROKER_RUNTIME_INFO: {},
    ToolCode.GET_PRODUCER_CONNECTION_LIST: {"producerGroup": "p"},
}


async def test_tools_are_permitted_as_the_setting_says(tmp_path: Path) -> None:
    async with serving(tmp_path, tools="none") as (app, broker), Client(broker) as client:
        for code, fields in {**_CHANGES, **_READS}.items():
            reply = await client.ask(code, fields)
            assert (reply.code, "the setting `tools` is 'none'" in str(reply.remark)) == (
                ResponseCode.NO_PERMISSION,
                True,
            ), described(reply)
        assert isinstance(app.backend, EmbeddedBackend)
        assert app.backend.broker.topics.get("new") is None
        assert (await client.ask(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "SELF_TEST_TOPIC"})).code == ResponseCode.SUCCESS


async def test_read_permits_queries_only(tmp_path: Path) -> None:
    async with serving(tmp_path, tools="read") as (_, broker), Client(broker) as client:
        for code, fields in _CHANGES.items():
            assert (await client.ask(code, fields)).code == ResponseCode.NO_PERMISSION, code
        for code, fields in _READS.items():
            assert (await client.ask(code, fields)).code != ResponseCode.NO_PERMISSION, code
    actions = {row.action for code, row in BROKER_REQUESTS.items() if code not in REQUESTS and row.tool}
    assert actions == {Action.GET, Action.CREATE, Action.UPDATE, Action.DELETE}


async def test_the_clients_port_serves_the_tools_requests_of_the_broker(tmp_path: Path) -> None:
    async with running(on_free_port(embedded={"directory": tmp_path})) as app, Client(str(app.addresses[0])) as client:
        await client.send("t", b"x")
        assert "t" in json(await client.get(ToolCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}))["topicList"]
        assert json(await client.get(ToolCode.GET_BROKER_RUNTIME_INFO, {}))["table"]
        mode = b'{"topic": "t", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}'
        assert (await client.ask(ToolCode.SET_MESSAGE_REQUEST_MODE, {}, mode)).code == ResponseCode.SUCCESS
        for code in TOOL_REQUESTS:
            reply = await client.ask(code, {})
            assert reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED or code not in {**NAME_SERVER, **BROKER}, code


@pytest.mark.parametrize(("permitted", "allowed"), [("none", set()), ("read", {Action.GET})])
async def test_the_setting_tools_applies_to_them_at_the_clients_port(
    tmp_path: Path, permitted: str, allowed: set[Action]
) -> None:
    async with (
        running(on_free_port(embedded={"directory": tmp_path}, tools=permitted)) as app,
        Client(str(app.addresses[0])) as client,
    ):
        for code, row in TOOL_REQUESTS.items():
            denied = (await client.ask(code, {})).code == ResponseCode.NO_PERMISSION
            assert denied is (row.action not in allowed), row.name


async def test_a_body_is_never_relayed_to_another_client(tmp_path: Path) -> None:
    async with serving(tmp_path, tools="all") as (_, broker), Client(broker) as victim, Client(broker) as stranger:
        await victim.send("t", b"x")
        await victim.heartbeat({"g": ["t"]})
        await wait_until(lists(victim, "g", victim.client_id))
        for code in (C.CONSUME_MESSAGE_DIRECTLY, C.GET_CONSUMER_RUNNING_INFO):
            fields = {"consumerGroup": "g", "clientId": victim.client_id, "brokerName": "broker-a"}
            reply = await stranger.ask(code, fields, b"a forged message")
            assert (reply.code, "has no body" in str(reply.remark)) == (ResponseCode.INVALID_PARAMETER, True), (
                described(reply)
            )
        assert victim.pushed(C.CONSUME_MESSAGE_DIRECTLY) == victim.pushed(C.GET_CONSUMER_RUNNING_INFO) == []
        # Without a body, the broker asks the client.
        reply = await stranger.ask(C.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": victim.client_id})
        assert reply.code == ResponseCode.SUCCESS, described(reply)


async def test_requests_are_checked_as_at_the_port(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, broker), Client(broker) as client:
        for code, fields, body in (
            (9999, {}, b""),
            (C.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": 0, "commitLogOffset": 0}, b""),
            (C.QUERY_CONSUMER_OFFSET, {"topic": "t"}, b""),
            (C.PULL_MESSAGE, pull_fields("t", "g"), bytes(65 * 1024)),
            (C.GET_MAX_OFFSET, {"topic": "t" * 263, "queueId": 0}, b""),
        ):
            reply = await client.ask(code, fields, body)
            assert reply.code in {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.INVALID_PARAMETER}, described(
                reply
            )


async def test_rules_limit_the_listener_by_its_name(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nname = "closed"\nkind = "deny"\nmatch = { listeners = ["embedded"], topics = ["secret"] }\n'
        '[[rule]]\nname = "few"\nkind = "connections"\nmatch = { listeners = ["embedded"] }\nmost = 2\n'
    )
    async with serving(tmp_path / "store", rules={"file": rules}) as (app, broker), Client(broker) as client:
        with pytest.raises(AssertionError, match="closed"):
            await client.send("secret", b"x")
        await client.send("t", b"x")
        async with Client(str(app.addresses[0])) as at_port:
            await at_port.send("secret", b"x")
        async with Client(broker) as second, Client(broker) as third:
            await second.send("t", b"x")
            await eventually(lambda: third.closed or bool(third.pushes), "the rejection")
            with pytest.raises((RemotingError, AssertionError)):
                await third.send("t", b"x")


async def test_budget_and_counts_include_the_listener(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"total_bytes": 4096}) as (app, broker), Client(broker) as client:
        await client.send("t", b"x")
        assert len(app.channels) == 1
        polls = [client.begin(C.PULL_MESSAGE, pull_fields("t", "g", 0, 1, 60_000), bytes(2048)) for _ in range(4)]
        # One poll takes more than the budget: the next one is refused.
        await eventually(lambda: any(poll.done() for poll in polls), "a refusal")
        assert {(await poll).code for poll in polls if poll.done()} == {ResponseCode.SYSTEM_BUSY}
        client.abort()
        await eventually(lambda: app.core.budget.used == 0, "the release")
        assert all(poll.done() for poll in polls)
        served = app.metrics.requests.served("remoting")
        assert served > 0
        await eventually(lambda: not app.channels, "the end of the connection")


async def test_polls_are_bounded(tmp_path: Path) -> None:
    async with serving(tmp_path) as (app, broker), Client(broker) as client:
        await client.send("t", b"x")
        client.begin(C.PULL_MESSAGE, pull_fields("t", "g", 0, 1, 3_600_000))
        await eventually(lambda: app.core.in_flight, "the poll")
        (context,) = app.core.in_flight
        assert context.fields["suspendTimeoutMillis"] == "120000"
        # A drain neither waits for a request at the broker's listener nor counts it.
        assert app.core.active_requests == 0


async def test_a_drain_answers_the_requests_of_other_replicas(tmp_path: Path) -> None:
    async with serving(tmp_path) as (app, broker), Client(broker, version=10_000) as client:
        await client.send("t", b"x")
        app.drain.start()
        await client.send("t", b"y")
        assert [message.body for message in await client.pull_all(2, "t", "g")] == [b"x", b"y"]


async def test_a_replica_before_the_listener_serves_its_clients_without_tools(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, tools="none") as (app, broker),
        running(on_free_port(cluster={"namesrv": broker}, tools="none")) as replica,
        Client(str(replica.addresses[0])) as first,
        Client(str(replica.addresses[0])) as second,
        Client(str(app.addresses[0])) as third,
    ):
        for number, client in enumerate((first, second, third)):
            await client.send("t", b"%d" % number)
        # Two clients of a group and their common connection to the broker.
        for client in (first, second, third):
            await client.heartbeat({"g": ["t"]}, ["p"])
        ids = [client.client_id for client in (first, second, third)]
        for client in (first, third):
            await wait_until(lists(client, "g", *ids))
        assert [message.body for message in await first.pull_all(3, "t", "h")] == [b"0", b"1", b"2"]
        found = await first.get(C.VIEW_MESSAGE_BY_ID, {"offset": (await first.pull("t", "h"))[0].commit_log_offset})
        assert decode_messages(found.body)[0].body == b"0"
        reply = await first.ask(C.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": third.client_id})
        assert reply.code == ResponseCode.NO_PERMISSION
        assert json(await first.get(C.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}))["queueDatas"]
