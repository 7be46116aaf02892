"""Checks before requests: Host, Origin, roles, tokens, certificates, sizes and slow callers."""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from protocol_negotiation.tls import TlsError
from proxy.admin.access import Access, BadCredentials, Role
from proxy.app import App
from proxy.operations.token_file import TokenFileError
from proxy.settings.admin import AdminSettings
from proxy.settings.loading import ConfigError, load
from proxy.settings.model import Settings
from tests.proxy.admin.http.certificates import certified
from tests.proxy.admin.http.replicas import READ, WRITE, Replica, replica

pytestmark = pytest.mark.anyio


# Roles, without a server.


def access(**settings: Any) -> Access:
    return Access(AdminSettings(**settings))


@pytest.mark.parametrize(
    ("settings", "address", "headers", "subject", "name", "role"),
    [
        ({}, "127.0.0.1", {}, None, "local", Role.READ),
        ({}, "::1", {}, None, "local", Role.READ),
        ({}, "::ffff:127.0.0.1", {}, None, "local", Role.READ),
        ({}, "::ffff:192.0.2.7", {}, None, "remote", Role.NONE),
        ({}, "192.0.2.7", {}, None, "remote", Role.NONE),
        ({}, "127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, None, "remote", Role.NONE),
        ({}, "", {}, None, "remote", Role.NONE),
        ({"local": "none"}, "127.0.0.1", {}, None, "local", Role.NONE),
        ({"local": "write"}, "127.0.0.1", {}, None, "local", Role.WRITE),
        ({"remote": "read"}, "192.0.2.7", {}, None, "remote", Role.READ),
        ({"read_token": READ}, "192.0.2.7", {"authorization": f"Bearer {READ}"}, None, "read_token", Role.READ),
        ({"write_token": WRITE}, "192.0.2.7", {"authorization": f"bearer {WRITE}"}, None, "write_token", Role.WRITE),
    ],
)
def test_token_or_address_determines_the_role(
    settings: Any, address: str, headers: Any, subject: str | None, name: str, role: Role
) -> None:
    caller = access(**settings).caller(address, headers, subject)
    assert (caller.name, caller.role, caller.address) == (name, role, address)


@pytest.mark.parametrize("text", ["Bearer wrong-token-of-nobody", f"Basic {READ}", "Bearer", ""])
def test_unknown_token_is_rejected(text: str) -> None:
    with pytest.raises(BadCredentials):
        access(read_token=READ).caller("127.0.0.1", {"authorization": text}, None)


def test_certificate_determines_the_role(tmp_path: Path) -> None:
    files = {"certificate": tmp_path / "c", "key": tmp_path / "k", "client_ca": tmp_path / "ca"}
    some = access(**files, readers=["CN=alice,O=x"], writers="CN=bob,O=x;CN=carol")
    assert some.certified("CN=alice,O=x") is Role.READ
    assert some.certified("CN=carol") is Role.WRITE
    assert some.certified("CN=alice") is Role.NONE
    assert access(**files, readers=["*"]).certified("CN=anybody") is Role.READ
    # A certificate never reduces the role of an address.
    assert access(**files, local="write", readers=["*"]).caller("127.0.0.1", {}, "CN=a").role is Role.WRITE


def test_changed_token_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text("# who\nread alice alices-own-secret-1\n\nwrite bob bobs-own-secret-12\n")
    now = [0.0]
    some = Access(AdminSettings(tokens=file), lambda: now[0])

    def role(token: str) -> tuple[str, Role]:
        caller = some.caller("192.0.2.7", {"authorization": f"Bearer {token}"}, None)
        return caller.name, caller.role

    assert role("alices-own-secret-1") == ("alice", Role.READ)
    assert role("bobs-own-secret-12") == ("bob", Role.WRITE)
    file.write_text("write alice alices-new-secret-1\n")
    now[0] = 5.0
    assert role("alices-new-secret-1") == ("alice", Role.WRITE)
    with pytest.raises(BadCredentials):
        role("bobs-own-secret-12")
    file.write_text("root alice alices-newer-secret\n")
    now[0] = 10.0
    assert role("alices-new-secret-1") == ("alice", Role.WRITE)
    assert "line 1" in caplog.text
    assert "alices-newer-secret" not in caplog.text


def test_changed_token_file_is_read_once_its_mode_is_repaired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text("write alice alices-own-secret-1\n")
    now = [0.0]
    some = Access(AdminSettings(tokens=file), lambda: now[0])

    def role(token: str) -> Role:
        now[0] += 5.0
        return some.caller("192.0.2.7", {"authorization": f"Bearer {token}"}, None).role

    file.write_text("write bob bobs-own-secret-12\n")
    file.chmod(0o644)
    assert role("alices-own-secret-1") is Role.WRITE
    assert role("alices-own-secret-1") is Role.WRITE
    assert caplog.text.count(f"chmod 600 {file}") == 1
    file.chmod(0o600)
    assert role("bobs-own-secret-12") is Role.WRITE
    with pytest.raises(BadCredentials):
        role("alices-own-secret-1")


def test_token_file_that_could_not_be_read_for_a_while_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text("write alice alices-own-secret-1\n")
    now = [0.0]
    some = Access(AdminSettings(tokens=file), lambda: now[0])

    def role(token: str) -> Role:
        now[0] += 5.0
        return some.caller("192.0.2.7", {"authorization": f"Bearer {token}"}, None).role

    def full(_: Path, **__: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    file.write_text("write bob bobs-own-secret-12\n")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", full)
        assert role("alices-own-secret-1") is role("alices-own-secret-1") is Role.WRITE
    assert caplog.text.count("Too many open files") == 1
    assert role("bobs-own-secret-12") is Role.WRITE


@pytest.mark.parametrize(("mode", "accepted"), [(0o440, True), (0o644, False), (0o660, False)])
def test_token_file_must_not_be_readable_by_others(tmp_path: Path, mode: int, accepted: bool) -> None:
    file = tmp_path / "tokens"
    file.write_text("write bob bobs-own-secret-12\n")
    file.chmod(mode)
    if accepted:
        assert (
            access(tokens=file).caller("192.0.2.7", {"authorization": "Bearer bobs-own-secret-12"}, None).name == "bob"
        )
    else:
        with pytest.raises(TokenFileError, match=f"the mode {mode:o} lets others read"):
            access(tokens=file)


@pytest.mark.parametrize("text", ["read alice short", "read alice", "own alice alices-own-secret-1"])
def test_invalid_token_file_is_an_error_at_startup(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(TokenFileError, match="line 1: needs"):
        access(tokens=tmp_path / "tokens")
    with pytest.raises(TokenFileError, match="No such file"):
        access(tokens=tmp_path / "nothing")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listen": "unix:/tmp/x"}, "admin.listen: needs host:port, or off: 'unix:/tmp/x'"),
        ({"read_token": "short"}, "admin.read_token: a token has at least 16"),
        ({"certificate": "c"}, "admin: certificate and key belong together"),
        ({"client_ca": "c"}, "admin: client_ca needs certificate and key"),
        ({"readers": "CN=a"}, "admin: readers and writers need client_ca"),
        ({"certificate": "c", "key": "k", "crl": "l"}, "admin: crl needs client_ca"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"admin": settings})
    assert str(caught.value).startswith(complaint)


# Over HTTP.


@pytest.fixture(scope="module")
async def guarded(anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replica]:
    settings = {"hosts": ["mq-admin.example"], "max_body": 2048}
    async with replica(tmp_path_factory.mktemp("embedded"), admin=settings) as shared:
        yield shared


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8090", 200),
        ("[::1]:8090", 200),
        ("192.0.2.7", 200),
        ("MQ-admin.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8090", 421),
        ("user@localhost", 400),
        ("localhost:port", 400),
        ("", 400),
    ],
)
async def test_unknown_host_name_is_refused(guarded: Replica, host: str, status: int) -> None:
    answer = await guarded.read.get("/v1/version", headers={"Host": host})
    assert answer.status_code == status
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8090", "Host": "localhost:8090"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_write_from_another_origin_is_refused(guarded: Replica, headers: dict[str, str], status: int) -> None:
    assert (await guarded.write.post("/v1/health/pass", headers=headers)).status_code == status
    # Reads are safe: browsers do not show such a page the response.
    assert (await guarded.write.get("/v1/version", headers=headers)).status_code == 200


async def test_write_with_a_read_token_is_refused(guarded: Replica) -> None:
    headers = {"Authorization": f"Bearer {READ}"}
    assert (await guarded.read.get("/v1/version", headers=headers)).status_code == 200
    answer = await guarded.read.post("/v1/drain", headers=headers)
    assert answer.status_code == 403
    assert answer.json()["detail"] == "read_token does not have the role write"


async def test_health_needs_no_role(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"local": "none"}) as closed:
        for path in ("/healthz", "/readyz", "/livez"):
            assert (await closed.read.get(path)).status_code == 200
        for path in ("/metrics", "/stats", "/openapi.json", "/v1/version", "/v1/nothing"):
            assert (await closed.read.get(path)).status_code == 401, path


async def test_body_beyond_the_limit_is_refused(guarded: Replica) -> None:
    for content in (b"x" * 2049, _chunks()):
        answer = await guarded.write.post("/v1/drain", content=content)
        assert answer.status_code == 413
        assert answer.json()["detail"] == "the limit on request bodies is 2048 bytes"


async def _chunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * 1000


async def slowly(guarded: Replica, data: bytes) -> bytes:
    address = guarded.app.admin.addresses[0]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_slow_callers_are_disconnected(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"timeout": 0.5}) as hasty:
        assert await slowly(hasty, b"GET /v1/version HTTP/1.1\r\nHost: local") == b""
        assert await slowly(hasty, b"") == b""
        head = b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
        reply = await slowly(hasty, head + f"Authorization: Bearer {WRITE}\r\n\r\n12345".encode())
    assert reply.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"application/problem+json" in reply


async def test_callers_that_do_not_read_are_disconnected(
    guarded: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such callers would exhaust the limit on connections."""
    monkeypatch.setattr("proxy.admin.http.server._READ_TIMEOUT", 0.5)
    address = guarded.app.admin.addresses[0]
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.settimeout(30)
        await asyncio.to_thread(caller.connect, (address.host, address.port))
        ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with contextlib.suppress(ConnectionError):
            # The connection is aborted before or after the whole response is written.
            await asyncio.to_thread(caller.sendall, ask * 200)
        async with asyncio.timeout(30):
            while _is_open(guarded, caller):
                await asyncio.sleep(0.05)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _is_open(guarded: Replica, caller: socket.socket) -> bool:
    server = guarded.app.admin._server
    assert server is not None
    return any(getattr(item, "client", None) == caller.getsockname() for item in server.server_state.connections)


async def test_health_needs_no_known_host_name(guarded: Replica) -> None:
    assert (await slowly(guarded, b"GET /readyz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
    assert (await slowly(guarded, b"GET /v1/version HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    answer = await guarded.read.get("/healthz", headers={"Host": "gantry.namespace.svc"})
    assert answer.status_code == 200


async def test_dual_stack_listener_recognises_local_callers(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"listen": "[::]:0"}) as both:
        port = both.app.admin.addresses[0].port
        for host in ("127.0.0.1", "[::1]"):
            answer = await both.read.get(f"http://{host}:{port}/v1/version")
            assert answer.status_code == 200, host


async def test_malformed_http_is_a_problem(guarded: Replica) -> None:
    reply = await slowly(guarded, b"HELLO\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in reply


async def test_connections_beyond_the_limit_are_aborted(tmp_path: Path) -> None:
    async with replica(tmp_path, admin={"max_connections": 8}) as full:
        address = full.app.admin.addresses[0]
        opened = [await asyncio.open_connection(address.host, address.port) for _ in range(10)]
        assert await slowly(full, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        for _, writer in opened:
            writer.close()


async def test_refusals_are_counted(guarded: Replica) -> None:
    await guarded.read.get("/v1/version", headers={"Host": "evil.example"})
    assert guarded.app.admin.gatekeeping.refusals["host"] >= 1
    assert 'gantry_admin_refusals_total{reason="host"}' in (await guarded.read.get("/metrics")).text


# TLS.


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


async def test_client_certificate_gives_a_role_over_tls(authority: trustme.CA, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    issued = authority.issue_cert(common_name="alice", organization_name="ops")
    settings = {
        **certified(authority, tmp_path),
        "client_ca": str(tmp_path / "ca.pem"),
        "writers": [f"CN=alice,OU={_unit(issued)},O=ops"],
        "local": "none",
    }
    nobody, alice = ssl.create_default_context(), ssl.create_default_context()
    for context in (nobody, alice):
        authority.configure_trust(context)
        context.set_alpn_protocols(["h2", "http/1.1"])
    issued.configure_cert(alice)
    async with replica(tmp_path / "data", admin=settings) as own:
        url = own.app.admin.url
        assert url is not None
        assert url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(base_url=url, verify=nobody, timeout=30) as client:
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get("/v1/version")).status_code == 401
        async with httpx.AsyncClient(base_url=url, verify=alice, timeout=30) as client:
            assert (await client.post("/v1/health/pass")).status_code == 200
        (write,) = own.app.admin_services.audit.newest()
        assert write.caller == settings["writers"][0]


def _unit(issued: trustme.LeafCert) -> str:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    (unit,) = certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)
    return str(unit.value)


async def test_changed_certificate_is_used_without_a_restart(authority: trustme.CA, tmp_path: Path) -> None:
    files = certified(authority, tmp_path)
    successor = trustme.CA()
    new = ssl.create_default_context()
    successor.configure_trust(new)
    async with replica(tmp_path / "data", admin=files, tls={"reload_interval": 0.05}) as own:
        certified(successor, tmp_path)
        started = time.monotonic()
        while True:
            try:
                async with httpx.AsyncClient(base_url=own.app.admin.url or "", verify=new, timeout=30) as client:
                    assert (await client.get("/livez")).status_code == 200
                break
            except httpx.ConnectError:
                assert time.monotonic() - started < 30
                await asyncio.sleep(0.05)


async def test_invalid_certificate_is_an_error_at_startup(tmp_path: Path) -> None:
    """The error is reported before clients are served."""
    (tmp_path / "file").write_text("no certificate")
    (tmp_path / "file").chmod(0o600)
    files = {"certificate": tmp_path / "file", "key": tmp_path / "file"}
    with pytest.raises(TlsError, match="file with"):
        App(Settings(listen=["127.0.0.1:0"], embedded={"directory": tmp_path / "b"}, admin=files))


# Addresses.


async def test_configured_address_in_use_is_an_error_at_startup(tmp_path: Path) -> None:
    async with replica(tmp_path / "a") as first:
        taken = str(first.app.admin.addresses[0])
        second = App(Settings(listen=["127.0.0.1:0"], embedded={"directory": tmp_path / "b"}, admin={"listen": taken}))
        with pytest.raises(OSError, match=f"the admin API cannot listen on {taken}"):
            await second.serve(lambda: None, asyncio.Event().wait)


async def test_default_address_in_use_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(tmp_path / "a") as first:
        taken = str(first.app.admin.addresses[0])
        monkeypatch.setattr("proxy.settings.admin.DEFAULT_LISTEN", taken)
        settings = Settings(listen=["127.0.0.1:0"], embedded={"directory": tmp_path / "b"}, admin={"listen": taken})
        second = App(settings)
        ready = asyncio.Event()
        await second.serve(ready.set, ready.wait)
        assert f"no admin API: {taken} is not free" in caplog.text
