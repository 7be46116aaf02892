"""Hints of the command line at a server with a users file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.servers import Gantry
from tests.proxy.auth.users import write
from tests.proxy.tools.cli.shell import Shell, embedded

_USERS = """
[users.root-01]
secret = "secret-of-root"
role = "super"

[users.maker-01]
secret = "secret-of-maker"
[[users.maker-01.policies]]
resources = ["Topic:made"]
actions = ["Create", "Get"]
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    directory = tmp_path_factory.mktemp("guarded")
    file = write(directory / "users.toml", _USERS)
    with Gantry(directory, "", f'{embedded(directory / "data")}\n[auth]\nusers = "{file}"\n') as gantry:
        yield gantry


def _as(user: str, secret: str, directory: Path) -> tuple[object, ...]:
    return ("--access-key", user, "--secret-key-file", write(directory / "secret", secret))


def test_an_empty_list_of_users_names_the_users_file(guarded: Gantry, tmp_path: Path) -> None:
    done = Shell(guarded.address).run("users", "list", *_as("root-01", "secret-of-root", tmp_path))
    assert done.status == 0
    assert "keep no users" in done.err
    assert "--file" in done.err


def test_create_without_the_route_of_all_brokers_names_the_permission(guarded: Gantry, tmp_path: Path) -> None:
    done = Shell(guarded.address).run("topics", "create", "made", *_as("maker-01", "secret-of-maker", tmp_path))
    assert done.status == 1
    assert "needs Get on Topic:SELF_TEST_TOPIC" in done.err


@pytest.mark.parametrize("command", [("topics",), ("send", "made", "x")])
def test_missing_and_wrong_credentials_name_the_options(
    guarded: Gantry, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for credentials in ((), _as("root-01", "another-secret", tmp_path)):
        assert Shell(guarded.address).refused(*command, *credentials) == (
            "authentication failed: this listener needs valid credentials; see --access-key and --secret-key-file"
        )
