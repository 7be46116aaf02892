"""TLS: availability, certificates, client certificates."""

import asyncio
import ssl
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.tools.doctor.findings import Level
from tests.proxy.tools.doctor.servers import codes, only, replica, run_doctor, server

pytestmark = pytest.mark.anyio


def certify(
    folder: Path, *names: str, until: datetime | None = None, authority: trustme.CA | None = None
) -> dict[str, Path]:
    """Return a certificate for these names, and the file of its CA."""
    authority = authority or trustme.CA()
    issued = authority.issue_cert(*names, not_after=until)
    files = {"certificate": folder / "server.pem", "key": folder / "server.key", "authority": folder / "ca.pem"}
    files["certificate"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files["key"].write_bytes(issued.private_key_pem.bytes())
    files["key"].chmod(0o600)
    files["authority"].write_bytes(authority.cert_pem.bytes())
    return files


def settings(files: dict[str, Path], **more: Any) -> dict[str, Any]:
    return {"tls": {"certificate": files["certificate"], "key": files["key"], **more}}


async def test_tls_and_plain_with_a_valid_certificate_are_ok(tmp_path: Path) -> None:
    files = certify(tmp_path, "127.0.0.1")
    async with replica(tmp_path / "store", **settings(files)) as app:
        found = await run_doctor(app, authority=files["authority"], topic="orders")
        assert {"tls.both", "tls.trusted", "remoting.answers", "grpc.answers"} <= codes(found)
        assert only(found, "tls.trusted").text.startswith("the certificate is trusted, names 127.0.0.1")
        found = await run_doctor(app, authority=files["authority"], topic="orders", wanted="tls")
    assert "over TLS" in only(found, "remoting.answers").text
    assert "over TLS" in only(found, "grpc.answers").text
    assert max(item.level for item in found if item.check in ("tls", "route", "grpc", "remoting")) == 0


async def test_tls_only_is_a_note(tmp_path: Path) -> None:
    files = certify(tmp_path, "127.0.0.1")
    async with replica(tmp_path / "store", **settings(files, mode="enforcing")) as app:
        found = await run_doctor(app, wanted="plain")
    assert {"tls.only", "tls.plain_required", "tls.untrusted", "remoting.answers", "grpc.answers"} <= codes(found)


async def test_missing_tls_is_a_note_unless_required(tmp_path: Path) -> None:
    async with replica(tmp_path, tls={"self_signed": False}) as app:
        assert "tls.none" in codes(await run_doctor(app))
        assert "tls.required" in codes(await run_doctor(app, wanted="tls"))


async def test_a_self_signed_certificate_is_a_note_unless_tls_is_required(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app)
        assert {"tls.both", "tls.self_signed"} <= codes(found)
        assert only(found, "tls.self_signed").level is Level.NOTE
        assert "tls.untrusted" in codes(await run_doctor(app, wanted="tls"))


async def test_certificate_for_another_name_is_a_warning(tmp_path: Path) -> None:
    files = certify(tmp_path, "mq.example.com")
    async with replica(tmp_path / "store", **settings(files)) as app:
        found = await run_doctor(app, authority=files["authority"], wanted="tls")
    assert "mq.example.com" in only(found, "tls.name").text
    # Clients that do not verify still work, and so does the doctor.
    assert "grpc.answers" in codes(found)


async def test_certificate_that_expires_soon_is_a_warning(tmp_path: Path) -> None:
    files = certify(tmp_path, "127.0.0.1", until=datetime.now(UTC) + timedelta(days=5, hours=1))
    async with replica(tmp_path / "store", **settings(files)) as app:
        found = await run_doctor(app, authority=files["authority"])
    assert "5 days" in only(found, "tls.expires").text


async def test_expired_certificate_fails(tmp_path: Path) -> None:
    files = certify(tmp_path, "127.0.0.1", until=datetime.now(UTC) - timedelta(days=1))
    async with replica(tmp_path / "store", **settings(files)) as app:
        found = await run_doctor(app, authority=files["authority"])
    assert "expired" in only(found, "tls.expired").text


async def test_missing_client_certificate_fails(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = certify(tmp_path, "127.0.0.1", authority=authority)
    wanted = {"client_ca": files["authority"], "client_auth": "required", "mode": "enforcing"}
    own = authority.issue_cert("client@example.com")
    (tmp_path / "client.pem").write_bytes(own.private_key_and_cert_chain_pem.bytes())
    async with replica(tmp_path / "store", **settings(files, **wanted)) as app:
        found = await run_doctor(app)
        assert "tls.client_certificate" in codes(found)
        assert "remoting.answers" not in codes(found)
        found = await run_doctor(app, certificate=tmp_path / "client.pem", authority=files["authority"])
        assert {"tls.only", "tls.trusted", "remoting.answers", "grpc.answers"} <= codes(found)
        foreign = trustme.CA().issue_cert("client@example.com")
        (tmp_path / "client.pem").write_bytes(foreign.private_key_and_cert_chain_pem.bytes())
        found = await run_doctor(app, certificate=tmp_path / "client.pem", authority=files["authority"])
    assert "tls.client_certificate_refused" in codes(found)


async def test_outdated_tls_version_is_a_warning(tmp_path: Path) -> None:
    files = certify(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(files["certificate"], files["key"])

    async def mute(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with server(mute, context) as address:
        found = await run_doctor(address, timeout=5.0)
    assert "TLSv1 is accepted" in only(found, "tls.outdated").text
