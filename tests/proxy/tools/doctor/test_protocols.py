"""Protocols at the endpoint, and kinds of servers."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import Code, Status
from protos.apache.rocketmq.v2.service_pb2 import QueryRouteRequest, QueryRouteResponse
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceServicer, add_MessagingServiceServicer_to_server
from remoting import command as commands
from remoting.command import RemotingCommand
from tests.ports import free_port
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.replica import serving
from tests.proxy.tools.doctor.servers import codes, only, replica, run_doctor, server

pytestmark = pytest.mark.anyio


async def test_gantry_is_identified(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app)
    assert only(found, "endpoint.found").text == "the server is Gantry"
    assert {"remoting.answers", "grpc.answers", "health.ready"} <= codes(found)


async def test_embedded_broker_socket_is_identified(tmp_path: Path) -> None:
    port = free_port()
    async with replica(tmp_path, embedded={"listen": f"127.0.0.1:{port}"}):
        found = await run_doctor(HostPort("127.0.0.1", port))
    assert "embedded broker" in only(found, "endpoint.found").text
    assert {"grpc.elsewhere", "health.none", "clock.unknown"} <= codes(found)


async def test_unreachable_cluster_fails(cluster: Cluster) -> None:
    async with serving(cluster) as app:
        cluster.servers[0].stop()
        found = await run_doctor(app)
    assert "no name server" in only(found, "remoting.busy").text
    assert {"grpc.not_serving", "health.not_ready"} <= codes(found)
    assert "name server" in only(found, "health.not_ready").text


async def test_java_server_shows_its_version(cluster: Cluster) -> None:
    def answer(_: RemotingCommand) -> RemotingCommand:
        describe_bytes = commands.response(17, remark="no route")
        describe_bytes.header.update(language="JAVA", version=493)
        return describe_bytes

    java = await cluster.server(answer)
    found = await run_doctor(HostPort.parse(java.address))
    assert "RocketMQ 5.4.0 (JAVA)" in only(found, "versions.known").text
    assert only(found, "endpoint.found").text == "the server is an official proxy"


class _RoutesOnly(MessagingServiceServicer):
    """Missing methods answer UNIMPLEMENTED, as generated code does."""

    async def QueryRoute(
        self, request: QueryRouteRequest, context: grpc.aio.ServicerContext[QueryRouteRequest, QueryRouteResponse]
    ) -> QueryRouteResponse:
        return QueryRouteResponse(status=Status(code=Code.TOPIC_NOT_FOUND, message="none"))


async def test_grpc_only_server_is_identified() -> None:
    grpcio = grpc.aio.server()
    add_MessagingServiceServicer_to_server(_RoutesOnly(), grpcio)  # type: ignore[abstract]
    port = grpcio.add_insecure_port("127.0.0.1:0")
    await grpcio.start()
    try:
        found = await run_doctor(HostPort("127.0.0.1", port), topic="orders", timeout=5.0)
    finally:
        await grpcio.stop(None)
    assert {"remoting.none", "grpc.answers", "health.none"} <= codes(found)
    assert (
        only(found, "route.unknown").text
        == "gRPC clients: none of these topics exists (orders: none), so the route cannot be checked"
    )


async def test_remoting_only_server_is_identified(cluster: Cluster) -> None:
    plain = await cluster.server(lambda _: commands.response(17, remark="no route"))
    found = await run_doctor(HostPort.parse(plain.address))
    assert "grpc.none" in codes(found)


async def test_broker_is_identified(cluster: Cluster) -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        describe_bytes = commands.success() if command.code == 28 else commands.response(3, remark="not supported")
        describe_bytes.header["language"] = "JAVA"
        return describe_bytes

    broker = await cluster.server(answer)
    found = await run_doctor(HostPort.parse(broker.address), topic="orders")
    assert only(found, "endpoint.found").text == "the server is a broker"
    assert {"grpc.elsewhere", "route.none"} <= codes(found)
    assert "topic.denied" not in codes(found)


async def test_foreign_server_fails() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read(1 << 16)

    async with server(greet) as address:
        found = await run_doctor(address, timeout=5.0)
    assert "SSH" in only(found, "endpoint.foreign").text


async def test_silent_server_fails() -> None:
    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    async with server(wait) as address:
        found = await run_doctor(address, timeout=1.0)
    assert "endpoint.silent" in codes(found)


async def test_server_silent_after_a_request_is_not_a_refusal() -> None:
    """A connection without a response in time does not count as a refusal."""

    async def close(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        return

    async with server(close) as address:
        found = await run_doctor(address, timeout=5.0)
    assert "endpoint.closes" in codes(found)


@asynccontextmanager
async def haproxy(folder: Path, target: HostPort, accept: str = "", send: str = "") -> AsyncIterator[HostPort]:
    """Run HAProxy in TCP mode; `accept` and `send` are options of its bind and server lines."""
    port = free_port()
    file = folder / "haproxy.cfg"
    file.write_text(
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n"
        f"frontend in\n  bind 127.0.0.1:{port} {accept}\n  default_backend out\n"
        f"backend out\n  server one {target} {send}\n"
    )
    process = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", str(file), stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        yield HostPort("127.0.0.1", port)
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.external
async def test_required_proxy_header_fails(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "store") as app,
        haproxy(tmp_path, app.addresses[0], accept="accept-proxy") as address,
    ):
        found = await run_doctor(address, timeout=5.0)
    assert "endpoint.proxy_protocol" in codes(found)


@pytest.mark.external
async def test_untrusted_proxy_header_fails(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "store") as app,
        haproxy(tmp_path, app.addresses[0], send="send-proxy-v2") as address,
    ):
        found = await run_doctor(address, timeout=5.0)
    assert "endpoint.closes" in codes(found)
    assert "listen.trusted_proxies" in only(found, "endpoint.closes").remedy


@pytest.mark.external
async def test_trusted_load_balancer_is_ok(tmp_path: Path) -> None:
    listen = [{"address": "127.0.0.1:0", "trusted_proxies": ["127.0.0.0/8"]}]
    async with (
        replica(tmp_path / "store", listen=listen) as app,
        haproxy(tmp_path, app.addresses[0], send="send-proxy-v2") as address,
    ):
        found = await run_doctor(address, topic="orders")
    # Both kinds of clients get the load balancer's address.
    assert [item.text for item in found if item.code == "route.same"] == [
        f"{kind} clients: sent to {address}, the dialled endpoint, which responds" for kind in ("remoting", "gRPC")
    ]
