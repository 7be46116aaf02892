"""Topics and consumer groups are created, changed and deleted over the HTTP API."""

from typing import Any

import httpx
import pytest

from tests.cluster.client import Client, create_topic
from tests.proxy.admin.http.replicas import GROUP, Replica, Stage

pytestmark = pytest.mark.anyio


def _changed(on: Replica, method: str, path: str, body: Any = None) -> Any:
    return on.write.request(method, path, json=body)


async def _ok(on: Replica, method: str, path: str, body: Any = None) -> Any:
    answer = await _changed(on, method, path, body)
    assert answer.status_code == (204 if method == "DELETE" else 200), answer.text
    return answer.json() if answer.content else None


async def test_topic_is_created_changed_used_and_deleted(served: Stage) -> None:
    on = served.replica
    created = await _ok(on, "POST", "/v1/topics", {"name": "invoices", "kind": "FIFO", "queues": 3})
    topic = {"name": "invoices", "kind": "FIFO", "queues": 3, "permission": "RW"}
    assert created == {**topic, "brokers": ["broker-a"], "missing": []}
    again = await _changed(on, "POST", "/v1/topics", {"name": "invoices"})
    assert (again.status_code, again.json()["detail"]) == (409, "the topic invoices exists; PATCH changes it")
    assert (await on.get("/v1/topics/invoices"))["brokers"][0]["write_queues"] == 3

    changed = await _ok(on, "PATCH", "/v1/topics/invoices", {"queues": 5, "permission": "R"})
    assert (changed["kind"], changed["queues"], changed["permission"]) == ("FIFO", 5, "R")
    assert (await on.get("/v1/topics/invoices"))["brokers"][0]["permission"] == "R"
    await _ok(on, "PATCH", "/v1/topics/invoices", {"permission": "RW"})
    async with Client(on.address) as client:
        await client.send("invoices", b"x", {"__SHARDINGKEY": "a"})

    await _ok(on, "DELETE", "/v1/topics/invoices")
    assert (await on.read.get("/v1/topics/invoices")).status_code == 404
    assert (await _changed(on, "DELETE", "/v1/topics/invoices")).status_code == 404
    assert (await _changed(on, "PATCH", "/v1/topics/invoices", {"queues": 2})).status_code == 404


async def test_group_is_created_changed_and_deleted(served: Stage) -> None:
    on, path = served.replica, "/v1/consumer-groups/auditors"
    created = await _ok(on, "POST", "/v1/consumer-groups", {"name": "auditors", "retries": 3})
    group = {"name": "auditors", "fifo": False, "retries": 3, "enabled": True}
    assert created == {**group, "brokers": ["broker-a"], "missing": []}
    assert (await _changed(on, "POST", "/v1/consumer-groups", {"name": "auditors"})).status_code == 409
    assert "auditors" in [row["name"] for row in (await on.get("/v1/consumer-groups", prefix="aud"))["items"]]
    await _ok(on, "PATCH", path, {"fifo": True, "enabled": False})
    assert await on.get(f"{path}/definition") == {**created, "fifo": True, "enabled": False}

    async with Client(on.address, "auditor-1") as member:
        await member.heartbeat({"auditors": [served.topic]})
        refused = await _changed(on, "DELETE", path)
        assert refused.status_code == 409
        assert refused.json()["detail"] == "the consumer group auditors has members: auditor-1"
        await member.heartbeat({"others": [served.topic]})
    await _ok(on, "DELETE", path)
    assert (await on.read.get(f"{path}/definition")).status_code == 404
    assert (await _changed(on, "DELETE", path)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "fault"),
    [
        ("POST", "/v1/topics", {"name": "a b"}, "body name"),
        ("POST", "/v1/topics", {"name": "a", "queues": 0}, "body queues"),
        ("POST", "/v1/topics", {"name": "a", "kind": "BIG"}, "body kind"),
        ("POST", "/v1/topics", {"name": "a", "queue": 4}, "body queue"),
        ("PATCH", "/v1/topics/orders", {"queues": True}, "body queues"),
        ("POST", "/v1/consumer-groups", {"name": "g", "retries": -1}, "body retries"),
        ("PATCH", "/v1/consumer-groups/billing", {"enabled": 0}, "body enabled"),
    ],
)
async def test_invalid_changes_are_refused(served: Stage, method: str, path: str, body: Any, fault: str) -> None:
    answer = await _changed(served.replica, method, path, body)
    assert answer.status_code == 422
    assert [item["where"] for item in answer.json()["faults"]] == [fault]


async def test_a_change_that_clients_or_messages_do_not_survive_needs_a_confirmation(served: Stage) -> None:
    on, path = served.replica, "/v1/topics/guarded"
    await _ok(on, "POST", "/v1/topics", {"name": "guarded", "queues": 4})
    await _ok(on, "PATCH", path, {"queues": 3, "kind": "NORMAL"})
    async with Client(on.address) as client:
        for queue in range(3):
            await client.send("guarded", b"x", queue=queue)
    for body, detail in (
        ({"queues": 1}, "2 messages are in queues that the topic guarded would lose: `confirm` removes them"),
        ({"kind": "FIFO"}, "the topic guarded is of type NORMAL: `confirm` changes it to FIFO"),
    ):
        refused = await _changed(on, "PATCH", path, body)
        assert (refused.status_code, refused.json()["detail"]) == (409, detail)
    assert (await on.get(path))["brokers"][0]["write_queues"] == 3
    changed = await _ok(on, "PATCH", path, {"queues": 1, "kind": "FIFO", "confirm": True})
    assert (changed["kind"], changed["queues"]) == ("FIFO", 1)
    await _ok(on, "DELETE", path)


@pytest.mark.parametrize(
    ("topic", "owner"),
    [
        ("broker-a", "the brokers"),
        ("DefaultCluster", "the brokers"),
        ("DefaultCluster_REPLY_TOPIC", "the brokers"),
        ("TBW102", "the brokers"),
        ("RMQ_SYS_ROCKSDB_OFFSET", "the brokers"),
        ("DefaultHeartBeatSyncerTopic", "Gantry"),
        ("GantryRenewals", "Gantry"),
        ("RMQ_SYS_TRACE_TOPIC", "Gantry"),
        (f"%25DLQ%25{GROUP}", f"consumer group {GROUP}"),
        (f"%25RETRY%25{GROUP}", f"consumer group {GROUP}"),
        (f"%25RETRY%25{GROUP}_orders", f"consumer group {GROUP}"),
    ],
)
async def test_topics_that_are_needed_are_not_deleted(served: Stage, topic: str, owner: str) -> None:
    answer = await _changed(served.replica, "DELETE", f"/v1/topics/{topic}")
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"{topic.replace('%25', '%')} belongs to {owner}"


async def test_retry_topic_without_a_group_is_deleted(served: Stage) -> None:
    await create_topic(served.replica.address, "%RETRY%gone", exact=True)
    await _ok(served.replica, "DELETE", "/v1/topics/%25RETRY%25gone")


async def test_topics_of_brokers_are_not_deleted(served: Stage) -> None:
    answer = await _changed(served.replica, "DELETE", "/v1/topics/SCHEDULE_TOPIC_XXXX")
    assert (answer.status_code, answer.json()["detail"]) == (409, "SCHEDULE_TOPIC_XXXX belongs to the brokers")


async def test_changes_need_the_role_write_and_are_audited(served: Stage) -> None:
    on = served.replica
    requests = (
        ("POST", "/v1/topics", {"name": "denied"}),
        ("PATCH", "/v1/topics/orders", {"queues": 9}),
        ("DELETE", "/v1/topics/orders", None),
        ("POST", "/v1/consumer-groups", {"name": "denied"}),
        ("DELETE", "/v1/consumer-groups/billing", None),
    )
    for method, path, body in requests:
        answer: httpx.Response = await on.read.request(method, path, json=body)
        assert answer.status_code == 401, answer.text
    await _ok(on, "POST", "/v1/topics", {"name": "audited"})
    [entry, *_] = (await on.get("/v1/audit", limit=1))["items"]
    assert (entry["method"], entry["path"], entry["what"]) == ("POST", "/v1/topics", {"name": "audited"})


@pytest.mark.parametrize(
    ("path", "name", "reason"),
    [
        ("topics", "%RETRY%x", "names that begin with %RETRY% are those of retry topics of consumer groups"),
        ("topics", "%DLQ%x", "names that begin with %DLQ% are those of dead letter topics of consumer groups"),
        ("topics", "rmq_sys_x", "rmq_sys_x is a topic of the brokers"),
        ("topics", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX is a topic of the brokers"),
        ("topics", "broker-a", "broker-a is a topic of the brokers"),
        ("consumer-groups", "TOOLS_CONSUMER", "TOOLS_CONSUMER is a consumer group of the brokers"),
        ("consumer-groups", "%LMQ%x", "names that begin with %LMQ% are those of light message queues"),
    ],
)
async def test_names_of_the_brokers_are_refused(served: Stage, path: str, name: str, reason: str) -> None:
    answer = await _changed(served.replica, "POST", f"/v1/{path}", {"name": name})
    assert (answer.status_code, answer.json()["detail"]) == (422, f"{reason}: choose another name")
    assert answer.json()["faults"] == [{"where": "body name", "detail": reason}]


async def test_faults_are_without_the_words_of_the_validator(served: Stage) -> None:
    answer = await _changed(served.replica, "POST", "/v1/topics", {"name": "q", "queues": True})
    assert answer.json()["faults"] == [{"where": "body queues", "detail": "a boolean is no integer"}]
