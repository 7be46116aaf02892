"""The TLS of a listener, as a scanner sees it."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.tls import (
    ClientAuth,
    KeyPair,
    MinimumVersion,
    SessionTickets,
    TlsError,
    TlsFiles,
    TlsMode,
    TlsOptions,
    TlsSource,
    server_context,
)
from protocol_negotiation.tls_files import TICKET_PERIOD, Refresh
from proxy.tools.cert.authority import Authority, Issued
from tests.protocol_negotiation.servers import Run, RunningListener, close_client, listening, wait_until
from tests.protocol_negotiation.tls_handshake import client_context, handshake, reuses, session_with
from tests.protocol_negotiation.tls_scan import Report, Scanner

_T = TypeVar("_T")
_SECRET = bytes(range(32))


@pytest.fixture
def issuer(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def files_of(issued: Issued, **more: object) -> TlsFiles:
    return replace(TlsFiles(issued.certificate, issued.key), **more)  # type: ignore[arg-type]


async def scanned(stage: RunningListener, scan: Callable[[Scanner], _T], client: Issued | None = None) -> _T:
    certificate = None if client is None else (str(client.certificate), str(client.key))
    return await asyncio.to_thread(scan, Scanner("127.0.0.1", stage.address.port, certificate))


def test_the_default_options_are_safe(issuer: Authority, run: Run) -> None:
    async def test() -> None:
        source = TlsSource(files_of(issuer.issue_server("server", ["rocketmq.test"], 1)))
        async with listening(tls=source) as stage:
            report: Report = await scanned(stage, Scanner.scan)
        assert report.versions == ["TLSv1_2", "TLSv1_3"]
        assert report.accepted_ciphers
        assert report.weak_ciphers == []
        assert report.compression is None
        assert report.renegotiation is False
        assert report.resumed == ["TLSv1_2", "TLSv1_3"]
        assert report.alpn == {"": None, "h2": "h2", "http/1.1": None}

    run(test())


def test_options_restrict_versions_ciphers_and_resumption(issuer: Authority, run: Run) -> None:
    async def test() -> None:
        files = files_of(issuer.issue_server("server", ["rocketmq.test"], 1))
        options = TlsOptions(ciphers="ECDHE-ECDSA-AES256-GCM-SHA384", tickets=SessionTickets.OFF)
        async with listening(tls=TlsSource(replace(files, options=options))) as stage:
            report: Report = await scanned(stage, Scanner.scan)
        assert report.accepted_ciphers == ["ECDHE-ECDSA-AES256-GCM-SHA384"]
        assert report.resumed == []
        options = TlsOptions(minimum_version=MinimumVersion.TLS_1_3)
        async with listening(tls=TlsSource(replace(files, options=options))) as stage:
            report = await scanned(stage, Scanner.scan)
        assert report.versions == ["TLSv1_3"]

    run(test())


def test_the_server_name_selects_the_certificate(issuer: Authority, run: Run) -> None:
    async def test() -> None:
        additional = tuple(
            KeyPair(issued.certificate, issued.key, names)
            for issued, names in (
                (issuer.issue_server("orders", ["orders.test", "*.orders.test"], 1), ()),
                (issuer.issue_server("named", ["other.test"], 1), ("named.test",)),
            )
        )
        files = files_of(issuer.issue_server("server", ["default.test"], 1), additional=additional)
        requested = ["orders.test", "EU.orders.test", "a.eu.orders.test", "named.test", "other.test", "unknown.test"]
        async with listening(tls=TlsSource(files)) as stage:
            report: Report = await scanned(stage, lambda scanner: scanner.scan(requested))
            names: set[str | None] = set()
            while not {"orders.test", "unknown.test", None} <= names:
                _, peer, _ = await stage.outcome()
                names.update(() if peer.tls is None else (peer.tls.server_name,))
        orders, named, default = "CN=orders.test", "CN=other.test", "CN=default.test"
        assert list(report.names.values()) == [orders, orders, default, named, default, default]

    run(test())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_revoked_client_certificate_is_refused(issuer: Authority, run: Run, version: ssl.TLSVersion) -> None:
    async def test() -> None:
        alice, bob = issuer.issue_client("alice", 1), issuer.issue_client("bob", 1)
        files = files_of(
            issuer.issue_server("server", ["rocketmq.test"], 1),
            client_ca=issuer.certificate_file,
            client_auth=ClientAuth.REQUIRED,
            crl=issuer.crl_file,
            options=TlsOptions(ticket_secret=_SECRET),
        )
        source = TlsSource(files)
        async with listening(tls=source, echo=True, tls_mode=TlsMode.ENFORCING) as stage:
            context = client_context(issuer, alice, version)
            await asyncio.to_thread(_talk, context, stage.address.port)

            issuer.revoke("alice", 1)
            assert source.refresh() is Refresh.RELOADED
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(_talk, context, stage.address.port)
            await wait_until(lambda: stage.listener.tls_failures["certificate_revoked"] == 1)
            await asyncio.to_thread(_talk, client_context(issuer, bob, version), stage.address.port)
        outcomes = [stage.outcomes.get_nowait() for _ in range(stage.outcomes.qsize())]
        accepted = [
            peer.tls.subject for outcome, peer, _ in outcomes if outcome is Outcome.REMOTING and peer.tls is not None
        ]
        assert accepted == ["CN=alice", "CN=bob"]

    run(test())


def _talk(context: ssl.SSLContext, port: int) -> None:
    """Send a remoting frame and read the echo. Raises ssl.SSLError, ConnectionError."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain, server_hostname="rocketmq.test") as connection,
    ):
        frame = b"\0\0\0\x06\0\0\0\x02{}"
        connection.sendall(frame)
        if connection.recv(len(frame)) != frame:
            raise ConnectionError("closed")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_workers_with_a_secret_resume_each_others_sessions(issuer: Authority, version: ssl.TLSVersion) -> None:
    files = files_of(issuer.issue_server("server", ["rocketmq.test"], 1))
    shared = replace(files, options=TlsOptions(ticket_secret=_SECRET))
    first, second = server_context(shared), server_context(shared)
    client = client_context(issuer, version=version)
    session = session_with(first, client)
    assert session_with(second, client, session) is not None
    assert reuses(second, client, session)
    for other in (replace(shared, options=TlsOptions(ticket_secret=bytes(32))), files):
        assert not reuses(server_context(other), client, session)
    issuer.issue_server("server", ["rocketmq.test"], 1, replace=True)
    assert not reuses(server_context(shared), client, session)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("secret", [_SECRET, None])
def test_ticket_keys_are_replaced_after_their_period(
    issuer: Authority, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion, secret: bytes | None
) -> None:
    now = 1000 * TICKET_PERIOD
    monkeypatch.setattr(time, "time", lambda: now)
    files = files_of(issuer.issue_server("server", ["rocketmq.test"], 1), options=TlsOptions(ticket_secret=secret))
    source = TlsSource(files)
    client = client_context(issuer, version=version)
    session = session_with(source.context, client)
    now += TICKET_PERIOD - 1
    assert source.refresh() is Refresh.UNCHANGED
    assert reuses(source.context, client, session)
    now += 1
    assert source.refresh() is Refresh.ROTATED
    assert not reuses(source.context, client, session)
    assert source.refresh() is Refresh.UNCHANGED


def test_without_tickets_there_are_no_keys_to_replace(issuer: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000 * TICKET_PERIOD
    monkeypatch.setattr(time, "time", lambda: now)
    options = TlsOptions(tickets=SessionTickets.OFF)
    source = TlsSource(files_of(issuer.issue_server("server", ["rocketmq.test"], 1), options=options))
    now += 2 * TICKET_PERIOD
    assert source.refresh() is Refresh.UNCHANGED


def test_certificates_are_reloaded_under_load_without_a_failed_call(issuer: Authority, run: Run) -> None:
    """Certificate and key are replaced one after the other, so that some reloads find a pair that does not match."""

    async def test() -> None:
        issued = issuer.issue_server("server", ["rocketmq.test"], 1)
        source = TlsSource(files_of(issued))
        stop = asyncio.Event()
        serials: set[object] = set()
        calls = 0

        async def call_repeatedly(stage: RunningListener) -> None:
            nonlocal calls
            context = client_context(issuer)
            while not stop.is_set():
                reader, writer = await stage.connect(context)
                frame = b"\0\0\0\x06\0\0\0\x02{}"
                writer.write(frame)
                async with asyncio.timeout(30):
                    assert await reader.readexactly(len(frame)) == frame
                serials.add(writer.get_extra_info("peercert")["serialNumber"])
                calls += 1
                await close_client(writer)

        async with listening(tls=source, echo=True) as stage:
            callers = [asyncio.ensure_future(call_repeatedly(stage)) for _ in range(4)]
            outcomes = []
            for _ in range(10):
                before, wanted = len(serials), calls + 4
                renewed = issuer.issue_server("renewed", ["rocketmq.test"], 1, replace=True)
                renewed.certificate.replace(issued.certificate)
                outcomes.append(await asyncio.to_thread(source.refresh))
                renewed.key.replace(issued.key)
                outcomes.append(await asyncio.to_thread(source.refresh))
                async with asyncio.timeout(30):
                    while (calls < wanted or len(serials) == before) and not any(caller.done() for caller in callers):
                        await asyncio.sleep(0.001)
            stop.set()
            await asyncio.gather(*callers)
        assert outcomes == [Refresh.FAILED, Refresh.RELOADED] * 10
        assert len(serials) >= 10
        assert stage.listener.tls_failures == {}

    run(test())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TlsOptions(ciphers="NONSENSE"), "ciphers: OpenSSL knows no cipher in 'NONSENSE'"),
        (TlsOptions(curves=("P-256", "nonsense")), "curves: unknown curve in P-256:nonsense"),
    ],
)
def test_unknown_algorithms_are_errors_that_name_the_setting(
    issuer: Authority, options: TlsOptions, message: str
) -> None:
    with pytest.raises(TlsError, match=message):
        server_context(files_of(issuer.issue_server("server", ["rocketmq.test"], 1), options=options))


def test_a_client_without_a_permitted_curve_is_refused(issuer: Authority) -> None:
    files = files_of(
        issuer.issue_server("server", ["rocketmq.test"], 1), options=TlsOptions(curves=("X25519", "P-384"))
    )
    client = client_context(issuer)
    client.set_ecdh_curve("secp384r1")
    handshake(server_context(files), client)
    client.set_ecdh_curve("prime256v1")
    with pytest.raises(ssl.SSLError):
        handshake(server_context(files), client)


def test_a_key_that_other_users_can_read_is_refused(issuer: Authority) -> None:
    issued = issuer.issue_server("server", ["rocketmq.test"], 1)
    for mode in (0o640, 0o604, 0o620):
        issued.key.chmod(mode)
        with pytest.raises(TlsError, match=rf"server\.key: mode {mode:04o} gives other users access"):
            server_context(files_of(issued))
    issued.key.chmod(0o400)
    server_context(files_of(issued))
