import errno
import math
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.auth.policy import Directory, Role
from proxy.auth.sources.files import FileSource
from proxy.auth.sources.own_file import parse
from proxy.auth.sources.source import AuthError
from tests.proxy.fakes import Clock

pytestmark = pytest.mark.anyio

USERS = """
[users.alice]
secret = "alice-secret"
groups = "billing"

[[users.alice.policies]]
resources = ["Topic:orders", "Topic:payments"]
actions = ["Pub"]
sources = ["10.0.0.0/8"]

[users.root]
secret = "root-secret"
role = "super"
enabled = false

[[groups.billing.policies]]
resources = "Group:billing-*"
actions = "Sub"
effect = "deny"
"""


def source(file: Path, text: str = USERS) -> FileSource:
    file.write_text(text)
    file.chmod(0o600)
    return FileSource("users file", file, parse)


def test_users_groups_and_policies_are_read(tmp_path: Path) -> None:
    directory = source(tmp_path / "users.toml").directory
    alice, root = directory.users["alice"], directory.users["root"]
    assert [str(policy) for policy in alice.policies] == [
        "allow Pub on Topic:orders from 10.0.0.0/8",
        "allow Pub on Topic:payments from 10.0.0.0/8",
    ]
    assert alice.groups == {"billing"}
    assert (alice.enabled, root.role, root.enabled) == (True, Role.SUPER, False)
    assert [str(policy) for policy in directory.groups["billing"].policies] == ["deny Sub on Group:billing-*"]
    assert "alice-secret" not in repr(directory)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[users.alice]\nsecrets = 1", "users.alice.secrets: there is no such key"),
        ('[users.alice]\nsecret = "short"', "users.alice.secret: String should have at least 6 characters"),
        ('[users.alice]\ngroups = ["x"]', "there is no group 'x'"),
        ('[[users.alice.policies]]\nresources = ["orders"]\nactions = ["Pub"]', "a resource is Topic:NAME"),
        ('[[users.alice.policies]]\nresources = ["*"]\nactions = ["Fly"]', "unknown action 'Fly'"),
        ('[[users.alice.policies]]\nresources = ["*"]\nactions = ["Pub"]\nsources = ["x"]', "not an IP network"),
        ('[users."a b"]', "users.a b"),
        ("[users.alice]\nexpires = 2030-01-31T12:00:00", "users.alice.expires: Input should have timezone info"),
        ("[users", "users.toml: "),
    ],
)
def test_errors_name_the_key_and_never_the_secret(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AuthError) as raised:
        source(tmp_path / "users.toml", text)
    assert message in str(raised.value)
    assert "short" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "users.toml"
    source(file)
    file.chmod(mode)
    with pytest.raises(AuthError, match="chmod 600"):
        FileSource("users file", file, parse)


async def test_users_expire_even_if_the_file_is_damaged_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("proxy.auth.sources.own_file.time.time", clock)
    file = tmp_path / "users.toml"
    expiry = datetime.fromtimestamp(clock.now + 60, UTC).isoformat()
    users = source(file, USERS.replace("[users.alice]", f"[users.alice]\nexpires = {expiry}"))

    def enabled() -> bool:
        return users.directory.users["alice"].enabled

    clock.now += 59
    assert not await users.refresh()
    assert enabled()
    file.write_text("[users")
    assert not await users.refresh()
    clock.now += 1
    assert await users.refresh()
    assert not enabled()
    assert not await users.refresh()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_user_who_has_expired_is_disabled_at_the_start(tmp_path: Path, enabled: bool) -> None:
    text = f"[users.alice]\nexpires = {2030 if enabled else 2020}-01-31T12:00:00+01:00"
    directory = source(tmp_path / "users.toml", text).directory
    assert directory.users["alice"].enabled == enabled
    assert math.isfinite(directory.next_expiry) == enabled


async def test_changes_are_loaded_and_an_invalid_change_is_not(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    users = source(file)
    assert not await users.refresh()
    file.write_text(USERS.replace("[users.root]", "[users.admin]"))
    assert await users.refresh()
    assert set(users.directory.users) == {"alice", "admin"}
    file.write_text("[users")
    assert not await users.refresh()
    assert users.error is not None
    assert set(users.directory.users) == {"alice", "admin"}
    os.unlink(file)
    assert not await users.refresh()
    assert "No such file" in users.error
    assert set(users.directory.users) == {"alice", "admin"}


async def test_a_change_in_place_of_the_same_size_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    users = source(file)
    file.write_text(USERS.replace("alice-secret", "other-secret"))
    assert await users.refresh()


async def test_a_file_that_could_not_be_read_for_a_while_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "users.toml"
    users = source(file)

    def fail(_: Path, **__: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    file.write_text(USERS.replace("[users.root]", "[users.admin]"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail)
        assert not await users.refresh()
        assert not await users.refresh()
    assert caplog.text.count("Too many open files") == 1
    assert await users.refresh()
    assert (set(users.directory.users), users.error) == ({"alice", "admin"}, None)


async def test_an_unexpected_error_in_a_file_is_an_error_of_the_source_without_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(texts: list[tuple[str, str]]) -> Directory:
        if "broken" in texts[0][1]:
            raise KeyError("a-secret-of-the-file")
        return parse(texts)

    file = tmp_path / "users.toml"
    file.touch(0o600)
    users = FileSource("users file", file, fail)
    file.write_text("broken")
    assert not await users.refresh()
    assert users.error == f"{file}: not usable: KeyError"
    assert "a-secret-of-the-file" not in caplog.text
    file.write_text("")
    assert await users.refresh()
    assert not users.error
    file.write_text("broken")
    with pytest.raises(AuthError, match="not usable"):
        FileSource("users file", file, fail)


async def test_an_unreadable_folder_is_an_error_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").touch(0o600)
    users = FileSource("users file", tmp_path, parse, ("*.toml",))

    def fail(_: Path, __: str) -> list[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "rglob", fail)
    assert not await users.refresh()
    assert users.error == f"{tmp_path}: Permission denied"


@pytest.mark.parametrize("written", ["ip:2001:db8::1", "ip:2001:DB8:0:0:0:0:0:1"])
def test_addresses_of_certificates_are_compared_in_one_form(written: str) -> None:
    text = f'[users.alice]\ncertificates = ["{written}", "CN=alice"]'
    assert parse([("users.toml", text)]).users["alice"].certificates == ("ip:2001:db8::1", "CN=alice")


def test_blanks_around_resources_are_ignored() -> None:
    policy = '[[users.alice.policies]]\nresources = [" Topic:orders "]\nactions = ["Pub"]'
    text = f'[users.alice]\nsecret = "alice-secret"\n{policy}'
    (parsed,) = parse([("users.toml", text)]).users["alice"].policies
    assert str(parsed.pattern) == "Topic:orders"
