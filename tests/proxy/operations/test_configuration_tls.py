from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol_negotiation.tls import ClientAuth, TlsMode
from proxy.operations.configuration import Configuration, InvalidConfiguration
from proxy.settings.listen import ListenSettings
from proxy.settings.loading import Sources
from proxy.tools.cert.authority import Authority
from tests.proxy.replica import running

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def configuration(tmp_path: Path) -> AsyncIterator[tuple[Configuration, Path, str]]:
    """The configuration of a replica with TLS, its file, and the file's content."""
    issued = Authority(tmp_path / "c").issue_server("server", ["rocketmq.test"], 30)
    content = f"""
        listen = "127.0.0.1:0"
        [admin]
        listen = "off"
        [embedded]
        directory = "{tmp_path}/broker"
        [tls]
        certificate = "{issued.certificate}"
        key = "{issued.key}"
        client_ca = "{tmp_path}/c/ca.pem"
    """
    file = tmp_path / "gantry.toml"
    file.write_text(content)
    sources = Sources(file)
    async with running(sources.load()) as app:
        yield Configuration(app, sources, {}), file, content


async def test_changes_that_only_hold_after_a_restart_are_refused(
    configuration: tuple[Configuration, Path, str],
) -> None:
    """The listeners keep mode permissive, with which a required certificate would be no condition."""
    changed, file, content = configuration
    file.write_text(f"{content}\nclient_auth = 'required'\nmode = 'enforcing'")
    with pytest.raises(InvalidConfiguration) as caught:
        await changed.reload(dry_run=False)
    [complaint] = caught.value.complaints
    assert "tls.client_auth is required, but tls.mode permissive accepts clients without TLS" in complaint


async def test_algorithms_and_client_certificates_change_without_a_restart(
    configuration: tuple[Configuration, Path, str],
) -> None:
    changed, file, content = configuration
    file.write_text(f"{content}\nclient_auth = 'optional'\nciphers = 'ECDHE+CHACHA20'\nminimum_version = '1.3'")
    changes = await changed.reload(dry_run=False)
    assert {change.key: change.effect for change in changes} == dict.fromkeys(
        ("tls.client_auth", "tls.ciphers", "tls.minimum_version"), "applied"
    )
    file.write_text(f"{content}\nciphers = 'NONSENSE'")
    with pytest.raises(InvalidConfiguration) as caught:
        await changed.reload(dry_run=False)
    assert "OpenSSL knows no cipher in 'NONSENSE'" in caught.value.complaints[0]


async def test_change_that_leaves_listeners_without_authentication_until_a_restart_is_refused(
    configuration: tuple[Configuration, Path, str],
) -> None:
    """Client certificates change at once, the users that replace them need a restart."""
    changed, file, content = configuration
    replica = changed._replica
    tls = {"mode": TlsMode.ENFORCING, "client_auth": ClientAuth.REQUIRED}
    replica.settings = replica.settings.model_copy(
        update={
            "listen": [ListenSettings(address=":8080")],
            "tls": replica.settings.tls.model_copy(update=tls),
        }
    )
    before = replica.settings
    open_content = content.replace("127.0.0.1:0", ":8080") + "\nmode = 'enforcing'\nsession_tickets = 'off'"
    users = "\n[auth]\nusers = 'users.toml'"
    for dry_run in (True, False):
        file.write_text(f"{open_content}\nclient_auth = 'none'{users}")
        with pytest.raises(InvalidConfiguration) as caught:
            await changed.reload(dry_run=dry_run)
        assert "until a restart it authenticates the clients: :8080: " in caught.value.complaints[0]
        assert replica.settings is before
    file.write_text(f"{open_content}\nclient_auth = 'required'{users}")
    effects = {change.key: change.effect for change in await changed.reload(dry_run=False)}
    assert effects == {"auth.users": "needs a restart", "tls.session_tickets": "applied"}
