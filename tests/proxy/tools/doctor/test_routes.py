"""Addresses that clients get: every way in which they fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol_negotiation.peer import HostPort
from proxy.app import App
from proxy.tools.doctor.findings import Level
from proxy.tools.doctor.routes import check_address
from proxy.tools.doctor.session import Diagnosis, Options
from remoting import command as commands
from remoting.command import RemotingCommand
from tests.ports import free_port
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.replica import serving
from tests.proxy.tools.doctor.servers import codes, only, replica, run_doctor, server

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def advertising(folder: Path, address: str) -> AsyncIterator[App]:
    async with replica(folder, listen=[{"address": "127.0.0.1:0", "advertise": address}]) as app:
        yield app


async def test_route_to_the_dialled_address_is_ok(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app, topic="orders")
    same = [item for item in found if item.code == "route.same"]
    assert [item.text.partition(":")[0] for item in same] == ["remoting clients", "gRPC clients"]


async def test_route_to_another_listener_of_the_deployment_is_ok(tmp_path: Path) -> None:
    here, there = free_port(), free_port()
    listen = [
        {"address": f"127.0.0.1:{here}", "advertise": f"127.0.0.1:{there}"},
        {"address": f"127.0.0.1:{there}"},
    ]
    async with replica(tmp_path, listen=listen) as app:
        found = await run_doctor(app, topic="orders")
    assert [item.code for item in found if item.check == "route"] == ["route.reached", "route.reached"]


@pytest.mark.parametrize(
    ("advertised", "code"),
    [
        ("0.0.0.0:8080", "route.wildcard"),
        ("gantry-7f9c.invalid:8080", "route.unresolved"),
        pytest.param(f"127.0.0.1:{free_port()}", "route.unreachable", id="closed-port"),
    ],
)
async def test_unusable_advertised_address_fails(tmp_path: Path, advertised: str, code: str) -> None:
    async with advertising(tmp_path, advertised) as app:
        found = await run_doctor(app, topic="orders", timeout=5.0)
    wrong = [item for item in found if item.code == code]
    assert len(wrong) == 2, codes(found)
    assert all(item.level is Level.FAIL and "listen.advertise" in item.remedy for item in wrong)


async def test_loopback_address_for_a_remote_client_fails() -> None:
    elsewhere = Diagnosis(Options(HostPort("mq.example.com", 8080)), addresses=[HostPort("192.0.2.7", 8080)])
    found = await check_address(elsewhere, "remoting clients", "127.0.0.1:8080", "orders")
    assert found.code == "route.loopback"


async def test_address_of_another_program_fails(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read(1 << 16)

    async with server(greet) as stranger, advertising(tmp_path, str(stranger)) as app:
        found = await run_doctor(app, topic="orders", timeout=5.0)
    assert [item.code for item in found if item.check == "route"] == ["route.mute", "route.mute"]


async def test_address_of_another_cluster_is_a_warning(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "other", embedded={"name": "broker-z"}) as other,
        advertising(tmp_path / "here", str(other.addresses[0])) as app,
    ):
        found = await run_doctor(app, topic="orders")
    assert [item.code for item in found if item.check == "route"] == ["route.elsewhere", "route.elsewhere"]
    assert "broker-z, this endpoint has broker-a" in next(item.text for item in found if item.check == "route")


async def test_several_brokers_at_one_address_are_a_warning(cluster: Cluster) -> None:
    await cluster.broker("broker-a")
    await cluster.broker("broker-b")
    cluster.topics["orders"] = ["broker-a", "broker-b"]
    async with serving(cluster) as app:
        found = await run_doctor(app, topic="orders")
    assert "2 brokers" in only(found, "route.one_door").text


async def test_missing_topics_are_a_note(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app, topic="payments")
    assert {"route.unknown", "topic.unknown"} <= codes(found)


async def test_name_server_routes_to_brokers(cluster: Cluster) -> None:
    def unknown(_: RemotingCommand) -> RemotingCommand:
        return commands.response(3, remark="not supported")

    await cluster.broker("broker-a", answer=unknown)
    cluster.topics["TBW102"] = ["broker-a"]
    names = await cluster.name_server()
    found = await run_doctor(HostPort.parse(names.address))
    cluster.names.clear()  # It gets more requests than proxies send.
    assert "a broker, which responds" in only(found, "route.broker").text
