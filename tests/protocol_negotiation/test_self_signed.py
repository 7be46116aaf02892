import ssl
import tempfile
from pathlib import Path

import pytest

from protocol_negotiation.self_signed import SelfSigned, SelfSignedSource
from protocol_negotiation.tls import MinimumVersion, TlsOptions
from protocol_negotiation.tls_files import Refresh
from protocol_negotiation.tls_peer import negotiated_tls
from tests.protocol_negotiation.test_tls import handshake


def unverifying_client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def test_clients_that_verify_no_certificate_negotiate_tls() -> None:
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    server, _ = handshake(source.context, unverifying_client())
    assert negotiated_tls(server).version == "TLSv1.3"
    assert negotiated_tls(server).alpn == "h2"


def test_clients_that_verify_certificates_refuse_it() -> None:
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    with pytest.raises(ssl.SSLError, match="self-signed certificate"):
        handshake(source.context, ssl.create_default_context())


def test_options_of_the_listener_hold() -> None:
    source = SelfSignedSource(SelfSigned(TlsOptions(minimum_version=MinimumVersion.TLS_1_3)))
    client = unverifying_client()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol"):
        handshake(source.context, client)


def test_each_certificate_has_another_key_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sources = [SelfSignedSource(SelfSigned(TlsOptions())) for _ in range(2)]
    first, second = (
        handshake(source.context, unverifying_client())[1].getpeercert(binary_form=True) for source in sources
    )
    assert first != second
    assert list(tmp_path.iterdir()) == []


def test_refresh_keeps_the_certificate() -> None:
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    context = source.context
    assert source.refresh() is Refresh.UNCHANGED
    assert source.context is context
