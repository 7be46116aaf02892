"""Name server and broker of RocketMQ that accept TLS with a client certificate only (tls.server.mode=enforcing)."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from protocol_negotiation.tls_client import ClientTlsFiles, ClientTlsSource, Verification
from proxy.backends.cluster.name_servers import NameServers
from proxy.backends.cluster.server_connection import ServerOptions
from proxy.backends.cluster.server_turns import ServerTurns
from proxy.observability.metrics.upstream import UpstreamCounts
from proxy.tools.cert.authority import Authority
from remoting import properties
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.timeout_wheel import TimeoutWheel, ticking
from tests.cluster.client import Client, send_fields, unique, v2
from tests.cluster.servers import HOST, Cluster, Gantry, started

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(240, func_only=True)]

_TOPIC = "encrypted"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    authority.issue_server("server", [HOST], 1)
    authority.issue_client("client", 1)
    return authority


@pytest.fixture(scope="module")
def tls_cluster(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = ("--quick", "--tls-certificates", str(authority.directory))
    with started(tmp_path_factory, "tls", *options) as cluster:
        cluster.topic(_TOPIC)
        yield cluster


async def test_messages_pass_over_tls_with_a_client_certificate(
    tls_cluster: Cluster, authority: Authority, tmp_path: Path
) -> None:
    directory = authority.directory
    config = f"""
        [cluster_tls]
        enabled = true
        ca = "{directory}/ca.pem"
        certificate = "{directory}/client.pem"
        key = "{directory}/client.key"
    """
    with Gantry(tmp_path, tls_cluster.namesrv, config) as gantry:
        async with Client(gantry.address) as client:
            fields = client.named(send_fields(_TOPIC, properties.encode({"KEYS": "k"})))
            # More than one record of TLS.
            body = b"x" * 100_000
            await client.get(RequestCode.SEND_MESSAGE_V2, v2(fields), body)
            [message] = await client.pull(_TOPIC, unique("group"))
    assert message.body == body


async def test_untrusted_servers_are_refused(
    tls_cluster: Cluster, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = authority.directory
    files = ClientTlsFiles(directory / "ca.pem", directory / "client.pem", directory / "client.key")
    other = Authority(tmp_path / "other")
    another_name = replace(files, server_name="rocketmq.test")
    assert await brokers(tls_cluster, files) == (True, {})
    assert await brokers(tls_cluster, replace(another_name, verification=Verification.CERTIFICATE)) == (True, {})
    assert await brokers(tls_cluster, replace(files, ca=None, verification=Verification.INSECURE)) == (True, {})

    served, failures = await brokers(tls_cluster, replace(files, ca=other.certificate_file))
    assert not served
    assert sum(failures.values()) == 1
    assert await brokers(tls_cluster, another_name) == (False, {"host_name_mismatch": 1})
    assert "the certificate was refused: host name mismatch" in caplog.text
    # The server requires a client certificate, and TLS.
    assert not (await brokers(tls_cluster, replace(files, certificate=None, key=None)))[0]
    assert not (await brokers(tls_cluster, None))[0]


async def brokers(cluster: Cluster, files: ClientTlsFiles | None) -> tuple[bool, dict[str, int]]:
    """Return whether the name server's brokers can be requested, and the failed handshakes by cause."""
    counts = UpstreamCounts()
    loop = asyncio.get_running_loop()
    wheel = TimeoutWheel(loop.time)
    tls = None if files is None else ClientTlsSource(files)
    servers = NameServers([cluster.namesrv], ServerOptions(wheel, 10.0, counts, ServerTurns(loop), tls))
    with ticking(wheel):
        try:
            return bool(await servers.brokers()), dict(counts.tls_failures)
        except RemotingError:
            return False, dict(counts.tls_failures)
        finally:
            servers.close()
