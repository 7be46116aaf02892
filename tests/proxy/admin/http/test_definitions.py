"""Topics and consumer groups are created, changed and deleted over the HTTP API."""

from typing import Any

import httpx
import pytest

from tests.cluster.client import Client
from tests.proxy.admin.http.replicas import Replica, Stage

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
