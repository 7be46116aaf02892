"""Credentials of the command line and the doctor."""

from pathlib import Path

import pytest

from proxy.__main__ import command_parser
from proxy.tools.cli.client import connected
from proxy.tools.credentials import CredentialsError, read
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.test_replica import replica

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY", "SECRET_KEY", "SECRET_KEY_FILE", "SECURITY_TOKEN", "PROFILE", "PROFILES", "ENDPOINT"):
        monkeypatch.delenv(f"GANTRY_{name}", raising=False)


def given(*words: str) -> Credentials | None:
    return read(command_parser().parse_args(["topics", *words]))


def test_options_variables_and_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert given() is None
    file = tmp_path / "secret"
    file.write_text("from-file\n")
    assert given("--access-key", "a", "--secret-key-file", str(file)) == Credentials("a", "from-file")
    monkeypatch.setenv("GANTRY_ACCESS_KEY", "b")
    monkeypatch.setenv("GANTRY_SECRET_KEY", "from-variable")
    assert given() == Credentials("b", "from-variable")
    assert given("--access-key", "a", "--secret-key-file", str(file)) == Credentials("a", "from-file")
    monkeypatch.setenv("GANTRY_SECURITY_TOKEN", "of-b")
    assert given() == Credentials("b", "from-variable", "of-b")
    monkeypatch.delenv("GANTRY_SECURITY_TOKEN")
    monkeypatch.delenv("GANTRY_ACCESS_KEY")
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[prod]\nendpoint = "gantry:8080"\naccess_key = "c"\nsecret_key_file = "{file}"\ntls = true\n')
    monkeypatch.setenv("GANTRY_PROFILES", str(profiles))
    options = command_parser().parse_args(["topics", "--profile", "prod"])
    assert read(options, "127.0.0.1:8080") == Credentials("c", "from-file")
    assert (options.endpoint, options.tls) == ("gantry:8080", True)
    options = command_parser().parse_args(["topics", "--profile", "prod", "--endpoint", "other:1"])
    read(options, "127.0.0.1:8080")
    assert options.endpoint == "other:1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--access-key", "a"), "has no secret key"),
        (("--secret-key-file", "/nonexistent"), "--secret-key-file needs --access-key"),
        (("--access-key", "a", "--secret-key-file", "/nonexistent"), "/nonexistent: No such file"),
        (("--profile", "prod"), "profiles.toml: No such file"),
    ],
)
def test_incomplete_credentials(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTRY_PROFILES", str(tmp_path / "profiles.toml"))
    with pytest.raises(CredentialsError, match=message):
        given(*words)


async def test_commands_sign_their_requests(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        secret = tmp_path / "secret"
        secret.write_text("secret-of-root")
        words = ["--endpoint", str(app.addresses[0]), "--access-key", "root-01", "--secret-key-file", str(secret)]
        async with connected(command_parser().parse_args(["topics", *words])) as client:
            assert (await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0})).code == 0
