"""The admin API and the Admin service of two worker processes; each covers both workers."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import httpx
import pytest

from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Resource
from tests.cluster.client import Client
from tests.proxy.workers.fleet import GROUP, TWIN, Fleet, connect, connect_twin, serving, until
from tests.proxy.workers.processes import workers

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One event loop for all tests, which share two workers."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def fleet(anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Two workers, each with a consumer of one group; their subscriptions differ."""
    async with serving(tmp_path_factory.mktemp("workers")) as fleet, AsyncExitStack() as stack:
        await connect(fleet, stack)
        await connect_twin(fleet, stack)
        yield fleet


# Reading.


@pytest.mark.parametrize("sort", ["age", "-age", "in_flight", "-in_flight", "address"])
async def test_connections_of_all_workers_are_listed_in_pages(fleet: Fleet, sort: str) -> None:
    whole = await fleet.get("/v1/connections", sort=sort)
    numbers = [item["number"] for item in whole["items"]]
    assert whole["total"] == len(numbers) >= 4
    assert {item["worker"] for item in whole["items"]} == {0, 1}
    assert all(item["number"].startswith(f"{item['worker']}:") for item in whole["items"])
    # In pages, from the other worker.
    paged: list[str] = []
    query: dict[str, Any] = {"sort": sort, "limit": 1}
    while True:
        page = await fleet.get("/v1/connections", 1, **query)
        assert page["total"] == len(numbers)
        paged += [item["number"] for item in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert paged == numbers


async def test_connection_is_found_at_any_worker(fleet: Fleet) -> None:
    for worker, client_id in fleet.clients.items():
        (number,) = (await fleet.get(f"/v1/clients/{client_id}"))["connections"]
        assert number.startswith(f"{worker}:")
        for asked in range(2):
            found = await fleet.get(f"/v1/connections/{number}", asked)
            assert (found["number"], found["worker"]) == (number, worker)
            assert found["clients"][0]["client_id"] == client_id
        alone = number.partition(":")[2]
        nowhere = await fleet.get(f"/v1/connections/{alone}", status=404)
        assert nowhere["detail"] == f"no connection has the number {alone}: there are several workers, as in 0:{alone}"
        answer = await fleet.apis[0].get(f"/v1/connections/{alone}", params={"worker": worker})
        assert answer.json()["number"] == number
    for number in ("7:1", "x:1", "1:x", "0:999999", "1:", "1" * 5000 + ":1"):
        answer = await fleet.apis[0].get(f"/v1/connections/{number}")
        assert answer.status_code in (404, 422)
        assert answer.json()["instance"] == f"/v1/connections/{number}"


async def test_query_parameter_selects_one_worker(fleet: Fleet) -> None:
    for worker, client_id in fleet.clients.items():
        answer = (await fleet.apis[0].get("/v1/connections", params={"worker": worker})).json()
        assert {item["worker"] for item in answer["items"]} == {worker}
        assert client_id in {client["client_id"] for item in answer["items"] for client in item["clients"]}
        other = await fleet.apis[0].get(f"/v1/clients/{client_id}", params={"worker": 1 - worker})
        assert other.status_code == 404
    answer = await fleet.apis[0].get("/v1/version", params={"worker": 2})
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no worker 2: they are 0 to 1")
    answer = await fleet.apis[0].get("/v1/version", params={"worker": "first"})
    assert answer.status_code == 422
    assert answer.json()["faults"] == [{"where": "query worker", "detail": "a worker's number, from 0"}]


async def test_client_of_several_workers_is_listed_once(fleet: Fleet) -> None:
    known = await fleet.get("/v1/clients", 1)
    ids = [item["client_id"] for item in known["items"]]
    assert ids == sorted({*fleet.clients.values(), TWIN})
    assert known["total"] == 3
    first = await fleet.get("/v1/clients", limit=1)
    rest = await fleet.get("/v1/clients", cursor=first["next"])
    assert [item["client_id"] for item in (*first["items"], *rest["items"])] == ids
    twin = await fleet.get(f"/v1/clients/{TWIN}")
    assert {number.partition(":")[0] for number in twin["connections"]} == {"0", "1"}
    assert len(twin["addresses"]) == len(twin["connections"])


async def test_group_with_different_subscriptions_at_two_workers_is_skewed(fleet: Fleet) -> None:
    for asked in range(2):
        listed = await fleet.get("/v1/consumer-groups", asked)
        (group,) = (item for item in listed["items"] if item["name"] == GROUP)
        expected = {"name": GROUP, "members": 2, "local": 2, "topics": [fleet.topic], "skewed": True}
        assert {name: group[name] for name in expected} == expected
        assert (await fleet.get("/v1/consumer-groups", asked, skewed="true"))["total"] == 1
        assert (await fleet.get("/v1/consumer-groups", asked, skewed="false", topic=fleet.topic))["items"] == []
        whole = await fleet.get(f"/v1/consumer-groups/{GROUP}", asked)
        members = {member["client_id"]: member["protocol"] for member in whole["members"]}
        assert members == dict.fromkeys(fleet.clients.values(), "remoting")
        assert len(whole["members"]) == 2
        (skew,) = whole["skew"]
        assert sorted(variant["client_ids"] for variant in skew["variants"]) == sorted(
            [client_id] for client_id in fleet.clients.values()
        )
    producers = await fleet.get("/v1/producer-groups/shop")
    assert {member["client_id"] for member in producers["members"]} == set(fleet.clients.values())
    twins = (await fleet.get("/v1/producer-groups"))["items"]
    assert {item["name"]: item["members"] for item in twins} == {"shop": 2, "twins": 1}


async def test_every_worker_returns_the_same_lists(fleet: Fleet) -> None:
    """Every list without a name in its path, at each worker."""
    for path in ("topics", "brokers", "name-servers", "requests", "receipt-handles", "errors", "log-levels", "config"):
        replies = [await fleet.get(f"/v1/{path}", asked) for asked in range(2)]
        assert replies[0].keys() == replies[1].keys()
        assert len(replies[0]["items"]) == len(replies[1]["items"])
    assert (await fleet.get(f"/v1/topics/{fleet.topic}", 1))["name"] == fleet.topic
    assert (await fleet.get(f"/v1/consumer-groups/{GROUP}/lag", 1))["group"] == GROUP
    answered = {}
    for worker in (None, 0, 1):
        only = {} if worker is None else {"worker": worker}
        items = (await fleet.get("/v1/requests", **only))["items"]
        (answered[worker],) = (item["answered"] for item in items if item["name"] == "HEART_BEAT")
    assert answered[None] == answered[0] + answered[1] >= 4


async def test_differing_settings_are_listed_by_worker(fleet: Fleet) -> None:
    items = {item["key"]: item for item in (await fleet.get("/v1/config"))["items"]}
    ports = [api.base_url.port for api in fleet.apis]
    assert [(each["worker"], each["value"]) for each in items["admin.listen"]["workers"]] == [
        (number, f"127.0.0.1:{port}") for number, port in enumerate(ports)
    ]
    assert "workers" not in items["listen"]
    version = await fleet.get("/v1/version", 1)
    assert [each["worker"] for each in version["workers"]] == [0, 1]
    assert version["started"] == min(each["started"] for each in version["workers"])


async def test_live_figures_are_those_of_all_workers(fleet: Fleet) -> None:
    whole: dict[str, Any] = {}

    async def seconds() -> bool:
        nonlocal whole
        whole = await fleet.get("/v1/live", 1)
        return bool(whole["seconds"])

    await until(seconds)
    connections = await fleet.get("/v1/connections")
    assert whole["connections"]["remoting"] == connections["total"]
    # The twin counts at each of its two workers, however many connections it needed to reach both.
    assert whole["clients"] == len(fleet.clients) + 2
    assert whole["ready"]


async def test_description_has_the_worker_parameter(fleet: Fleet) -> None:
    described = (await fleet.apis[1].get("/openapi.json")).json()
    parameters = described["paths"]["/v1/drain"]["post"]["parameters"]
    assert [item["schema"]["maximum"] for item in parameters if item["name"] == "worker"] == [1]
    assert described["components"]["schemas"]["Connection"]["properties"]["number"]["type"] == "string"


async def test_requests_reach_clients_of_any_worker(fleet: Fleet) -> None:
    for asked, client_id in ((asked, client_id) for asked in range(2) for client_id in fleet.clients.values()):
        path = f"/v1/clients/{client_id}/running-info"
        info = await fleet.get(path, asked, group=GROUP, stack="true")
        assert (info["client_id"], info["properties"], info["stack"]) == (client_id, {"a": "b"}, "at work")
    for asked in range(2):
        owners = await fleet.get(f"/v1/consumer-groups/{GROUP}/queues", asked)
        queue = {"topic": "t", "broker": "broker-a", "queue": 1, "client_ids": sorted(fleet.clients.values())}
        assert owners == {"group": GROUP, "queues": [queue], "unanswered": []}


# The Admin gRPC service.


async def _call(fleet: Fleet, rpc: str, request: Any, worker: int) -> Any:
    """Return a reply once no worker is missing."""
    answer: Any = None

    async def whole() -> bool:
        nonlocal answer
        answer = await getattr(fleet.stubs[worker], rpc)(request, timeout=60)
        return bool(answer.status.message == "OK")

    await until(whole, lambda: answer)
    return answer


@pytest.mark.parametrize("worker", [0, 1])
async def test_admin_service_covers_all_workers(fleet: Fleet, worker: int) -> None:
    listed = await _call(fleet, "ListSubscription", pb.ListSubscriptionRequest(), worker)
    (info,) = (one for one in listed.subscription_info if one.group.name == GROUP)
    assert not info.subscription_consistency
    group = Resource(name=GROUP)
    described = await _call(fleet, "DescribeSubscription", pb.DescribeSubscriptionRequest(group=group), worker)
    filters = {
        one.client_info.client_id: one.subscription_info.expression.expression
        for one in described.client_subscription_info
    }
    assert filters.keys() == set(fleet.clients.values())
    assert len(set(filters.values())) == 2
    clients = await _call(fleet, "ListConsumerConnection", pb.ListConsumerConnectionRequest(group=group), worker)
    assert {info.client_id for info in clients.client_info} == set(fleet.clients.values())
    for client_id in fleet.clients.values():
        request = pb.PrintThreadStackTraceRequest(client_id=client_id)
        assert (await _call(fleet, "PrintThreadStackTrace", request, worker)).thread_stack_trace == "at work"
    stats = await _call(fleet, "GetProxyRuntimeStats", pb.GetProxyRuntimeStatsRequest(), worker)
    connections = await fleet.get("/v1/connections")
    assert (stats.connections, stats.consumers, stats.producers) == (connections["total"], 2, 3)


async def test_admin_service_sets_the_log_level_of_all_workers(fleet: Fleet) -> None:
    try:
        request = pb.ChangeLogLevelRequest(level=pb.ChangeLogLevelRequest.Level.WARN)

        async def changed() -> bool:
            try:
                return bool((await fleet.stubs[1].ChangeLogLevel(request, timeout=60)).remark)
            except grpc.aio.AioRpcError:
                # A worker was late.
                return False

        await until(changed)
        levels = {item["name"]: item for item in (await fleet.get("/v1/log-levels"))["items"]}
        assert (levels["root"]["level"], "workers" in levels["root"]) == ("warning", False)
    finally:
        await fleet.write("DELETE", "/v1/log-levels/root")


# Writing.


async def test_drain_applies_to_all_workers(fleet: Fleet) -> None:
    try:
        state = await fleet.write("POST", "/v1/drain", worker=1)
        assert state == {"ready": False, "draining": True, "forced_failure": None}
        assert [(await api.get("/readyz")).status_code for api in fleet.apis] == [503, 503]
    finally:
        state = await fleet.write("POST", "/v1/resume")
    assert state == {"ready": True, "draining": False, "forced_failure": None}
    assert [(await api.get("/readyz")).status_code for api in fleet.apis] == [200, 200]


async def test_forced_failure_of_one_worker_is_undone_at_all(fleet: Fleet) -> None:
    try:
        await fleet.apis[0].post("/v1/health/fail", params={"worker": 1}, json={"reason": "a test"})
        assert [(await api.get("/healthz")).status_code for api in fleet.apis] == [200, 503]
    finally:
        state = await fleet.write("POST", "/v1/health/pass")
    assert state["ready"]
    assert [(await api.get("/healthz")).status_code for api in fleet.apis] == [200, 200]


async def test_log_level_is_set_at_all_workers_and_differences_are_listed(fleet: Fleet) -> None:
    path = "/v1/log-levels/gantry.cluster"
    try:
        level = await fleet.write("PUT", path, {"level": "debug"})
        assert level == {"name": "gantry.cluster", "level": "debug", "changed": True, "remaining": None}
        for number in range(2):
            alone = (await fleet.apis[0].get("/v1/log-levels", params={"worker": number})).json()
            assert {"debug"} == {item["level"] for item in alone["items"] if item["name"] == "gantry.cluster"}
        await fleet.apis[0].delete(path, params={"worker": 0})
        levels = {item["name"]: item for item in (await fleet.get("/v1/log-levels"))["items"]}
        assert [each["level"] for each in levels["gantry.cluster"]["workers"]] == ["info", "debug"]
    finally:
        level = await fleet.write("DELETE", path)
    assert level == {"name": "gantry.cluster", "level": "info", "changed": False, "remaining": None}
    answer = await fleet.apis[0].put("/v1/log-levels/nobody.has.this", json={"level": "debug"})
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no logger nobody.has.this")
    answer = await fleet.apis[0].put(path, json={"level": "loud"})
    assert answer.status_code == 422
    assert answer.json()["faults"][0]["where"] == "body level"


async def test_disconnect_reaches_any_worker_and_is_audited_once(fleet: Fleet) -> None:
    async with Client(f"127.0.0.1:{fleet.process.port}", "victim@1") as client:
        await client.heartbeat({}, ["victims"])
        (number,) = (await fleet.get("/v1/clients/victim@1"))["connections"]
        # The other worker.
        asked = 1 - int(number.partition(":")[0])
        answer = await fleet.apis[asked].delete(f"/v1/connections/{number}")
        assert (answer.status_code, answer.content) == (204, b"")

        async def closed() -> bool:
            return client.closed

        await until(closed)
    gone = await fleet.get("/v1/closed-connections", limit=100)
    assert number in {item["number"] for item in gone["items"]}
    times = [item["closed"] for item in gone["items"]]
    assert times == sorted(times, reverse=True)
    for worker in range(2):
        audit = await fleet.get("/v1/audit", worker)
        entries = [item for item in audit["items"] if item["method"] == "DELETE" and number in item["path"]]
        # Once, at the worker that received the request.
        assert [(item["worker"], item["status"]) for item in entries] == [(asked, 204)]


async def test_all_workers_reload_the_configuration(fleet: Fleet) -> None:
    assert await fleet.write("POST", "/v1/config/reload", {}) == {"dry_run": False, "changes": []}


# Workers that do not answer. These tests are the last: they restart a worker.


async def _events(api: httpx.AsyncClient, into: list[tuple[str, Any]], **query: Any) -> None:
    async with api.stream("GET", "/v1/tap", params=query) as stream:
        assert stream.status_code == 200
        name = ""
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                into.append((name, json.loads(line.removeprefix("data: "))))
            elif line == ": watching":
                into.append(("watching", {}))


async def test_tap_streams_from_all_workers_and_survives_the_death_of_one(fleet: Fleet) -> None:
    events: list[tuple[str, Any]] = []
    watching = asyncio.ensure_future(_events(fleet.apis[0], events, code="HEART_BEAT"))

    def received(name: str, **values: Any) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            assert not watching.done()
            return any(event == name and values.items() <= data.items() for event, data in events)

        return check

    async def sent_at(worker: int) -> bool:
        async with Client(f"127.0.0.1:{fleet.process.port}") as client:
            await client.heartbeat({}, ["tappers"])
        return await received("request", worker=worker)()

    try:
        await until(received("watching"))
        await until(lambda: sent_at(0), lambda: events)
        await until(lambda: sent_at(1), lambda: events)
        os.kill(workers(fleet.process)[1], signal.SIGKILL)
        await until(received("missing", worker=1))
        await until(received("joined", worker=1))
        events.clear()
        await until(lambda: sent_at(1), lambda: events)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    # Neither worker has a watcher left.
    for number in range(2):

        async def left(number: int = number) -> bool:
            text = (await fleet.apis[number].get("/metrics")).text
            return any(line.startswith("gantry_admin_streams") and line.endswith(" 0.0") for line in text.splitlines())

        await until(left)


async def test_tap_ends_after_its_seconds(fleet: Fleet) -> None:
    events: list[tuple[str, Any]] = []
    async with asyncio.timeout(60):
        await _events(fleet.apis[1], events, seconds=0.5)
    assert events[0] == ("watching", {})


async def test_worker_that_hangs_is_listed_as_missing(fleet: Fleet) -> None:
    pid = workers(fleet.process)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        listed, one, level = await asyncio.gather(
            fleet.apis[0].get("/v1/connections"),
            fleet.apis[0].get("/v1/connections/1:1"),
            fleet.apis[0].put("/v1/log-levels/gantry.cluster", json={"level": "info"}),
        )
        assert (listed.status_code, listed.json()["missing_workers"]) == (200, [1])
        assert (one.status_code, one.json()["missing_workers"]) == (503, [1])
        assert level.status_code == 503
        problem = level.json()
        assert problem["missing_workers"] == [1]
        assert problem["workers"] == [{"worker": 0, "status": 200}]
        assert problem["detail"] == "not every worker was reached: 1 did not answer"
        # The other worker still answers for itself.
        assert (await fleet.apis[0].get("/v1/version", params={"worker": 0})).status_code == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    assert {each["worker"] for each in (await fleet.get("/v1/version"))["workers"]} == {0, 1}
    await fleet.write("DELETE", "/v1/log-levels/gantry.cluster")
    assert (await fleet.apis[0].get("/metrics")).text.count("gantry_admin_worker_answers_total{") > 0
