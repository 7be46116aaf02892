"""Changed users and policies apply at once, and a source that fails delays no other."""

from pathlib import Path

import anyio
import pytest

from proxy.auth.authority import Authority, Forbidden, NotAuthenticated
from proxy.auth.reload import reload
from proxy.core.principal import Failure, Method
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.requests import ask, command
from tests.proxy.auth.users import ALICE, OWN_FILE, authority, own_source, plain_source, signed, undelayed
from tests.proxy.fakes import peer

pytestmark = pytest.mark.anyio


async def test_a_users_end_ends_its_tokens(tmp_path: Path) -> None:
    made = authority(tmp_path)
    alice, other = (made.principal(name, Method.TOKEN, proof="key") for name in ("alice-1", "not-in-the-file"))
    made.has_token_key = lambda thumbprint: thumbprint == "key"
    assert made.is_valid(alice, "192.0.2.7")
    assert made.is_valid(other, "192.0.2.7")
    file = tmp_path / "users.toml"
    file.write_text(file.read_text().replace("[users.alice-1]", "[users.alice-1]\nenabled = false"))
    await made.refresh()
    assert not made.is_valid(alice, "192.0.2.7")
    assert made.is_valid(other, "192.0.2.7")


async def test_an_error_in_one_source_does_not_withhold_a_revocation_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    users, plain = own_source(tmp_path), plain_source(tmp_path, "accounts: []")
    made = undelayed(Authority([users, plain]))
    send = signed(command(RequestCode.SEND_MESSAGE_V2), ALICE)
    ask(made, send)

    async def fail() -> bool:
        raise KeyError("secret")

    file = tmp_path / "users.toml"
    file.write_text(file.read_text().replace("[users.alice-1]", "[users.alice-1]\nenabled = false"))
    with monkeypatch.context() as patch:
        patch.setattr(plain, "refresh", fail)
        await made.refresh()
        await made.refresh()
    with pytest.raises(NotAuthenticated):
        ask(made, send)
    assert plain.error == "cannot be checked for changes: KeyError"
    assert caplog.text.count("plain_acl: cannot be checked") == 1
    await made.refresh()
    assert plain.error is None


async def test_a_mistake_in_one_file_does_not_withhold_a_revocation_in_another(tmp_path: Path) -> None:
    made = undelayed(Authority([own_source(tmp_path), plain_source(tmp_path, "accounts: []")]))
    send = signed(command(RequestCode.SEND_MESSAGE_V2), ALICE)
    ask(made, send)
    file = tmp_path / "users.toml"
    file.write_text(file.read_text().replace("[users.alice-1]", "[users.alice-1]\nenabled = false"))
    (tmp_path / "plain_acl.yml").write_text("accounts: !!bool fasle")
    await made.refresh()
    with pytest.raises(NotAuthenticated):
        ask(made, send)
    assert "does not fit its tag" in str(made.sources[1].error)


async def test_a_slow_server_of_keys_does_not_delay_changes_of_users(tmp_path: Path) -> None:
    made = authority(tmp_path)
    changed = anyio.Event()
    made.change_listeners.append(changed.set)

    async def slow() -> bool:
        await anyio.sleep_forever()
        return False

    made.refreshers.append(slow)
    async with anyio.create_task_group() as group:
        group.start_soon(reload, made, 0.01)
        await anyio.sleep(0.05)
        file = tmp_path / "users.toml"
        file.write_text(file.read_text() + '[users.new-user]\nsecret = "secret-of-new"\n')
        with anyio.fail_after(20):
            await changed.wait()
        group.cancel_scope.cancel()
    assert made.user("new-user") is not None


async def test_a_new_secret_is_used_while_other_sources_are_still_read(tmp_path: Path) -> None:
    source = own_source(tmp_path)
    made = undelayed(Authority([source]))
    ask(made, signed(command(RequestCode.PULL_MESSAGE), ALICE))
    (tmp_path / "users.toml").write_text(OWN_FILE.replace("secret-of-alice", "another-secret-of-alice"))
    assert await source.refresh()
    ask(made, signed(command(RequestCode.PULL_MESSAGE), Credentials("alice-1", "another-secret-of-alice")))


async def test_changes_of_users_apply_at_once(tmp_path: Path) -> None:
    made = authority(tmp_path)
    sent = signed(command(RequestCode.PULL_MESSAGE), ALICE)
    ask(made, sent)
    text = (tmp_path / "users.toml").read_text()
    (tmp_path / "users.toml").write_text(text.replace('actions = ["Pub", "Sub"]', 'actions = ["Pub"]'))
    await made.refresh()
    with pytest.raises(Forbidden):
        ask(made, sent)
    (tmp_path / "users.toml").write_text(text.replace("[users.alice-1]", "[users.alice-1]\nenabled = false"))
    await made.refresh()
    with pytest.raises(NotAuthenticated):
        ask(made, sent)
    assert made.of_command(sent, peer()).failure is Failure.DISABLED_USER
