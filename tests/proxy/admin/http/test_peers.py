"""Several replicas as one: their lists are merged, requests reach the named one, silent ones are named."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from protos.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from proxy.operations import peers
from proxy.settings.admin import AdminSettings
from remoting.codes import RequestCode
from tests.cluster.client import Client, create_topic
from tests.cluster.grpc.consumer import Consumer
from tests.grpc_gateway.messages import consumer_settings
from tests.proxy.admin.http.replicas import UNIQUE_ID, Replica, eventually_a_member, replica
from tests.proxy.workers.fakes import FakeSupervisor

pytestmark = pytest.mark.anyio

TOKEN = "a-token-among-replicas"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas of one process on a busy machine are slow to start."""
    monkeypatch.setattr(peers, "_HELLO_TIMEOUT", 30.0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


@asynccontextmanager
async def fleet(directory: Path, count: int, **more: Any) -> AsyncIterator[list[tuple[Replica, AsyncExitStack]]]:
    """Replicas that know each other, and themselves, by one name; each with the stack that stops it."""
    ports = [free_port() for _ in range(count)]
    async with AsyncExitStack() as all_stacks:
        served = []
        for number, port in enumerate(ports):
            admin = {
                "listen": f"127.0.0.1:{port}",
                "peers": [f"127.0.0.1:{other}" for other in ports],
                "peer_token": TOKEN,
                **more,
            }
            stack = await all_stacks.enter_async_context(AsyncExitStack())
            app = replica(directory / str(number), replica=f"gantry-{number}", admin=admin)
            served.append((await stack.enter_async_context(app), stack))
        yield served


async def test_lists_cover_all_replicas_and_name_the_replica_of_each_item(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3) as served, AsyncExitStack() as stack:
        for number, (one, _) in enumerate(served):
            client = await stack.enter_async_context(Client(one.address, f"client-{number}"))
            await client.heartbeat({"billing": ["orders"]})
        first = served[0][0]
        found = await first.get("/v1/clients")
        assert [client["client_id"] for client in found["items"]] == ["client-0", "client-1", "client-2"]
        assert "missing_replicas" not in found
        connections = (await first.get("/v1/connections"))["items"]
        assert sorted(connection["replica"] for connection in connections) == ["gantry-0", "gantry-1", "gantry-2"]
        assert (await first.get("/v1/clients/client-2"))["client_id"] == "client-2"
        assert (await first.read.get("/v1/clients/client-9")).status_code == 404
        members = (await first.get("/v1/consumer-groups/billing"))["members"]
        assert [member["protocol"] for member in members] == ["remoting"] * 3
        own = await first.get("/v1/clients", replica="gantry-0")
        assert [client["client_id"] for client in own["items"]] == ["client-0"]
        other = await first.get("/v1/clients", replica="gantry-1")
        assert [client["client_id"] for client in other["items"]] == ["client-1"]
        assert (await first.read.get("/v1/clients", params={"replica": "nobody"})).status_code == 404
        live = await first.get("/v1/live")
        assert live["clients"] == 3
        assert [(one["name"], one["answers"]) for one in live["replicas"]] == [
            ("gantry-0", True),
            ("gantry-1", True),
            ("gantry-2", True),
        ]
        first_page = await first.get("/v1/connections", limit=2)
        rest = await first.get("/v1/connections", limit=2, cursor=first_page["next"])
        numbers = [connection["replica"] for page in (first_page, rest) for connection in page["items"]]
        assert sorted(numbers) == ["gantry-0", "gantry-1", "gantry-2"]
        assert (first_page["total"], rest["next"]) == (3, None)


async def test_message_is_resent_to_the_retry_topic_of_grpc_members_at_another_replica(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as served:
        (first, _), (second, _) = served
        topic = await create_topic(first.address, "orders", 1)
        async with Client(first.address) as client, Consumer(second.address, "shipping", topic, "grpc@1") as consumer:
            await client.send(topic, b"again", {"UNIQ_KEY": UNIQUE_ID})
            # Each replica has a broker of its own here, and the group is needed at both.
            await client.get(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps({"groupName": "shipping"})
            )
            telemetry = consumer.stub.Telemetry(metadata=consumer.metadata)
            await telemetry.write(TelemetryCommand(settings=consumer_settings("shipping", [topic])))
            await eventually_a_member(second.app, "shipping")
            path = f"/v1/topics/{topic}/messages/{UNIQUE_ID}/resend"
            resent = await first.post(path, {"to": "auto", "group": "shipping"})
            telemetry.cancel()
    assert resent["topic"] == f"%RETRY%shipping_{topic}"


async def test_write_reaches_the_named_replica_and_its_audit_names_the_caller(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as served, Client(served[1][0].address, "client-1") as client:
        await client.heartbeat({"billing": ["orders"]})
        first = served[0][0]
        (connection,) = (await first.get("/v1/connections"))["items"]
        path = f"/v1/connections/{connection['number']}"
        assert (await first.write.delete(path)).status_code == 404
        assert (await first.read.delete(path, params={"replica": "gantry-1"})).status_code == 401
        assert (await first.write.delete(path, params={"replica": "gantry-1"})).status_code == 204
        assert (await first.get("/v1/connections"))["items"] == []
        entries = (await first.get("/v1/audit", replica="gantry-1"))["items"]
        assert [(entry["caller"], entry["path"]) for entry in entries] == [("write_token at peer", path)]


async def test_slash_in_a_name_reaches_the_named_replica(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as served, Client(served[1][0].address, "ns/pod-1") as client:
        await client.heartbeat({"billing": ["orders"]})
        found = await served[0][0].get("/v1/clients/ns%2Fpod-1", replica="gantry-1")
        assert found["client_id"] == "ns/pod-1"


async def test_named_replica_grants_no_more_than_the_role_of_the_caller(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, contents="write") as served:
        first, second = served[0][0], served[1][0]
        topic = await create_topic(second.address, "orders", 1)
        async with Client(second.address, "client-1") as client:
            await client.route(topic)
            await client.send(topic, b"secret body", {"KEYS": "secret-key"})
        there = {"replica": "gantry-1"}
        (read,) = (await first.get(f"/v1/topics/{topic}/messages", **there))["items"]
        (written,) = (await first.write.get(f"/v1/topics/{topic}/messages", params=there)).json()["items"]
        assert ("secret-key" in str(read), "secret-key" in str(written)) == (False, True)
        refused = await first.read.get(f"/v1/topics/{topic}/messages", params={"key": "secret-key", **there})
        assert (refused.status_code, "admin.contents" in refused.json()["detail"]) == (403, True)
        assert "missing_replicas" not in await first.get("/v1/clients"), "a refused caller does not mark it as failed"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/", "/v1/session", "/v1/tap"])
async def test_paths_without_a_role_are_not_sent_to_other_replicas(tmp_path: Path, path: str) -> None:
    async with fleet(tmp_path, 2, local="none") as served:
        first = served[0][0]
        answers = [
            await client.request("POST" if path == "/v1/session" else "GET", path, params={"replica": "gantry-1"})
            for client in (first.read, first.write)
        ]
        assert [answer.status_code for answer in answers] == [401 if path == "/v1/tap" else 404, 404]
        assert (await first.write.get("/v1/clients")).json().get("missing_replicas") is None


async def test_replica_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_RETRY_DELAY", 0.0)
    async with fleet(tmp_path, 2) as served:
        first = served[0][0]
        assert "missing_replicas" not in await first.get("/v1/clients")
        await served[1][1].aclose()
        assert (await first.get("/v1/clients"))["missing_replicas"] == ["gantry-1"]
        silent = (await first.get("/v1/live"))["replicas"][1]
        assert (silent["name"], silent["answers"]) == ("gantry-1", False)
        answer = await first.read.get("/v1/version", params={"replica": "gantry-1"})
        assert answer.status_code == 503
        assert "gantry-1 does not answer" in answer.json()["detail"]


async def test_silent_worker_of_another_replica_is_named(tmp_path: Path) -> None:
    """The items of its other workers are kept."""
    async with fleet(tmp_path, 2) as served, Client(served[1][0].address, "client-1") as client:
        await client.heartbeat({"billing": ["orders"]})
        first, second = served[0][0], served[1][0]
        supervisor = FakeSupervisor(3)
        second.app.admin_services.workers.join(supervisor.workers[0], lambda: asyncio.sleep(0))
        supervisor.kill(1)
        supervisor.kill(2)
        found = await first.get("/v1/clients")
        assert [item["client_id"] for item in found["items"]] == ["client-1"]
        assert found["missing_replicas"] == ["gantry-1 (worker 1)", "gantry-1 (worker 2)"]
        assert "missing_workers" not in found
        # Found at the other replica only.
        assert (await first.get("/v1/clients/client-1"))["missing_replicas"] == found["missing_replicas"]
        assert (await second.get("/v1/clients"))["missing_workers"] == [1, 2]


async def test_peer_with_another_token_is_named_by_its_address(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1) as served:
        port = free_port()
        admin = {
            "listen": f"127.0.0.1:{port}",
            "peers": [str(served[0][0].app.admin.addresses[0])],
            "peer_token": "another-token-of-replicas",
        }
        async with replica(tmp_path / "stranger", replica="stranger", admin=admin) as stranger:
            found = await stranger.get("/v1/clients")
            assert found["missing_replicas"] == [str(served[0][0].app.admin.addresses[0])]


async def test_replica_alone_finds_only_itself(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1) as served:
        only = served[0][0]
        assert "missing_replicas" not in await only.get("/v1/clients")
        assert len((await only.get("/v1/live"))["replicas"]) == 1


async def test_peer_route_runs_no_writes_and_only_known_operations(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1) as served:
        only = served[0][0]
        for name in ("replica.change_state", "unknown", "dead_letters.list"):
            assert (await only.write.get(f"/v1/peer/{name}")).status_code == 404
        assert (await only.write.get("/v1/peer/clients.list", params={"parameters": "{}"})).status_code == 422


@pytest.mark.parametrize("values", [["gantry"], ["unix:/run/a"], [":8090"]])
def test_peer_needs_an_address_and_a_token(values: list[str]) -> None:
    with pytest.raises(ValueError, match="host:port"):
        AdminSettings(peers=values, peer_token=TOKEN)
    with pytest.raises(ValueError, match="peer_token"):
        AdminSettings(peers=["gantry:8090"])


@pytest.mark.parametrize("sort", ["in_flight", "-in_flight", "age", "-age", "bytes_in"])
async def test_pages_over_replicas_have_every_connection_once(tmp_path: Path, sort: str) -> None:
    """Connections of different replicas have the same numbers, and often the same values."""
    async with fleet(tmp_path, 2) as served, AsyncExitStack() as stack:
        for number in range(6):
            one = served[number % 2][0]
            client = await stack.enter_async_context(Client(one.address, f"client-{number}"))
            await client.heartbeat({"billing": ["orders"]})
            # The loop's clock has milliseconds.
            await asyncio.sleep(0.02)
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await served[0][0].get("/v1/connections", sort=sort, limit=1, **cursor)
            found += [item["clients"][0]["client_id"] for item in page["items"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert sorted(found) == [f"client-{number}" for number in range(6)]
        if sort in ("age", "-age"):
            # The youngest first, whichever replica has it.
            assert found == sorted(found, reverse=sort == "age")


async def test_clients_name_their_replicas_and_tls(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2) as served, AsyncExitStack() as stack:
        for one, _ in served:
            client = await stack.enter_async_context(Client(one.address, "client"))
            await client.heartbeat({"billing": ["orders"]})
        [found] = (await served[0][0].get("/v1/clients"))["items"]
        assert (found["replicas"], found["tls"]) == (["gantry-0", "gantry-1"], ["none"])
