"""The API before a cluster, and with the grpcio transport."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.app import App
from remoting.requests import REQUESTS
from tests.cluster.client import create_topic
from tests.cluster.grpc.consumer import Consumer
from tests.proxy.admin.http.replicas import Replica, replica
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.messages import complete
from tests.proxy.replica import Client, ask_route, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio
_ADMIN = {"listen": "127.0.0.1:0"}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": False}


async def ask(app: App, path: str) -> tuple[int, Any]:
    async with httpx.AsyncClient(base_url=app.admin.url or "", timeout=30) as client:
        answer = await client.get(path)
        return answer.status_code, answer.json()


async def test_replica_without_brokers_is_not_ready(cluster: Cluster) -> None:
    async with serving(cluster, admin=_ADMIN) as app:
        status, reply = await ask(app, "/readyz")
        assert status == 503
        assert reply["checks"]["backend"]["reason"] == "no broker is known: no name server has reported one"
        assert reply["checks"]["name_servers"]["status"] == "pass"
        assert (await ask(app, "/v1/brokers"))[1] == {"items": []}


async def test_broker_is_described_with_its_connection_state(cluster: Cluster) -> None:
    broker = await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster, admin=_ADMIN) as app:
        client = await Client.connect(app)
        await client.ask(ask_route())
        _, reply = await ask(app, "/v1/brokers")
        assert reply["items"][0]["addresses"][0]["state"] == "idle"
        await client.ask(complete(REQUESTS[310]))
        (item,) = (await ask(app, "/v1/brokers"))[1]["items"]
        address = item["addresses"][0]
        assert (item["name"], item["healthy"], item["answers"]) == ("broker-a", True, 1)
        assert (address["state"], address["connections"], address["pending"]) == ("connected", 1, 0)
        assert address["bytes_out"] > 0
        (server,) = (await ask(app, "/v1/name-servers"))[1]["items"]
        assert server["state"] == "connected"
        assert (await ask(app, "/readyz"))[0] == 200
        broker.stop()
        # The first request may find the connection lost, the second that it cannot be opened.
        for _ in range(2):
            assert (await client.ask(complete(REQUESTS[310]))).code == 14
        (item,) = (await ask(app, "/v1/brokers"))[1]["items"]
        assert (item["healthy"], item["addresses"][0]["state"]) == (False, "unreachable")
        status, reply = await ask(app, "/readyz")
        assert (status, reply["checks"]["backend"]["reason"]) == (503, "no broker can be reached")
        assert reply["checks"]["brokers"] == {"status": "warn", "reason": "cannot be reached: broker-a"}
        await client.close()


@pytest.fixture
async def grpcio(anyio_backend: Any, tmp_path: Path) -> Any:
    async with replica(tmp_path, grpc={"transport": "grpcio"}) as own:
        yield own


async def test_connections_of_the_grpcio_transport_are_listed_and_disconnected(grpcio: Replica) -> None:
    topic = await create_topic(grpcio.address, "orders")
    async with Consumer(grpcio.address, "g", topic, "c1") as client:
        await client.send(b"body")
        (item,) = (await grpcio.get("/v1/connections", protocol="grpc"))["items"]
        assert (item["protocol"], item["clients"][0]["client_id"]) == ("grpc", "c1")
        assert item["bytes_in"] > 100 < item["bytes_out"]
        assert (await grpcio.write.delete(f"/v1/connections/{item['number']}")).status_code == 204
        await until(
            lambda: any(closed.protocol == "grpc" for _, closed in grpcio.app.admin_services.events.closed.newest())
        )
    ((_, closed), *_) = grpcio.app.admin_services.events.closed.newest()
    assert (closed.number, closed.cause, closed.client_id) == (item["number"], "operator", "c1")
