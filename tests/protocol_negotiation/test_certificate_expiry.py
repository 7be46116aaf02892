"""Client certificates that expire: sessions that would outlive them, and open connections."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.tls import ClientAuth, TlsFiles, TlsMode, TlsOptions, TlsSource, server_context
from tests.protocol_negotiation.authority import Authority
from tests.protocol_negotiation.servers import Run, RunningListener, listening, wait_until, with_timeout
from tests.protocol_negotiation.tls_handshake import connected, reuses

_FRAME = b"\0\0\0\x06\0\0\0\x02{}"


@asynccontextmanager
async def mutual(authority: Authority, client_auth: ClientAuth) -> AsyncIterator[RunningListener]:
    source = TlsSource(authority.files("mutual", client_auth))
    async with listening(tls=source, echo=True, tls_mode=TlsMode.ENFORCING) as stage:
        yield stage


def pass_time(stage: RunningListener, seconds: float) -> None:
    state = stage.listener._state
    assert state is not None
    state.certificate_expiry._clock = lambda: time.time() + seconds


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("client_auth", [ClientAuth.OPTIONAL, ClientAuth.REQUIRED])
def test_sessions_are_not_resumed_where_clients_are_asked_for_certificates(
    tmp_path: Path, version: ssl.TLSVersion, client_auth: ClientAuth
) -> None:
    authority = Authority(tmp_path)
    made = authority.files("mutual", client_auth)
    files = TlsFiles(
        made.certificate, made.key, None, made.client_ca, client_auth, options=TlsOptions(ticket_secret=bytes(32))
    )
    server = server_context(files)
    client = authority.client_context(certificate=authority.ca.issue_cert("client@rocketmq.test"))
    client.minimum_version = client.maximum_version = version
    session = connected(server, client, None).session
    assert session is None or not session.has_ticket
    assert session is None or not reuses(server, client, session)


def test_an_expired_certificate_is_refused_even_if_openssl_accepts_it(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        authority = Authority(tmp_path)
        certificate = authority.ca.issue_cert("client@rocketmq.test", not_after=datetime.now(UTC) + timedelta(hours=1))
        async with mutual(authority, ClientAuth.REQUIRED) as stage:
            pass_time(stage, 3600)
            # With TLS 1.3 the client's side of the handshake is complete.
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                reader, _ = await stage.connect(authority.client_context(certificate=certificate))
                assert not await with_timeout(reader.read(1))
            outcome, _, _ = await stage.outcome()
            assert outcome is Outcome.TLS_FAILED
            assert stage.listener.tls_failures["certificate_has_expired"] == 1

    run(test())


def test_open_connections_end_with_their_certificates(tmp_path: Path, run: Run) -> None:
    async def test() -> None:
        authority = Authority(tmp_path)
        certificates = [
            authority.ca.issue_cert(f"{name}@rocketmq.test", not_after=datetime.now(UTC) + timedelta(hours=hours))
            for name, hours in (("short", 1), ("long", 48))
        ]
        contexts = [authority.client_context(certificate=certificate) for certificate in certificates]
        async with mutual(authority, ClientAuth.OPTIONAL) as stage:
            clients = [await stage.connect(context) for context in (*contexts, authority.client_context())]
            for reader, writer in clients:
                writer.write(_FRAME)
                assert await with_timeout(reader.readexactly(len(_FRAME))) == _FRAME
            recorders = [(await stage.recorder())[1] for _ in clients]
            pass_time(stage, 2 * 3600)
            await wait_until(lambda: "lost" in recorders[0].calls)
            await asyncio.sleep(1.5)
            assert ["lost" in recorder.calls for recorder in recorders] == [True, False, False]
            for reader, writer in clients[1:]:
                writer.write(_FRAME)
                assert await with_timeout(reader.readexactly(len(_FRAME))) == _FRAME
            pass_time(stage, 49 * 3600)
            await wait_until(lambda: "lost" in recorders[1].calls)
            assert "lost" not in recorders[2].calls

    run(test())
