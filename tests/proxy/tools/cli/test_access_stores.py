"""`gantry users` and `gantry acl`: the same on a users file and at a server."""

from pathlib import Path

import pytest

from tests.proxy.tools.cli.access_walk import walk
from tests.proxy.tools.cli.shell import ADMIN, Done, Shell


def test_users_of_a_file_are_managed(tmp_path: Path) -> None:
    def run(*words: object) -> Done:
        return Shell("127.0.0.1:1").run(*words, "--file", tmp_path / "users.toml")

    walk(run, tmp_path)


def test_users_of_a_server_are_managed(authenticating: Shell, tmp_path: Path) -> None:
    def run(*words: object) -> Done:
        return authenticating.run(*words, env=ADMIN)

    walk(run, tmp_path)


def test_users_of_a_server_need_its_super_user(authenticating: Shell) -> None:
    assert "authentication failed" in authenticating.refused("users")
    wrong = authenticating.run("users", "create", "eve", env={**ADMIN, "GANTRY_SECRET_KEY": "guess"})
    assert wrong.status == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("users", "create", "eve", "--role", "operator"), "brokers have no role operator"),
        (("users", "create", "eve", "--group", "ops"), "brokers keep no groups"),
        (("users", "create", "@ops"), "brokers keep no groups"),
        (("users", "update", "admin", "--group", "ops"), "brokers keep no groups"),
        (("acl", "grant", "admin", "Pub", "orders"), "a resource is Topic:NAME"),
        (("acl", "grant", "admin", "Pub", "Topic:x", "--from", "y"), "not an IP network"),
    ],
)
def test_brokers_refuse_what_they_cannot_keep(authenticating: Shell, words: tuple[str, ...], message: str) -> None:
    done = authenticating.run(*words, env=ADMIN)
    assert done.status == 1
    assert message in done.err


def test_brokers_keep_one_entry_for_a_resource(authenticating: Shell) -> None:
    authenticating.run("users", "create", "dora", env=ADMIN)
    assert authenticating.run("acl", "grant", "dora", "Pub", "Topic:x", env=ADMIN).status == 0
    assert authenticating.run("acl", "grant", "dora", "Sub", "Topic:x", env=ADMIN).status == 0
    [policy] = authenticating.run("acl", "list", "dora", "--json", env=ADMIN).objects
    assert policy["actions"] == ["Pub", "Sub"]
    other = authenticating.run("acl", "grant", "dora", "Sub", "Topic:x", "--deny", env=ADMIN)
    assert (other.status, "revoke it" in other.err) == (1, True)


def test_endpoint_has_precedence_over_the_file_of_the_environment(tmp_path: Path) -> None:
    env = {"GANTRY_AUTH__USERS": str(tmp_path / "users.toml")}
    shell = Shell("127.0.0.1:1")
    assert shell.run("users", "create", "alice", env=env).status == 0
    refused = shell.run("users", "--endpoint", "127.0.0.1:2", env=env)
    assert (refused.status, "127.0.0.1:2" in refused.err) == (1, True)
