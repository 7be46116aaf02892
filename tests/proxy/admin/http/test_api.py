"""Every endpoint over HTTP, with clients of both protocols."""

from typing import Any

import orjson
import pytest

from proxy.operations import brokers
from remoting.ids import OffsetMessageId
from tests.proxy.admin.http.replicas import GROUP, PRODUCERS, PUSH_GROUP, UNIQUE_ID, Stage

pytestmark = pytest.mark.anyio


async def test_every_route_has_a_description_and_a_unique_operation_id(served: Stage) -> None:
    described = await served.replica.get("/openapi.json")
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) >= 45
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation["tags"], (path, method)
            assert operation["summary"], (path, method)
            assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}
            if path.startswith("/v1") and method != "get" and path != "/v1/session":
                assert operation["security"] == [{"bearer": []}, {"certificate": []}]


async def test_local_reads_need_no_token_and_writes_do(served: Stage) -> None:
    described = await served.replica.get("/openapi.json")
    for path, operations in described["paths"].items():
        for method in operations:
            # A login has the credential in its body.
            if method == "get" or path == "/v1/session":
                continue
            url = path.format(number=1, logger="gantry", group="g", client_id="c", topic="t", message_id="m", user="u")
            answer = await served.replica.read.request(method, url, json={})
            assert answer.status_code == 401, url
            assert answer.headers["www-authenticate"] == 'Bearer realm="gantry"'
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_has_the_reason_of_a_failure(served: Stage, path: str) -> None:
    reply = await served.replica.get(path)
    assert reply["status"] == "pass"
    assert reply["checks"]["listeners"] == {"status": "pass", "reason": ""}
    assert ("drain" in reply["checks"]) == (path == "/readyz")


async def test_livez_passes(served: Stage) -> None:
    assert await served.replica.get("/livez") == {"status": "pass", "checks": {}}


async def test_version_describes_the_process(served: Stage) -> None:
    reply = await served.replica.get("/v1/version")
    assert reply["backend"] == "embedded"
    assert reply["listeners"] == [served.replica.address]
    assert reply["event_loop"] == "uvloop"


async def test_configuration_masks_secrets(served: Stage) -> None:
    answer = await served.replica.read.get("/v1/config")
    rows = {row["key"]: row for row in answer.json()["items"]}
    assert rows["limits.requests"]["value"] == rows["limits.requests"]["default"] == 64
    assert rows["limits.requests"]["run_time"]
    assert not rows["listen"]["run_time"]
    assert rows["admin.write_token"]["value"] == "********"
    assert rows["tls.key_password"]["value"] is None
    assert "a-token-for" not in answer.text


async def test_connections(served: Stage) -> None:
    reply = await served.replica.get("/v1/connections")
    assert reply["total"] == 2
    by_protocol = {item["protocol"]: item for item in reply["items"]}
    remoting, grpc = by_protocol["remoting"], by_protocol["grpc"]
    assert remoting["clients"] == [
        {
            "client_id": "192.0.2.7@4711",
            "language": "JAVA",
            "version": "5.3.4",
            "producer_groups": [PRODUCERS],
            "consumer_groups": [GROUP],
        }
    ]
    assert remoting["address"] == served.remoting.local_address
    assert remoting["bytes_in"] > 100
    assert remoting["requests"] >= 4
    (client,) = grpc["clients"]
    assert (client["client_id"], client["consumer_groups"]) == ("grpc@1", [PUSH_GROUP])
    assert grpc["in_flight"] == 1  # its telemetry stream
    assert grpc["bytes_in"] > 100 < grpc["bytes_out"]
    assert 0 <= grpc["idle"] <= grpc["age"] < 3_600


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"protocol": "grpc"}, ["grpc"]),
        ({"tls": "true"}, []),
        ({"client_id": "192.0.2.7@4711"}, ["remoting"]),
        ({"language": "java", "protocol": "grpc"}, ["grpc"]),
        ({"group": GROUP}, ["remoting"]),
        ({"group": PRODUCERS, "protocol": "grpc"}, []),
        ({"address": "127.0.0.1", "sort": "-age"}, ["remoting", "grpc"]),
        ({"listener": "elsewhere"}, []),
    ],
)
async def test_connections_are_listed_by_filter(served: Stage, query: dict[str, str], found: list[str]) -> None:
    reply = await served.replica.get("/v1/connections", **query)
    assert [item["protocol"] for item in reply["items"]] == found


@pytest.mark.parametrize("sort", ["age", "-age", "address", "in_flight", "bytes_in", "-bytes_out", "idle"])
async def test_connections_are_listed_in_pages(served: Stage, sort: str) -> None:
    whole = await served.replica.get("/v1/connections", sort=sort)
    first = await served.replica.get("/v1/connections", sort=sort, limit=1)
    assert first["total"] == 2
    second = await served.replica.get("/v1/connections", sort=sort, limit=1, cursor=first["next"])
    assert second["next"] is None
    if sort != "idle":
        numbers = [item["number"] for item in whole["items"]]
        assert [item["number"] for item in first["items"] + second["items"]] == numbers


async def test_cursor_of_another_order_is_not_found(served: Stage) -> None:
    page = await served.replica.get("/v1/connections", sort="age", limit=1)
    for query in ({"sort": "address", "cursor": page["next"]}, {"cursor": "abc"}):
        answer = await served.replica.read.get("/v1/connections", params=query)
        assert answer.status_code == 404
        assert answer.json()["detail"] == "this list has no page with that cursor"


async def test_one_connection(served: Stage) -> None:
    (item,) = (await served.replica.get("/v1/connections", protocol="remoting"))["items"]
    again = await served.replica.get(f"/v1/connections/{item['number']}")
    assert (again["number"], again["clients"]) == (item["number"], item["clients"])
    answer = await served.replica.read.get("/v1/connections/999999")
    assert answer.status_code == 404
    assert answer.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no open connection has the number 999999",
        "instance": "/v1/connections/999999",
    }


async def test_clients(served: Stage) -> None:
    reply = await served.replica.get("/v1/clients")
    assert [(item["client_id"], item["protocols"], item["telemetry"]) for item in reply["items"]] == [
        ("192.0.2.7@4711", ["remoting"], None),
        ("grpc@1", ["grpc"], True),
    ]
    assert [item["client_id"] for item in (await served.replica.get("/v1/clients", protocol="grpc"))["items"]] == [
        "grpc@1"
    ]
    one = await served.replica.get("/v1/clients/192.0.2.7@4711")
    assert one["consumer_groups"] == [GROUP]
    assert 0 <= one["heartbeat"] < 3_600
    assert (await served.replica.read.get("/v1/clients/nobody")).status_code == 404


async def test_running_info_of_a_remoting_client(served: Stage) -> None:
    path = "/v1/clients/192.0.2.7@4711/running-info"
    reply = await served.replica.get(path, group=GROUP)
    assert reply["queues"] == [{"topic": served.topic, "broker": "broker-a", "queue": 1}]
    assert reply["rates"][0]["failed_last_hour"] == 3
    assert reply["stack"] is None
    assert (await served.replica.get(path, group=GROUP, stack=True))["stack"] == "main at work"


async def test_running_info_of_a_grpc_client(served: Stage) -> None:
    reply = await served.replica.get("/v1/clients/grpc@1/running-info", group=PUSH_GROUP)
    assert reply["properties"]["PROP_CLIENT_VERSION"] == "5.1.1"
    assert served.topic in reply["subscriptions"]
    answer = await served.replica.read.get("/v1/clients/nobody/running-info", params={"group": PUSH_GROUP})
    # RocketMQ has no response code for that.
    assert answer.status_code == 409
    assert "client nobody of consumer group shipping is not connected" in answer.json()["detail"]


async def test_verify_returns_the_clients_result(served: Stage) -> None:
    message_id = OffsetMessageId.parse(served.message_id)
    body = {"group": GROUP, "topic": served.topic, "broker": "broker-a", "message_id": str(message_id)}
    reply = await served.replica.post("/v1/clients/192.0.2.7@4711/verify", body)
    assert reply == {"result": "CR_SUCCESS", "remark": None, "milliseconds": 7}
    (question,) = [push for push in served.remoting.pushes if push.code == 309]
    assert b"secret body" in question.body


async def test_verify_of_a_malformed_message_id_is_not_found(served: Stage) -> None:
    body = {"group": GROUP, "topic": served.topic, "broker": "broker-a", "message_id": "0" * 61}
    answer = await served.replica.write.post("/v1/clients/192.0.2.7@4711/verify", json=body)
    assert answer.status_code == 404
    assert "not an offset message id" in answer.json()["detail"]


async def test_producer_groups(served: Stage) -> None:
    reply = await served.replica.get("/v1/producer-groups")
    assert {"name": PRODUCERS, "members": 1, "local": 1} in reply["items"]
    one = await served.replica.get(f"/v1/producer-groups/{PRODUCERS}")
    assert [(member["client_id"], member["protocol"]) for member in one["members"]] == [("192.0.2.7@4711", "remoting")]
    assert (await served.replica.read.get("/v1/producer-groups/nobody")).status_code == 404


async def test_consumer_groups(served: Stage) -> None:
    reply = await served.replica.get("/v1/consumer-groups", topic=served.topic)
    assert [(item["name"], item["topics"], item["skewed"], item["state"]) for item in reply["items"]] == [
        (GROUP, [served.topic], False, "online"),
        (PUSH_GROUP, [served.topic], False, "online"),
    ]
    assert (await served.replica.get("/v1/consumer-groups", skewed=True))["total"] == 0
    one = await served.replica.get(f"/v1/consumer-groups/{GROUP}")
    (member,) = one["members"]
    assert member["consume_from"] == "CONSUME_FROM_FIRST_OFFSET"
    assert {"topic": served.topic, "expression": "*", "kind": "TAG"} in member["subscriptions"]
    assert one["skew"] == []
    assert (await served.replica.read.get("/v1/consumer-groups/nobody")).status_code == 404


async def test_lag(served: Stage) -> None:
    reply = await served.replica.get(f"/v1/consumer-groups/{PUSH_GROUP}/lag", topic=served.topic)
    assert reply["lag"] == 1
    assert [(row["queue"], row["end"], row["consumed"], row["lag"]) for row in reply["queues"]] == [
        (0, 1, 0, 1),
        (1, 0, 0, 0),
    ]
    assert reply["unanswered"] == []
    assert (await served.replica.read.get("/v1/consumer-groups/nobody/lag")).status_code == 404


async def test_owners(served: Stage) -> None:
    reply = await served.replica.get(f"/v1/consumer-groups/{GROUP}/queues")
    assert reply == {
        "group": GROUP,
        "queues": [{"topic": served.topic, "broker": "broker-a", "queue": 1, "client_ids": ["192.0.2.7@4711"]}],
        "unanswered": [],
    }


async def test_topics(served: Stage) -> None:
    reply = await served.replica.get("/v1/topics")
    assert [(item["name"], item["kind"], item["read_queues"]) for item in reply["items"]] == [
        (served.topic, "NORMAL", 2)
    ]
    names = [item["name"] for item in (await served.replica.get("/v1/topics", system=True))["items"]]
    assert f"%DLQ%{GROUP}" in names
    one = await served.replica.get(f"/v1/topics/{served.topic}")
    (broker,) = one["brokers"]
    assert (broker["broker"], broker["permission"], broker["read_queues"]) == ("broker-a", "RW", 2)
    missing = await served.replica.read.get("/v1/topics/nowhere")
    assert (missing.status_code, missing.json()["detail"]) == (404, "there is no topic nowhere")


async def test_brokers_and_name_servers(served: Stage) -> None:
    (broker,) = (await served.replica.get("/v1/brokers"))["items"]
    assert (broker["name"], broker["healthy"]) == ("broker-a", True)
    assert broker["addresses"][0]["state"] == "in-process"
    assert broker["answers"] >= 1
    assert broker["longest_milliseconds"] >= broker["average_milliseconds"] > 0
    assert await served.replica.get("/v1/name-servers") == {"items": []}


async def test_requests(served: Stage) -> None:
    rows = {(row["protocol"], row["name"]): row for row in (await served.replica.get("/v1/requests"))["items"]}
    send = rows["remoting", "SEND_MESSAGE_V2"]
    assert (send["code"], send["action"], send["sender"], send["rip55"]) == (310, "Pub", "client", True)
    assert (send["answered"], send["failed"]) == (1, 0)
    assert rows["remoting", "LOCK_BATCH_MQ"]["answered"] == 0
    # The first receive may have preceded the message.
    assert rows["grpc", "ReceiveMessage"]["answered"] >= 1


async def test_receipt_handles(served: Stage) -> None:
    reply = await served.replica.get("/v1/receipt-handles", group=PUSH_GROUP)
    (held,) = reply["items"]
    assert (held["client_id"], held["topic"], held["queue"], held["offset"], held["attempt"]) == (
        "grpc@1",
        served.topic,
        0,
        0,
        1,
    )
    assert 0 < held["expires"] <= 60
    assert (await served.replica.get("/v1/receipt-handles", client_id="nobody"))["total"] == 0


async def test_dead_letters_are_listed_without_body_and_keys(served: Stage) -> None:
    answer = await served.replica.read.get(f"/v1/consumer-groups/{GROUP}/dead-letters")
    (letter,) = answer.json()["items"]
    assert (letter["message_id"], letter["topic"], letter["tag"]) == (UNIQUE_ID, served.topic, "A")
    assert "secret" not in answer.text
    assert (await served.replica.read.get("/v1/consumer-groups/nobody/dead-letters")).status_code == 404


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/history?topic=ordres", "there is no topic ordres"),
        ("/v1/history?group=biling", "there is no consumer group biling"),
        (f"/v1/consumer-groups/{GROUP}/lag?topic=ordres", "there is no topic ordres"),
        ("/v1/consumer-groups/biling/lag?topic=ordres", "there is no consumer group biling"),
    ],
)
async def test_misspelt_names_are_not_found(served: Stage, path: str, detail: str) -> None:
    answer = await served.replica.read.get(path)
    assert (answer.status_code, answer.json().get("detail")) == (404, detail)


async def test_unknown_parameters_of_the_live_page_are_refused(served: Stage) -> None:
    answer = await served.replica.read.get("/v1/live?grup=billing")
    assert answer.status_code == 422
    assert answer.json()["faults"] == [{"where": "query grup", "detail": "there is no such parameter"}]


async def test_log_levels(served: Stage) -> None:
    reply = {row["name"]: row for row in (await served.replica.get("/v1/log-levels"))["items"]}
    assert not reply["gantry.cluster"]["changed"]
    before = reply["gantry.cluster"]["level"]
    path = "/v1/log-levels/gantry.cluster"
    changed = (await served.replica.write.put(path, json={"level": "debug", "seconds": 60})).json()
    assert (changed["level"], changed["changed"]) == ("debug", True)
    assert 0 < changed["remaining"] <= 60
    again = (await served.replica.write.delete(path)).json()
    assert again == {"name": "gantry.cluster", "level": before, "changed": False, "remaining": None}
    assert (await served.replica.write.put("/v1/log-levels/no.such", json={"level": "debug"})).status_code == 404


async def test_metrics_have_both_formats(served: Stage) -> None:
    plain = await served.replica.read.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "gantry_admin_requests_total{" in plain.text
    assert "gantry_ready 1.0" in plain.text
    open_metrics = await served.replica.read.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")


async def test_stats_have_both_forms(served: Stage) -> None:
    text = await served.replica.read.get("/stats", params={"filter": "heartbeat"})
    assert text.headers["content-type"].startswith("text/plain")
    assert "heartbeat: 1" in text.text
    data = await served.replica.get("/stats", format="json", filter="heartbeat")
    assert [item["value"] for item in data["stats"]] == [1]
    assert (await served.replica.read.get("/stats", params={"format": "xml"})).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/nothing", 404, None),
        ("GET", "/v1/connections/", 404, None),
        ("POST", "/v1/connections", 405, "GET"),
        ("PATCH", "/v1/connections/1", 405, "DELETE, GET"),
        ("OPTIONS", "/v1/log-levels/gantry", 405, "DELETE, PUT"),
        ("GET", "/v1/connections?limit=0", 422, None),
        ("GET", "/v1/connections/x", 422, None),
    ],
)
async def test_errors_are_problem_details(
    served: Stage, method: str, path: str, status: int, allow: str | None
) -> None:
    answer = await served.replica.write.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("allow") == allow
    reply = answer.json()
    assert (reply["status"], reply["instance"]) == (status, path.partition("?")[0])
    assert bool(reply.get("faults")) == (status == 422)


async def test_unexpected_error_is_a_problem_without_details(
    served: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(brokers, "brokers", broken)
    answer = await served.replica.read.get("/v1/brokers")
    assert answer.status_code == 500
    assert answer.json()["title"] == "Internal Server Error"
    assert "oops" not in answer.text
    (record,) = [record for record in caplog.records if record.name == "gantry.admin"]
    assert record.getMessage() == "GET /v1/brokers failed"


async def test_head_is_get_without_a_body(served: Stage) -> None:
    answer = await served.replica.read.head("/v1/version")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 100


async def test_responses_are_not_cached_or_embedded(served: Stage) -> None:
    answer = await served.replica.read.get("/v1/version")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers


async def test_lists_are_valid_json(served: Stage) -> None:
    answer = await served.replica.read.get("/v1/connections")
    assert orjson.loads(answer.content)["total"] == 2
