import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from protocol_negotiation.tls import (
    ClientAuth,
    Refresh,
    TlsError,
    TlsFiles,
    TlsSource,
    server_context,
)
from protocol_negotiation.tls_peer import distinguished_name, negotiated_tls
from tests.protocol_negotiation.authority import (
    Authority,
)
from tests.protocol_negotiation.tls_handshake import handshake


def serial(context: ssl.SSLContext, authority: Authority) -> object:
    _, client = handshake(context, authority.client_context())
    certificate = client.getpeercert()
    assert certificate is not None
    return certificate["serialNumber"]


@pytest.mark.parametrize(
    ("offered", "agreed"), [((), None), (("h2",), "h2"), (("http/1.1",), None), (("x", "h2"), "h2")]
)
def test_negotiated_tls_has_alpn_version_and_server_name(
    shared_authority: Authority, offered: tuple[str, ...], agreed: str | None
) -> None:
    context = server_context(shared_authority.files("alpn"))
    server, _ = handshake(context, shared_authority.client_context(*offered))
    tls = negotiated_tls(server)
    assert server.selected_alpn_protocol() == agreed
    assert tls.version == "TLSv1.3"
    assert tls.cipher.startswith("TLS_")
    assert tls.server_name == "rocketmq.test"
    assert tls.subject is None


def test_tls_1_2_is_accepted(shared_authority: Authority) -> None:
    context = server_context(shared_authority.files("versions"))
    client = shared_authority.client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    server, _ = handshake(context, client)
    assert negotiated_tls(server).version == "TLSv1.2"
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_negotiated_tls_has_the_subject_of_the_client_certificate(shared_authority: Authority) -> None:
    certificate = shared_authority.ca.issue_cert("client@rocketmq.test", common_name="a,b", organization_name="Orders")
    for auth in (ClientAuth.OPTIONAL, ClientAuth.REQUIRED):
        context = server_context(shared_authority.files("mutual", auth))
        server, _ = handshake(context, shared_authority.client_context(certificate=certificate))
        subject = negotiated_tls(server).subject
        assert subject is not None
        assert "CN=a\\,b" in subject
        assert "O=Orders" in subject
    context = server_context(shared_authority.files("mutual", ClientAuth.OPTIONAL))
    assert negotiated_tls(handshake(context, shared_authority.client_context())[0]).subject is None
    context = server_context(shared_authority.files("mutual", ClientAuth.REQUIRED))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(context, shared_authority.client_context())


def test_negotiated_tls_has_the_identity_in_the_client_certificate(shared_authority: Authority) -> None:
    names = ("orders.test", "a@orders.test", "192.0.2.1", "2001:db8::1")
    issued = shared_authority.ca.issue_cert(*names, common_name="orders")
    context = server_context(shared_authority.files("mutual", ClientAuth.REQUIRED))
    server, _ = handshake(context, shared_authority.client_context(certificate=issued))
    expected = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    certificate = negotiated_tls(server).certificate
    assert certificate is not None
    assert certificate.subject.startswith("CN=orders,")
    assert "trustme" in certificate.issuer
    assert set(certificate.alternative_names) == {
        ("dns", "orders.test"),
        ("email", "a@orders.test"),
        ("ip", "192.0.2.1"),
        # As users write it, while ssl returns 2001:DB8:0:0:0:0:0:1.
        ("ip", "2001:db8::1"),
    }
    assert certificate.fingerprint == expected.fingerprint(SHA256()).hex()
    assert int(certificate.serial_number, 16) == expected.serial_number
    assert certificate.not_after == expected.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    ("subject", "written"),
    [
        (((("countryName", "CN"),), (("commonName", "x"),)), "CN=x,C=CN"),
        (((("commonName", "x"), ("userId", "7")),), "CN=x+UID=7"),
        (((("commonName", " #x "),),), "CN=\\ #x\\ "),
        (((("commonName", '#a"b\\c+d'),),), 'CN=\\#a\\"b\\\\c\\+d'),
        (((("serialNumber", "1"),),), "serialNumber=1"),
        ((), None),
    ],
)
def test_distinguished_name_follows_rfc_4514(subject: object, written: str | None) -> None:
    assert distinguished_name({"subject": subject}) == written


def test_distinguished_name_without_a_certificate_is_none() -> None:
    assert distinguished_name(None) is None
    assert distinguished_name({}) is None


def encrypt(key: Path, password: bytes) -> None:
    private = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)),
    )


def test_an_encrypted_key_needs_its_password(authority: Authority) -> None:
    files = authority.files()
    encrypt(files.key, b"secret")
    server_context(replace(files, key_password="secret"))
    for wrong in (None, "wrong"):
        with pytest.raises(TlsError, match=r"server\.key"):
            server_context(replace(files, key_password=wrong))


def test_tls_errors_contain_the_file_name(authority: Authority, tmp_path: Path) -> None:
    files = authority.files()
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    broken: list[tuple[TlsFiles, str]] = [
        (replace(files, certificate=missing), r"missing\.pem: No such file"),
        (replace(files, key=missing), r"missing\.pem: No such file"),
        (replace(files, client_ca=missing, client_auth=ClientAuth.REQUIRED), r"missing\.pem: No such file"),
        (replace(files, certificate=garbage), r"garbage\.pem"),
        (replace(files, key=garbage), r"garbage\.pem"),
        (replace(files, client_ca=garbage, client_auth=ClientAuth.REQUIRED), r"garbage\.pem"),
        (replace(files, key=authority.files("other").key), r"other\.key: key values mismatch"),
        (replace(files, client_auth=ClientAuth.OPTIONAL), "client_ca"),
    ]
    for invalid, message in broken:
        with pytest.raises(TlsError, match=message):
            server_context(invalid)
        with pytest.raises(TlsError, match=message):
            TlsSource(invalid)


def test_refresh_reloads_changed_files(authority: Authority) -> None:
    source = TlsSource(authority.files())
    first = source.context
    assert source.refresh() is Refresh.UNCHANGED
    assert source.context is first
    before = serial(first, authority)

    authority.files()
    assert source.refresh() is Refresh.RELOADED
    assert source.context is not first
    assert serial(source.context, authority) != before
    assert source.refresh() is Refresh.UNCHANGED


def test_a_failed_refresh_keeps_the_last_valid_context(authority: Authority) -> None:
    files = authority.files()
    source = TlsSource(files)
    good = source.context
    certificate = files.certificate.read_bytes()

    files.certificate.write_text("half a certi")
    assert source.refresh() is Refresh.FAILED
    assert source.context is good
    assert files.certificate.name in str(source.error)
    assert source.refresh() is Refresh.FAILED

    files.certificate.unlink()
    assert source.refresh() is Refresh.FAILED
    assert source.context is good

    files.certificate.write_bytes(certificate)
    assert source.refresh() is Refresh.RELOADED
    assert source.error is None
    serial(source.context, authority)


def test_refresh_detects_a_replaced_link(authority: Authority, tmp_path: Path) -> None:
    """Kubernetes updates a mounted secret in this way."""
    folders = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        files = authority.files(name)
        files.certificate.rename(folder / "tls.crt")
        files.key.rename(folder / "tls.key")
        folders.append(folder)
    data, renewed = tmp_path / "..data", tmp_path / "..renewed"
    data.symlink_to(folders[0])
    source = TlsSource(TlsFiles(data / "tls.crt", data / "tls.key"))
    renewed.symlink_to(folders[1])
    os.replace(renewed, data)
    assert source.refresh() is Refresh.RELOADED
    assert source.refresh() is Refresh.UNCHANGED
