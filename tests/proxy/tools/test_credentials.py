"""Credentials of the command line and the doctor."""

from pathlib import Path

import pytest

from proxy.__main__ import command_parser
from proxy.tools.cli.client import connected
from proxy.tools.credentials import CredentialsError, read
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.replica import replica

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("ACCESS_KEY", "SECRET_KEY", "SECRET_KEY_FILE", "SECURITY_TOKEN")
    for name in (*keys, "PROFILE", "PROFILES", "ENDPOINT", "ADMIN", "ADMIN_TOKEN"):
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


_CONTEXT = """
current = "prod"
[prod]
endpoint = "mq:8080"
tls = true
insecure = true
ca = "ca.pem"
admin = "https://mq:8090"
token = "of-prod"
access_key = "alice"
secret_key_file = "{secret}"
[keys]
access_key = "alice"
secret_key_file = "{secret}"
token = "of-nowhere"
"""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("of-alice")
    (tmp_path / "profiles.toml").write_text(_CONTEXT.format(secret=tmp_path / "secret"))
    monkeypatch.setenv("GANTRY_PROFILES", str(tmp_path / "profiles.toml"))


def _admin(*words: str) -> tuple[str | None, bool, str | None]:
    """Return the token, whether certificates are not verified, and the user of a request to the admin API."""
    options = command_parser().parse_args(["clients", *words])
    credentials = read(options)
    return options.token, options.insecure, None if credentials is None else credentials.access_key


@pytest.mark.usefixtures("context")
def test_secrets_and_tls_of_a_context_are_for_its_own_admin_api(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = ("of-prod", True, "alice"), (None, False, None)
    assert _admin() == own
    assert _admin("--admin", "https://mq:8090") == own
    assert _admin("--admin", "http://other:8090") == other
    assert _admin("--admin", "http://other:8090", "--profile", "prod") == other
    assert _admin("--admin", "http://other:8090", "--token", "given") == ("given", False, None)
    monkeypatch.setenv("GANTRY_ADMIN", "http://other:8090")
    assert _admin() == other
    # A context by name has precedence over the variable, if it names an address.
    assert _admin("--profile", "prod") == own
    assert _admin("--profile", "keys") == other


@pytest.mark.usefixtures("context")
def test_tls_of_a_context_is_for_its_own_endpoint_and_its_keys_sign_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def tls(endpoint: str, *words: str) -> tuple[bool, bool, bool]:
        options = command_parser().parse_args(["topics", *words])
        credentials = read(options, endpoint)
        assert credentials is not None
        assert credentials.access_key == "alice"
        return options.tls, options.insecure, options.ca is not None

    default, own, other = "127.0.0.1:8080", (True, True, True), (False, False, False)
    assert tls(default) == own
    assert tls(default, "--endpoint", "mq:8080") == own
    assert tls(default, "--endpoint", "other:8080") == other
    monkeypatch.setenv("GANTRY_ENDPOINT", "other:8080")
    assert tls("other:8080") == other
    assert tls("other:8080", "--profile", "prod") == own


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
