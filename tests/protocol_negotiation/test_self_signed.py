import os
import ssl
import tempfile
import time
from pathlib import Path

import pytest

from protocol_negotiation import self_signed
from protocol_negotiation.self_signed import SelfSigned, SelfSignedSource
from protocol_negotiation.tls import MinimumVersion, TlsFiles, TlsOptions, server_context
from protocol_negotiation.tls_files import TICKET_PERIOD, Refresh
from protocol_negotiation.tls_peer import negotiated_tls
from tests.protocol_negotiation.tls_handshake import handshake, reuses, session_with


def unverifying_client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def test_clients_that_verify_no_certificate_negotiate_tls() -> None:
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    server, _ = handshake(source.context, unverifying_client())
    assert negotiated_tls(server).version == "TLSv1.3"
    assert server.selected_alpn_protocol() == "h2"


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


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The permissions of the files that contexts are created from."""
    found: list[int] = []

    def create(files: TlsFiles) -> ssl.SSLContext:
        found.extend(path.stat().st_mode & 0o777 for path in files.paths)
        return server_context(files)

    monkeypatch.setattr(self_signed, "server_context", create)
    return found


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are a part of Linux")
def test_no_directory_for_temporary_files_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: list[int]
) -> None:
    """The root file system of a container may be read-only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    opened = os.listdir("/proc/self/fd")
    source = SelfSignedSource(SelfSigned(TlsOptions(ticket_secret=bytes(32))))
    assert os.listdir("/proc/self/fd") == opened
    handshake(source.context, unverifying_client())
    assert modes == [0o600, 0o600]


def test_system_without_files_in_memory_has_private_ones_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: list[int]
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    handshake(source.context, unverifying_client())
    assert modes == [0o600, 0o600]
    assert list(tmp_path.iterdir()) == []


def test_ticket_keys_are_replaced_and_the_certificate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000 * TICKET_PERIOD
    monkeypatch.setattr(time, "time", lambda: now)
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    client = unverifying_client()
    session = session_with(source.context, client)
    certificate = handshake(source.context, client)[1].getpeercert(binary_form=True)
    now += TICKET_PERIOD - 1
    assert source.refresh() is Refresh.UNCHANGED
    assert reuses(source.context, client, session)
    now += 1
    assert source.refresh() is Refresh.ROTATED
    assert not reuses(source.context, client, session)
    assert handshake(source.context, client)[1].getpeercert(binary_form=True) == certificate
    assert source.refresh() is Refresh.UNCHANGED


def test_refresh_keeps_the_certificate() -> None:
    source = SelfSignedSource(SelfSigned(TlsOptions()))
    context = source.context
    assert source.refresh() is Refresh.UNCHANGED
    assert source.context is context
