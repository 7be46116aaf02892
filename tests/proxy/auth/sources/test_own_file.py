import math
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.auth.policy import Role
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


def test_blanks_around_resources_are_ignored() -> None:
    policy = '[[users.alice.policies]]\nresources = [" Topic:orders "]\nactions = ["Pub"]'
    text = f'[users.alice]\nsecret = "alice-secret"\n{policy}'
    (parsed,) = parse([("users.toml", text)]).users["alice"].policies
    assert str(parsed.pattern) == "Topic:orders"
