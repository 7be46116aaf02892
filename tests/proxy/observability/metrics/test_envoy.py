"""Statistics of Envoy's filter that requests and responses move."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.app import App
from proxy.observability.metrics.envoy import FAMILIES, REQUEST_TIME, STATS, TIME_FAMILY
from proxy.observability.metrics.stats import BadQuery, Query, render_json
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.frame import encode_prefix
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.messages import complete
from tests.proxy.observability.metrics.samples import observation, samples_of
from tests.proxy.replica import Client, serving, soon
from tests.waiting import until

pytestmark = pytest.mark.anyio

_UNANSWERED = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.POP_MESSAGE, RequestCode.GET_ROUTEINFO_BY_TOPIC}
)
_RULES = """
[[rule]]
name = "closed"
kind = "maintenance"
match.topics = ["orders"]
"""


def values(app: App) -> dict[str, int]:
    """Return every statistic in `/stats` that is not 0."""
    stats = orjson.loads(render_json(app.metrics.envoy, "test", Query.parse({"usedonly": ""})))["stats"]
    return {
        stat["name"].removeprefix("rocketmq.test."): stat["value"] for stat in stats if "name" in stat and stat["value"]
    }


@asynccontextmanager
async def serving_client(cluster: Cluster, answer: Any = None, **more: Any) -> AsyncIterator[tuple[App, Client]]:
    await cluster.broker(answer=answer)
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster, **more) as app:
        client = await Client.connect(app)
        yield app, client
        await client.close()


ANSWERED = [
    (RequestCode.HEART_BEAT, "heartbeat"),
    (RequestCode.UNREGISTER_CLIENT, "unregister"),
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, "get_topic_route"),
    (RequestCode.SEND_MESSAGE, "send_message_v1"),
    (RequestCode.SEND_MESSAGE_V2, "send_message_v2"),
    (RequestCode.POP_MESSAGE, "pop_message"),
    (RequestCode.ACK_MESSAGE, "ack_message"),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, "get_consumer_list"),
]


@pytest.mark.parametrize(("code", "name"), ANSWERED)
async def test_an_answered_request_moves_its_statistics(cluster: Cluster, code: int, name: str) -> None:
    async with serving_client(cluster) as (app, client):
        before = values(app)
        answer = await client.ask(complete(REQUESTS[code]))
        after = values(app)
        moved = {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key)}
        # The number of brokers' responses that a request takes varies.
        moved = {key: value for key, value in moved.items() if key not in ("response", "response_decoding_success")}
        outcome = "response_error" if answer.code else "response_success"
        assert moved == {"request": 1, "request_decoding_success": 1, name: 1, outcome: 1}


async def test_a_brokers_response_moves_response_and_request_time(cluster: Cluster) -> None:
    async with serving_client(cluster) as (app, client):
        before = values(app)["response"]
        await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        after = values(app)
        assert (after["response"], after["response_decoding_success"], after["response_success"]) == (
            before + 1,
            before + 1,
            1,
        )
        assert samples_of(app.metrics, "gantry_envoy_request_seconds_count") == {(): 1}
        interval, total = app.metrics.envoy.request_time()
        assert (sum(interval.counts), sum(total.counts)) == (0, 1)
        app.metrics.envoy.flush()
        interval, total = app.metrics.envoy.request_time()
        assert (sum(interval.counts), sum(total.counts)) == (1, 1)
        app.metrics.envoy.flush()
        assert sum(app.metrics.envoy.request_time()[0].counts) == 0


async def test_the_embedded_brokers_responses_are_counted(tmp_path: Path) -> None:
    app = App(Settings(embedded={"directory": tmp_path}, admin={"listen": "off"}))
    app.metrics.observe(observation(broker="broker-a", broker_seconds=0.001))
    app.metrics.observe(observation("HEART_BEAT", topic=None))
    after = values(app)
    app.backend.close()
    assert (after["response"], after["response_decoding_success"]) == (1, 1)


async def test_an_error_from_a_broker_moves_response_error(cluster: Cluster) -> None:
    error = commands.response(ResponseCode.TOPIC_NOT_EXIST, remark="no")
    async with serving_client(cluster, answer=lambda _: error) as (app, client):
        await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))
        assert values(app)["response_error"] == 1
        assert "response_success" not in values(app)


@pytest.mark.parametrize("last", [True, False])
async def test_an_undecodable_request_moves_request_decoding_error(cluster: Cluster, last: bool) -> None:
    async with serving_client(cluster) as (app, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
        good = orjson.dumps({"code": 105, "opaque": 1, "flag": 0, "extFields": {"topic": "orders"}})
        # A request with an opaque is answered; without one the connection is closed.
        bad = orjson.dumps({"code": "x"} if last else {"code": "x", "opaque": 7})
        writer.write(b"".join(encode_prefix(0, len(header), 0) + header for header in (good, bad)))
        await until(lambda: values(app).get("request_decoding_error") == 1)
        await until(lambda: values(app).get("response_success") == 1)
        after = values(app)
        assert (after["request"], after["request_decoding_success"]) == (2, 1)
        writer.close()
        await writer.wait_closed()
        if last:
            await until(lambda: app.metrics.connections.causes("remoting")["protocol"] == 1)
            assert values(app)["request_decoding_error"] == 1
        assert samples_of(app.metrics, "gantry_undecodable_requests_total") == {(): 1}
        reader.feed_eof()


async def test_an_undecodable_response_moves_response_decoding_error(cluster: Cluster) -> None:
    async def send_invalid_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        # A frame of 8 bytes that announces a header of 16 MiB.
        writer.write(b"\x00\x00\x00\x08\x00\xff\xff\xff" + bytes(8))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(send_invalid_frame, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        cluster.table["broker-a"] = {"0": f"127.0.0.1:{port}"}
        async with serving(cluster) as app:
            client = await Client.connect(app)
            before = values(app)["response_decoding_success"]
            assert (await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2]))).code
            after = values(app)
            assert after["response_decoding_error"] == 1
            assert after["response"] == before + 1
            assert after["response_error"] == 1
            await client.close()


async def test_a_maintenance_rejection_moves_maintenance_failure(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(_RULES)
    async with serving_client(cluster, rules={"file": file}) as (app, client):
        await client.ask(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2], b="orders"))
        assert values(app)["maintenance_failure"] == 1


ACTIVE = [
    (RequestCode.SEND_MESSAGE, "send_message_v1_active"),
    (RequestCode.SEND_MESSAGE_V2, "send_message_v2_active"),
    (RequestCode.POP_MESSAGE, "pop_message_active"),
]


@pytest.mark.parametrize(("code", "name"), ACTIVE)
async def test_requests_that_wait_for_a_broker_are_active(cluster: Cluster, code: int, name: str) -> None:
    async with serving_client(
        cluster, answer=lambda command: None if command.code in _UNANSWERED else commands.success()
    ) as (
        app,
        client,
    ):
        reply = client.connection.request(complete(REQUESTS[code]), 30.0)
        # There is a connection to cut once the broker has the request.
        await cluster.servers[0].until(lambda broker: code in broker.codes)
        gauges = {key: value for key, value in values(app).items() if key.endswith(("active", "pending"))}
        assert gauges == {"request_active": 1, name: 1}
        assert values(app)["request"] == 1
        cluster.servers[0].cut()
        assert (await soon(reply)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "request_active" not in values(app)
        assert values(app)["request"] == 1


PENDING = [
    (RequestCode.SEND_MESSAGE, "topic", {"send_message_v1_active", "send_message_pending"}),
    (RequestCode.SEND_MESSAGE_V2, "b", {"send_message_v2_active", "send_message_pending"}),
    (RequestCode.POP_MESSAGE, "topic", {"pop_message_active", "pop_message_pending"}),
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, "topic", {"get_topic_route_active", "get_topic_route_pending"}),
]


@pytest.mark.parametrize(("code", "field", "names"), PENDING)
async def test_requests_that_wait_for_the_name_servers_are_pending(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: int, field: str, names: set[str]
) -> None:
    answer = cluster._name_server_answer

    def leave_routes_unanswered(command: RemotingCommand, table: Any) -> Any:
        return None if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else answer(command, table)

    async with serving_client(cluster) as (app, client):
        monkeypatch.setattr(cluster, "_name_server_answer", leave_routes_unanswered)
        request = complete(REQUESTS[code], **{field: "elsewhere"})
        # Without a broker name, the request waits for the topic's route.
        request.fields.pop(REQUESTS[code].broker, None)
        reply = client.connection.request(request, 30.0)
        await until(lambda: app.core.in_flight)
        gauges = {key: value for key, value in values(app).items() if key.endswith(("active", "pending"))}
        assert gauges == dict.fromkeys({"request_active", "total_pending", *names}, 1)
        await client.close()
        reply.add_done_callback(lambda done: done.exception())


async def test_grpc_connections_are_not_counted(cluster: Cluster) -> None:
    async with serving_client(cluster) as (app, _):
        reader, writer = await soon(asyncio.open_connection("127.0.0.1", app.addresses[0].port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        await soon(reader.read(9))
        writer.close()
        await writer.wait_closed()
        assert "request" not in values(app)


def test_every_statistic_is_named_in_this_module() -> None:
    """A statistic that is added needs a test here."""
    source = Path(__file__).read_text()
    names = {stat.name for stat in STATS} | {REQUEST_TIME}
    assert len(names) == 27
    assert names - {REQUEST_TIME} == FAMILIES.keys()
    assert TIME_FAMILY.name in source
    assert {name for name in names - {REQUEST_TIME} if f'"{name}"' not in source} == set()


@pytest.mark.parametrize("query", [{"filter": "("}, {"format": "xml"}, {"type": "Some"}, {"histogram_buckets": "x"}])
def test_an_invalid_query_raises_bad_query(query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        Query.parse(query)
