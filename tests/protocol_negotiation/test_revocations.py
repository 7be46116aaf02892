"""Client certificates that are revoked while their connections are open."""

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from protocol_negotiation.revocations import Revocations
from protocol_negotiation.tls import ClientAuth, TlsError, TlsFiles, TlsMode, TlsSource
from protocol_negotiation.tls_files import Refresh
from proxy.tools.cert.authority import Authority
from tests.protocol_negotiation.servers import Run, RunningListener, listening, wait_until, with_timeout
from tests.protocol_negotiation.tls_handshake import client_context

_FRAME = b"\0\0\0\x06\0\0\0\x02{}"


@pytest.fixture
def issuer(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def source_of(issuer: Authority) -> TlsSource:
    issued = issuer.issue_server("server", ["rocketmq.test"], 1)
    files = TlsFiles(issued.certificate, issued.key, client_ca=issuer.certificate_file, crl=issuer.crl_file)
    return TlsSource(replace(files, client_auth=ClientAuth.OPTIONAL))


async def served(stage: RunningListener, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await stage.connect(context)
    await echoed(reader, writer)
    return reader, writer


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_FRAME)
    assert await with_timeout(reader.readexactly(len(_FRAME))) == _FRAME


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_open_connections_of_a_revoked_certificate_are_closed(
    issuer: Authority, run: Run, version: ssl.TLSVersion
) -> None:
    async def test() -> None:
        source = source_of(issuer)
        contexts = [client_context(issuer, issuer.issue_client(name, 1), version) for name in ("alice", "bob")]
        async with listening(tls=source, echo=True, tls_mode=TlsMode.ENFORCING) as stage:
            clients = [await served(stage, context) for context in (*contexts, client_context(issuer))]
            recorders = [(await stage.recorder())[1] for _ in clients]
            issuer.revoke("alice", 1)
            assert source.refresh() is Refresh.RELOADED
            await wait_until(lambda: "lost" in recorders[0].calls)
            for client in clients[1:]:
                await echoed(*client)
            issuer.revoke("bob", 1)
            assert source.refresh() is Refresh.RELOADED
            await wait_until(lambda: "lost" in recorders[1].calls)
            await echoed(*clients[2])

    run(test())


def test_a_connection_whose_handshake_came_before_the_revocation_is_closed(issuer: Authority, run: Run) -> None:
    async def test() -> None:
        source = source_of(issuer)
        context = client_context(issuer, issuer.issue_client("alice", 1))
        async with listening(tls=source, echo=True, tls_mode=TlsMode.ENFORCING) as stage:
            await served(stage, client_context(issuer, issuer.issue_client("bob", 1)))
            await stage.recorder()
            issuer.revoke("alice", 1)
            # The context is still the former one.
            source.revocations = Revocations(issuer.crl_file)
            await asyncio.sleep(1.5)
            reader, writer = await served(stage, context)
            _, recorder = await stage.recorder()
            await wait_until(lambda: "lost" in recorder.calls)
            assert await with_timeout(reader.read()) == b""
            writer.close()

    run(test())


def test_a_number_is_revoked_by_the_authority_of_its_certificate_only(tmp_path: Path) -> None:
    key, number, now = ec.generate_private_key(ec.SECP256R1()), 0x80FF, datetime.now(UTC)
    issuers = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("first", "second")]
    dates = now, now + timedelta(days=1)
    certificates = [
        x509.CertificateBuilder(issuer, issuer, key.public_key(), number, *dates).sign(key, hashes.SHA256())
        for issuer in issuers
    ]
    revoked = x509.RevokedCertificateBuilder(number, now).build()
    lists = [
        x509.CertificateRevocationListBuilder(issuers[1], *dates, []).sign(key, hashes.SHA256()),
        x509.CertificateRevocationListBuilder(issuers[0], *dates, [], [revoked]).sign(key, hashes.SHA256()),
    ]
    file = tmp_path / "crl.pem"
    file.write_bytes(b"".join(item.public_bytes(Encoding.PEM) for item in lists))
    revocations = Revocations(file)
    assert [revocations.may_contain(serial) for serial in (number, number + 1)] == [True, False]
    encoded = [certificate.public_bytes(Encoding.DER) for certificate in certificates]
    assert [revocations.contain(certificate) for certificate in encoded] == [True, False]
    # What cryptography cannot look up is left to the next handshake, and closes nothing.
    assert not revocations.may_contain(-number)
    assert not revocations.contain(b"\x30\x03\x02\x01\x01")


def test_a_file_without_a_list_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "crl.pem"
    with pytest.raises(TlsError, match="No such file"):
        Revocations(file)
    file.write_text("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
    with pytest.raises(TlsError, match="not a revocation list"):
        Revocations(file)
