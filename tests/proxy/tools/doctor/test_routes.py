"""Where clients are sent: every way in which that goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol_negotiation.peer import HostPort
from proxy.app import App
from proxy.tools.doctor.findings import Level
from proxy.tools.doctor.routes import judge
from proxy.tools.doctor.session import Options, Visit
from remoting import command as commands
from remoting.command import RemotingCommand
from tests.ports import free_port
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.replica import serving
from tests.proxy.tools.doctor.kit import codes, only, replica, server, visit

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def advertising(folder: Path, address: str) -> AsyncIterator[App]:
    async with replica(folder, listen=[{"address": "127.0.0.1:0", "advertise": address}]) as app:
        yield app


async def test_what_was_dialled(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await visit(app, topic="orders")
    same = [item for item in found if item.code == "route.same"]
    assert [item.text.partition(":")[0] for item in same] == ["remoting clients", "gRPC clients"]


async def test_another_door_of_the_same_deployment(tmp_path: Path) -> None:
    here, there = free_port(), free_port()
    listen = [
        {"address": f"127.0.0.1:{here}", "advertise": f"127.0.0.1:{there}"},
        {"address": f"127.0.0.1:{there}"},
    ]
    async with replica(tmp_path, listen=listen) as app:
        found = await visit(app, topic="orders")
    assert [item.code for item in found if item.check == "route"] == ["route.reached", "route.reached"]


@pytest.mark.parametrize(
    ("advertised", "code"),
    [
        ("0.0.0.0:8080", "route.wildcard"),
        ("gantry-7f9c.invalid:8080", "route.unresolved"),
        pytest.param(f"127.0.0.1:{free_port()}", "route.unreachable", id="closed-port"),
    ],
)
async def test_an_address_that_nobody_can_dial(tmp_path: Path, advertised: str, code: str) -> None:
    async with advertising(tmp_path, advertised) as app:
        found = await visit(app, topic="orders", timeout=5.0)
    wrong = [item for item in found if item.code == code]
    assert len(wrong) == 2, codes(found)
    assert all(item.level is Level.FAIL and "listen.advertise" in item.remedy for item in wrong)


async def test_a_loopback_address_for_a_client_elsewhere() -> None:
    elsewhere = Visit(Options(HostPort("mq.example.com", 8080)), addresses=[HostPort("192.0.2.7", 8080)])
    found = await judge(elsewhere, "remoting clients", "127.0.0.1:8080", "orders")
    assert found.code == "route.loopback"


async def test_an_address_where_somebody_else_listens(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read(1 << 16)

    async with server(greet) as stranger, advertising(tmp_path, str(stranger)) as app:
        found = await visit(app, topic="orders", timeout=5.0)
    assert [item.code for item in found if item.check == "route"] == ["route.mute", "route.mute"]


async def test_an_address_of_another_cluster(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "other", embedded={"name": "broker-z"}) as other,
        advertising(tmp_path / "here", str(other.addresses[0])) as app,
    ):
        found = await visit(app, topic="orders")
    assert [item.code for item in found if item.check == "route"] == ["route.elsewhere", "route.elsewhere"]
    assert "broker-z, here it is broker-a" in next(item.text for item in found if item.check == "route")


async def test_old_clients_and_several_brokers(cluster: Cluster) -> None:
    await cluster.broker("broker-a")
    await cluster.broker("broker-b")
    cluster.topics["orders"] = ["broker-a", "broker-b"]
    async with serving(cluster) as app:
        found = await visit(app, topic="orders")
    assert "2 brokers" in only(found, "route.one_door").text


async def test_no_topic_to_ask_for(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await visit(app, topic="payments")
    assert {"route.unknown", "topic.unknown"} <= codes(found)


async def test_a_name_server_sends_to_brokers(cluster: Cluster) -> None:
    def unknown(_: RemotingCommand) -> RemotingCommand:
        return commands.response(3, remark="not supported")

    await cluster.broker("broker-a", answer=unknown)
    cluster.topics["TBW102"] = ["broker-a"]
    names = await cluster.name_server()
    found = await visit(HostPort.parse(names.address))
    cluster.names.clear()  # It is asked more than proxies ask it.
    assert "which is a broker and answers" in only(found, "route.broker").text
