"""Writes, each with its own replica."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import grpc
import httpx
import orjson
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.apache.rocketmq.v2.service_pb2 import NotifyClientTerminationRequest, TelemetryCommand
from proxy.operations.events import ProtocolError
from remoting import command as commands
from remoting.codes import GO_AWAY_VERSION, RequestCode
from tests.cluster.client import Client
from tests.cluster.grpc.consumer import Consumer
from tests.grpc_gateway.messages import producer_settings
from tests.proxy.admin.http.replicas import GROUP, PUSH_GROUP, UNIQUE_ID, Stage, replica, stage, unique_id
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own(anyio_backend: Any, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as own:
        yield own


async def test_disconnected_remoting_connection_is_listed_as_closed(own: Stage) -> None:
    (item,) = (await own.replica.get("/v1/connections", protocol="remoting"))["items"]
    answer = await own.replica.write.delete(f"/v1/connections/{item['number']}")
    assert (answer.status_code, answer.content) == (204, b"")
    await until(lambda: own.remoting.closed)
    closed = (await own.replica.get("/v1/closed-connections"))["items"][0]
    assert (closed["number"], closed["cause"], closed["client_id"]) == (item["number"], "operator", "192.0.2.7@4711")
    assert closed["bytes_in"] >= item["bytes_in"]
    assert own.replica.app.registry.consumer_ids(GROUP) == set()


async def test_disconnected_grpc_connection_is_listed_as_closed(own: Stage) -> None:
    (item,) = (await own.replica.get("/v1/connections", protocol="grpc"))["items"]
    assert (await own.replica.write.delete(f"/v1/connections/{item['number']}")).status_code == 204
    await until(
        lambda: any(
            closed.number == item["number"] for _, closed in own.replica.app.admin_services.events.closed.newest()
        )
    )
    closed = {row["number"]: row for row in (await own.replica.get("/v1/closed-connections"))["items"]}
    assert closed[item["number"]]["cause"] == "operator"
    assert closed[item["number"]]["client_id"] == "grpc@1"


async def test_forced_health_failure_applies_to_both_ports(own: Stage) -> None:
    app = own.replica.app
    state = await own.replica.post("/v1/health/fail", {"reason": "moving house"})
    assert state == {"ready": False, "draining": False, "forced_failure": "moving house"}
    for path in ("/healthz", "/readyz"):
        answer = await own.replica.read.get(path)
        assert answer.status_code == 503
        assert answer.json()["checks"]["forced"] == {"status": "fail", "reason": "moving house"}
    assert (await own.replica.read.get("/livez")).status_code == 200
    async with httpx.AsyncClient(base_url=f"http://{app.addresses[0]}", timeout=30) as clients_port:
        assert (await clients_port.get("/readyz")).status_code == 503
        assert (await own.replica.post("/v1/health/pass"))["ready"]
        assert (await clients_port.get("/readyz")).status_code == 200


async def test_grpc_health_follows_forced_failures(own: Stage) -> None:
    async with grpc.aio.insecure_channel(own.replica.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))

        async def grpc_status() -> str:
            async with asyncio.timeout(30):
                answer = await watch.read()
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
            # The status of the service follows the replica's while there are brokers.
            for name in ("", "apache.rocketmq.v2.MessagingService"):
                assert (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status == answer.status
            return status

        assert await grpc_status() == "SERVING"
        await own.replica.post("/v1/health/fail")
        assert await grpc_status() == "NOT_SERVING"
        # A health update keeps the forced failure.
        await own.replica.app.grpc._update_health()
        await own.replica.post("/v1/health/pass")
        assert await grpc_status() == "SERVING"
        watch.cancel()
    await own.replica.post("/v1/drain")
    async with grpc.aio.insecure_channel(own.replica.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await own.replica.post("/v1/resume")
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


async def test_drain_sends_clients_away_until_resume(own: Stage) -> None:
    assert await own.replica.post("/v1/drain") == {"ready": False, "draining": True, "forced_failure": None}
    assert (await own.replica.read.get("/readyz")).status_code == 503
    assert (await own.replica.read.get("/healthz")).status_code == 200
    route = (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": own.topic})
    assert (await own.remoting.ask(*route, version=GO_AWAY_VERSION + 1)).code == 1500
    await until(lambda: not own.replica.app.grpc.server.connections)
    assert (await own.replica.post("/v1/resume"))["ready"]
    assert (await own.remoting.ask(*route, version=GO_AWAY_VERSION + 1)).code == 0


async def test_channel_that_represents_grpc_producers_is_no_client(own: Stage) -> None:
    """And a connected client without a group is one everywhere."""
    app = own.replica.app
    async with Client(own.replica.address, "idle") as idle, Consumer(own.replica.address, "", own.topic, "p") as sender:
        await idle.heartbeat({})
        telemetry = sender.stub.Telemetry(metadata=sender.metadata)
        await telemetry.write(TelemetryCommand(settings=producer_settings(own.topic)))
        producers = app.grpc.service.client_lifecycle.producers
        await until(lambda: any(one.topics for one in producers.representatives))
        (representative,) = producers.representatives
        await until(lambda: app.registry.member(representative.channel) is not None)
        (group,) = (
            group for group in (await own.replica.get("/v1/producer-groups"))["items"] if group["name"] == own.topic
        )
        assert (group["members"], group["local"]) == (1, 1)
        members = (await own.replica.get(f"/v1/producer-groups/{own.topic}"))["members"]
        assert [member["client_id"] for member in members] == ["p"]
        listed = [client["client_id"] for client in (await own.replica.get("/v1/clients"))["items"]]
        assert listed == ["192.0.2.7@4711", "grpc@1", "idle", "p"]
        assert (await own.replica.get("/v1/live"))["clients"] == len(listed)
        metrics = (await own.replica.read.get("/metrics")).text.splitlines()
        assert f"gantry_clients {len(listed)}.0" in metrics
        connections = [line for line in metrics if line.startswith("rocketmq_producer_connections{")]
        assert sum(float(line.rpartition(" ")[2]) for line in connections) == 2
        telemetry.cancel()


async def test_slash_in_a_name_does_not_end_the_segment_of_a_path(own: Stage) -> None:
    async with AsyncExitStack() as stack:
        for client_id in ("ns", "ns/running-info", "ns/pod-1", "100%2F"):
            client = await stack.enter_async_context(Client(own.replica.address, client_id))
            client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: commands.success(body=b"{}")
            await client.heartbeat({"slashed": [own.topic]})
        for name in ("ns", "ns%2Frunning-info", "ns%2fpod-1", "100%252F"):
            assert (await own.replica.get(f"/v1/clients/{name}"))["client_id"] == unquote(name)
            info = await own.replica.get(f"/v1/clients/{name}/running-info", group="slashed")
            assert info["client_id"] == unquote(name)
        command = [sys.executable, "-m", "proxy", "clients", "show", "ns/pod-1", "--admin", own.replica.app.admin.url]
        shown = await anyio.run_process(list(map(str, command)))
        assert b"ns/pod-1" in shown.stdout
    answer = await own.replica.read.get("/v1/clients/ns%2Fnobody")
    assert (answer.status_code, answer.json()["instance"]) == (404, "/v1/clients/ns/nobody")
    assert (await own.replica.write.get("/v1%2Fsession")).status_code == 404


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        ({"to": "latest"}, {0: 1, 1: 0}),
        ({"to": "earliest"}, {0: 0, 1: 0}),
        ({"time": "2000-01-01T00:00:00Z"}, {0: 0, 1: 0}),
        ({"time": "2000-01-01T00:00:00"}, {0: 0, 1: 0}),
        ({"broker": "broker-a", "queue": 0, "offset": 1}, {0: 1}),
    ],
)
async def test_reset_offset_moves_a_group(own: Stage, body: dict[str, Any], offsets: dict[int, int]) -> None:
    path = f"/v1/consumer-groups/{GROUP}/reset-offset"
    before = (await own.replica.get(f"/v1/consumer-groups/{GROUP}/lag", topic=own.topic))["queues"]
    preview = await own.replica.post(path, {"topic": own.topic, "dry_run": True, **body})
    assert {row["queue"]: row["offset"] for row in preview["queues"]} == offsets
    assert (await own.replica.get(f"/v1/consumer-groups/{GROUP}/lag", topic=own.topic))["queues"] == before
    reply = await own.replica.post(path, {"topic": own.topic, **body})
    assert reply == {**preview, "dry_run": False}
    assert {row["queue"]: row["offset"] for row in reply["queues"]} == offsets
    lag = await own.replica.get(f"/v1/consumer-groups/{GROUP}/lag", topic=own.topic)
    assert {row["queue"]: row["consumed"] for row in lag["queues"] if row["queue"] in offsets} == offsets


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "nowhere", "to": "latest"}, 404),
        ({"topic": "nowhere", "broker": "nobody", "queue": 0, "offset": 1}, 404),
        ({"topic": "nowhere"}, 422),
        ({"topic": "nowhere", "to": "latest", "offset": 1}, 422),
        ({"topic": "no where", "to": "latest"}, 422),
    ],
)
async def test_reset_offset_of_an_unknown_target_is_refused(own: Stage, body: dict[str, Any], status: int) -> None:
    answer = await own.replica.write.post(f"/v1/consumer-groups/{GROUP}/reset-offset", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("group", "body", "status"),
    [
        ("nobody", {"to": "latest"}, 404),
        ("nobody", {"broker": "broker-a", "queue": 0, "offset": 0}, 404),
        (GROUP, {"broker": "broker-a", "queue": 0, "offset": 3}, 409),
        (GROUP, {"broker": "broker-a", "queue": 2, "offset": 0}, 409),
    ],
)
async def test_dry_run_is_refused_where_the_reset_is(
    served: Stage, group: str, body: dict[str, Any], status: int, dry_run: bool
) -> None:
    path = f"/v1/consumer-groups/{group}/reset-offset"
    answer = await served.replica.write.post(path, json={"topic": served.topic, "dry_run": dry_run, **body})
    assert answer.status_code == status, answer.text
    assert "there is no topic" not in answer.text


async def test_dead_letters_are_purged(own: Stage) -> None:
    path = f"/v1/consumer-groups/{GROUP}/dead-letters"
    assert len((await own.replica.get(path))["items"]) == 1
    for brokers in (["broker-a"], []):
        answer = await own.replica.write.delete(path)
        assert (answer.status_code, answer.json()) == (200, {"group": GROUP, "brokers": brokers})
        assert (await own.replica.get(path))["items"] == []
    assert (await own.replica.read.delete(path)).status_code == 401
    assert (await own.replica.write.delete("/v1/consumer-groups/nobody/dead-letters")).status_code == 404


async def test_history_holds_the_traffic_of_the_last_hour(own: Stage) -> None:
    async with asyncio.timeout(30):
        while not (history := await own.replica.get("/v1/history", topic=own.topic))["items"]:
            await asyncio.sleep(0.2)
        while not any(step["sent"] for step in history["items"]):
            await own.remoting.send(own.topic, b"again")
            await asyncio.sleep(0.5)
            history = await own.replica.get("/v1/history", topic=own.topic)
    assert history["step_seconds"] == 60
    whole = await own.replica.get("/v1/history")
    assert whole["step_seconds"] == 10
    assert any(step["requests"] and step["p99"] for step in whole["items"])
    async with Client(own.replica.address) as client:
        await client.heartbeat({"idle": [own.topic]})
        assert (await own.replica.get("/v1/history", group="idle"))["items"][0]["requests"] == 0


async def test_dead_letter_is_resent_to_a_remoting_group(own: Stage) -> None:
    path = f"/v1/consumer-groups/{GROUP}/dead-letters/resend"
    # One that is named twice is sent once.
    reply = await own.replica.post(path, {"message_ids": [UNIQUE_ID, "unknown", UNIQUE_ID]})
    assert reply["items"] == [
        {"message_id": UNIQUE_ID, "sent": True, "topic": f"%RETRY%{GROUP}", "text": ""},
        {"message_id": "unknown", "sent": False, "topic": None, "text": "the dead letter queue does not hold it"},
    ]
    (message,) = await own.remoting.pull(f"%RETRY%{GROUP}", GROUP)
    assert (message.body, unique_id(message.properties), message.get("RETRY_TOPIC")) == (
        b"secret body",
        UNIQUE_ID,
        own.topic,
    )


async def test_dead_letter_is_resent_to_a_grpc_group(own: Stage) -> None:
    (_,) = (await own.replica.get("/v1/receipt-handles"))["items"]
    held = next(iter(own.replica.app.grpc.renewal))
    assert (await own.grpc.forward(held.newest.text)).status.code == 20000
    (letter,) = (await own.replica.get(f"/v1/consumer-groups/{PUSH_GROUP}/dead-letters"))["items"]
    path = f"/v1/consumer-groups/{PUSH_GROUP}/dead-letters/resend"
    (resent,) = (await own.replica.post(path, {"message_ids": [letter["message_id"]]}))["items"]
    assert (resent["sent"], resent["topic"]) == (True, f"%RETRY%{PUSH_GROUP}_{own.topic}")
    (again,) = await own.grpc.receive_all(1, auto_renew=True)
    assert again.body == b"secret body"


async def test_resending_to_a_group_without_members_is_refused_until_its_kind_is_chosen(own: Stage) -> None:
    """A message in the wrong retry topic would never be delivered."""
    held = next(iter(own.replica.app.grpc.renewal))
    assert (await own.grpc.forward(held.newest.text)).status.code == 20000
    (letter,) = (await own.replica.get(f"/v1/consumer-groups/{PUSH_GROUP}/dead-letters"))["items"]
    await own.grpc.call("NotifyClientTermination", NotifyClientTerminationRequest(group=own.grpc.group))
    await until(lambda: not own.replica.app.registry.consumer_ids(PUSH_GROUP))
    path = f"/v1/topics/{own.topic}/messages/{UNIQUE_ID}/resend"
    refused = await own.replica.write.post(path, json={"to": "auto", "group": PUSH_GROUP})
    assert (refused.status_code, "choose `pop_retry`" in refused.json()["detail"]) == (409, True)
    path = f"/v1/consumer-groups/{PUSH_GROUP}/dead-letters/resend"
    (answer,) = (await own.replica.post(path, {"message_ids": [letter["message_id"]]}))["items"]
    assert (answer["sent"], "choose `pop_retry`" in answer["text"]) == (False, True)
    retry = f"%RETRY%{PUSH_GROUP}_{own.topic}"
    for to in ("pop_retry", "auto"):
        # The first one creates the retry topic, which shows from then on that the group pops.
        (answer,) = (await own.replica.post(path, {"message_ids": [letter["message_id"]], "to": to}))["items"]
        assert (answer["sent"], answer["topic"]) == (True, retry)


async def test_dead_letter_that_was_retried_by_pop_is_resent_to_a_grpc_group(own: Stage) -> None:
    """Brokers store the retry topic as its origin."""
    held = next(iter(own.replica.app.grpc.renewal))
    await own.grpc.change(held.newest.text, 0)
    (again,) = await own.grpc.receive_all(1, auto_renew=True)
    assert again.system_properties.delivery_attempt == 2
    assert (await own.grpc.forward(again)).status.code == 20000
    (letter,) = (await own.replica.get(f"/v1/consumer-groups/{PUSH_GROUP}/dead-letters"))["items"]
    assert letter["topic"] == own.topic
    stored = await own.replica.get(f"/v1/topics/%25DLQ%25{PUSH_GROUP}/messages/{letter['message_id']}")
    assert stored["origin"] == own.topic
    path = f"/v1/consumer-groups/{PUSH_GROUP}/dead-letters/resend"
    (resent,) = (await own.replica.post(path, {"message_ids": [letter["message_id"]]}))["items"]
    assert resent["topic"] == f"%RETRY%{PUSH_GROUP}_{own.topic}"
    (last,) = await own.grpc.receive_all(1, auto_renew=True)
    assert (last.body, last.topic.name) == (b"secret body", own.topic)


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b'{"properties":7}',
        b'{"subscriptionSet":[7]}',
        b'{"statusTable":{"t":{"consumeRT":[]}}}',
        b'{"mqTable":{{"queueId":"x"}:{}}}',
        b"\xff",
    ],
)
async def test_malformed_reply_of_a_client_is_an_error(own: Stage, answer: bytes) -> None:
    own.remoting.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: commands.success(body=answer)
    path = f"/v1/clients/{own.remoting.client_id}/running-info"
    reply = await own.replica.read.get(path, params={"group": GROUP})
    assert reply.status_code == 502
    owners = await own.replica.get(f"/v1/consumer-groups/{GROUP}/queues")
    assert (owners["queues"], owners["unanswered"]) == ([], [own.remoting.client_id])


async def test_member_that_refuses_to_answer_does_not_hide_others(own: Stage) -> None:
    """Its error does not fail the whole request."""
    async with Client(own.replica.address, "refuses") as other:
        other.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda _: commands.response(1, remark="not me")
        await other.heartbeat({GROUP: [own.topic]})
        owners = await own.replica.get(f"/v1/consumer-groups/{GROUP}/queues")
    assert [row["client_ids"] for row in owners["queues"]] == [["192.0.2.7@4711"]]
    assert owners["unanswered"] == ["refuses"]


async def test_group_with_different_subscriptions_is_skewed(own: Stage) -> None:
    async with Client(own.replica.address, "other") as other:
        await other.route(own.topic)
        await other.heartbeat({GROUP: [own.topic, "else"]})
        (summary,) = (await own.replica.get("/v1/consumer-groups", skewed=True))["items"]
        assert (summary["name"], summary["members"]) == (GROUP, 2)
        (skew,) = (await own.replica.get(f"/v1/consumer-groups/{GROUP}"))["skew"]
    assert skew["topic"] == "else"
    assert skew["variants"] == [
        {"expression": None, "kind": None, "client_ids": ["192.0.2.7@4711"]},
        {"expression": "*", "kind": "TAG", "client_ids": ["other"]},
    ]


# The tap.


async def event(lines: AsyncIterator[str]) -> tuple[str, Any]:
    """Return the name and data of the next event."""
    name = ""
    async with asyncio.timeout(30):
        async for line in lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, orjson.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


async def test_tap_streams_requests_and_is_no_observer_without_watchers(own: Stage) -> None:
    app = own.replica.app
    quiet = len(app.core.observers)
    async with own.replica.read.stream("GET", "/v1/tap", params={"code": "SEND_MESSAGE_V2"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        assert await anext(lines) == ": watching"
        assert len(app.core.observers) == quiet + 1
        await own.remoting.route(own.topic)
        await own.remoting.send(own.topic, b"secret body", {"KEYS": "secret-key"})
        name, request = await event(lines)
    assert name == "request"
    assert (request["code"], request["topic"], request["client_id"], request["ok"]) == (
        "SEND_MESSAGE_V2",
        own.topic,
        "192.0.2.7@4711",
        True,
    )
    assert request["broker_milliseconds"] <= request["milliseconds"]
    assert "secret" not in json.dumps(request)
    await until(lambda: len(app.core.observers) == quiet)


async def test_tap_streams_grpc_calls(own: Stage) -> None:
    query = {"protocol": "grpc", "group": PUSH_GROUP, "client_id": "grpc@1", "ok": "true", "seconds": "20"}
    async with own.replica.read.stream("GET", "/v1/tap", params=query) as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        await own.grpc.receive(wait=0)
        _, request = await event(lines)
    assert (request["protocol"], request["code"], request["group"]) == ("grpc", "ReceiveMessage", PUSH_GROUP)


async def test_tap_beyond_the_limit_on_streams_is_refused(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"streams": 1}) as own:
        async with own.read.stream("GET", "/v1/tap") as stream:
            await anext(stream.aiter_lines())
            answer = await own.read.get("/v1/tap")
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "5"
        await until(lambda: not own.app.admin_services.tap.watchers)
        # The stream ends after its seconds.
        assert (await own.read.get("/v1/tap", params={"seconds": 0.05})).text == ": watching\n\n"


# Protocol errors and audit.


async def test_protocol_errors_are_listed_with_their_first_bytes(own: Stage) -> None:
    host, _, port = own.replica.address.rpartition(":")
    for data in (
        b"\xff" * 20,
        b"\x00\x00\x00\x0a\x00\x00\x00\x06{broken",
        b"\x00\x00\x00\x10\x00\x00\x00\x0c" + b"?" * 12,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 20,
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        await reader.read()
        writer.close()
    await until(lambda: own.replica.app.admin_services.events.violations.total >= 4)
    items = (await own.replica.get("/v1/errors"))["items"]
    assert {item["kind"] for item in items if item["where"] == "negotiation"} == {"unknown"}
    assert {item["kind"] for item in items if item["where"] == "remoting"} == {"undecodable"}
    assert [item["kind"] for item in items if item["where"] == "grpc"] == ["protocol"]
    assert items[-1]["first_bytes"] == " ".join(["ff"] * 16)
    assert all(item["address"].startswith("127.0.0.1:") for item in items)
    assert "first bytes" not in items[0]["text"]


async def test_every_write_is_audited_whether_done_or_refused(own: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gantry.audit")
    await own.replica.post("/v1/health/fail", {"reason": "a test"})
    assert (await own.replica.read.post("/v1/health/pass")).status_code == 401
    answer = await own.replica.read.post("/v1/health/pass", headers={"Authorization": "Bearer not-a-token-at-all"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="gantry", error="invalid_token"'
    entries = (await own.replica.get("/v1/audit"))["items"]
    assert [(entry["caller"], entry["path"], entry["what"], entry["status"]) for entry in entries] == [
        ("nobody", "/v1/health/pass", None, 401),
        ("local", "/v1/health/pass", None, 401),
        ("write_token", "/v1/health/fail", {"reason": "a test"}, 200),
    ]
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "gantry.audit"]
    assert [line["status"] for line in lines] == [200, 401, 401]
    assert "not-a-token" not in caplog.text


@pytest.mark.parametrize("body", [b"[" * 900 + b"]" * 900, b'{"a":' * 300 + b"1" + b"}" * 300])
async def test_write_with_deeply_nested_json_is_audited(own: Stage, body: bytes) -> None:
    """Such a body could not be encoded, neither in the log nor in the list of writes."""
    headers = {"Content-Type": "application/json"}
    assert (await own.replica.write.post("/v1/config/reload", content=body, headers=headers)).status_code == 422
    (entry,) = (await own.replica.get("/v1/audit"))["items"]
    assert (entry["path"], entry["what"]) == ("/v1/config/reload", f"{len(body)} bytes")


async def test_level_of_the_audit_log_cannot_be_changed(own: Stage, caplog: pytest.LogCaptureFixture) -> None:
    for method in ("PUT", "DELETE"):
        answer = await own.replica.write.request(method, "/v1/log-levels/gantry.audit", json={"level": "error"})
        assert answer.status_code == 409
    assert [record.name for record in caplog.records].count("gantry.audit") == 2


@pytest.mark.parametrize("microsecond", [0, 1000, 999_999])
def test_times_always_have_six_digits_of_the_second(microsecond: int) -> None:
    time = datetime(2026, 11, 21, 8, 0, 7, microsecond, UTC)
    fields = {"where": "negotiation", "kind": "unknown", "listener": ":8080", "address": "192.0.2.7:51234"}
    entry = ProtocolError(time=time, via=None, text="", first_bytes="", **fields)
    written = orjson.loads(entry.model_dump_json())["time"]
    assert written == f"2026-11-21T08:00:07.{microsecond:06}Z"
