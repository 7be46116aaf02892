"""TLS of the HTTP API."""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from protocol_negotiation.revocations import Revocations
from protocol_negotiation.tls import ClientAuth, TlsFiles
from proxy.admin.http.server import _following, _tls
from proxy.tools.cert.authority import Authority
from tests.protocol_negotiation.tls_handshake import client_context, connected
from tests.proxy.admin.http.certificates import certified
from tests.proxy.admin.http.replicas import replica


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_not_resumed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """The listening socket keeps its first context: a session could outlive a change of the certificate authorities."""
    issuer = Authority(tmp_path / "certificates")
    issued = issuer.issue_server("server", ["rocketmq.test"], 1)
    files = TlsFiles(issued.certificate, issued.key, None, issuer.certificate_file, ClientAuth.OPTIONAL)
    context = _following(_tls(files), files)
    client = client_context(issuer, issuer.issue_client("alice", 1), version)
    first = connected(context, client, None)
    assert first.session is None or not connected(context, client, first.session).session_reused


@pytest.mark.anyio
async def test_a_connection_ends_with_the_callers_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    settings = {
        **certified(authority, tmp_path),
        "client_ca": str(tmp_path / "ca.pem"),
        "readers": "*",
        "local": "none",
    }
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with replica(tmp_path / "data", admin=settings) as own:
        assert own.app.admin.url is not None
        port = int(own.app.admin.url.rpartition(":")[2])

        async def watch(seconds: float) -> bool:
            """Read the tap with a certificate that is valid for this time; return whether the response began."""
            end = datetime.now(UTC) + timedelta(seconds=seconds)
            authority.issue_cert(common_name="alice", not_after=end).configure_cert(context)
            started = False
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.suppress(ConnectionError, ssl.SSLError))
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                stack.callback(writer.close)
                writer.write(b"GET /v1/tap HTTP/1.1\r\nHost: localhost\r\n\r\n")
                started = b" 200 " in await reader.readline()
                async with asyncio.timeout(seconds + 24):
                    await reader.read()
            return started

        # A busy machine may need longer than the certificate is valid.
        assert await watch(6) or await watch(30)
        assert not own.app.admin_services.tap.watchers


@pytest.mark.anyio
@pytest.mark.parametrize("list_is_later", [False, True])
async def test_a_revoked_certificate_ends_its_connections_and_opens_none(tmp_path: Path, list_is_later: bool) -> None:
    issuer = Authority(tmp_path / "certificates")
    server = issuer.issue_server("server", ["127.0.0.1"], 1)
    settings = {
        "certificate": str(server.certificate),
        "key": str(server.key),
        "client_ca": str(issuer.certificate_file),
        "crl": str(issuer.crl_file),
        "readers": "*",
        "local": "none",
        "grpc": "127.0.0.1:0",
    }
    contexts = [client_context(issuer, issuer.issue_client(name, 1)) for name in ("alice", "bob")]
    interval = 60.0 if list_is_later else 0.05
    async with replica(tmp_path / "data", admin=settings, tls={"reload_interval": interval}) as own:
        assert own.app.admin.url is not None
        assert own.app.admin_grpc is not None
        ports = int(own.app.admin.url.rpartition(":")[2]), own.app.admin_grpc.addresses[0].port

        async def watch(context: ssl.SSLContext) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[0], ssl=context, server_hostname="")
            writer.write(b"GET /v1/tap HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writers.append(writer)
            assert b" 200 " in await reader.readline()
            return reader

        async def is_refused(port: int) -> bool:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[0], server_hostname="")
                writers.append(writer)
                return await asyncio.wait_for(reader.read(1), 5) == b""
            except ConnectionError:
                return True

        writers: list[asyncio.StreamWriter] = []
        alice, _ = [await watch(context) for context in contexts]
        issuer.revoke("alice", 1)
        if list_is_later:
            # A handshake with the former context ends after the list has been read.
            server_tls = own.app.admin._server.tls if own.app.admin._server is not None else None
            assert server_tls is not None
            server_tls.revocations = Revocations(issuer.crl_file)
            assert await is_refused(ports[0])
        else:
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(30):
                    await alice.read()
            assert [await is_refused(port) for port in ports] == [True, True]
            assert len(own.app.admin_services.tap.watchers) == 1
        for writer in writers:
            writer.close()
