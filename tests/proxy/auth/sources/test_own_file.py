import os
from pathlib import Path

import pytest

from proxy.auth.policy import Role
from proxy.auth.sources.files import FileSource
from proxy.auth.sources.own_file import parse
from proxy.auth.sources.source import AuthError

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
