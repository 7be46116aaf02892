from pathlib import Path

import pytest

from proxy.settings.loading import ConfigError, check_backend
from tests.proxy.settings.conftest import Load


def test_credentials_are_of_the_settings_or_the_file(loaded: Load, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text("sesame\n")
    assert loaded("").cluster.credentials is None
    for settings in (
        loaded(f"[cluster]\naccess_key = 'gantry'\nsecret_key_file = '{file}'"),
        loaded("[cluster]\naccess_key = 'gantry'", {"CLUSTER__SECRET_KEY": "sesame"}),
    ):
        credentials = settings.cluster.credentials
        assert credentials is not None
        assert (credentials.access_key, credentials.secret_key) == ("gantry", "sesame")
        assert "sesame" not in f"{settings!r} {settings.cluster!r} {credentials!r}"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("access_key = 'gantry'", "secret_key_file"),
        ("secret_key = 'sesame'", "access_key"),
        ("client_signatures = 'sometimes'", "client_signatures"),
    ],
)
def test_incomplete_credentials_are_rejected(loaded: Load, toml: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"[cluster]\n{toml}")
    assert "cluster" in str(caught.value)
    assert message in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(("file", "message"), [("/absent", "No such file"), ("/dev/null", "is empty")])
def test_unusable_secret_file_is_rejected_before_the_start(loaded: Load, file: str, message: str) -> None:
    settings = loaded(f"[cluster]\nnamesrv = 'a:1'\naccess_key = 'gantry'\nsecret_key_file = '{file}'")
    with pytest.raises(ConfigError, match=rf"cluster\.secret_key_file {file}.*{message}"):
        check_backend(settings)


@pytest.mark.parametrize(
    ("mode", "accepted"), [(0o600, True), (0o440, True), (0o640, True), (0o644, False), (0o660, False)]
)
@pytest.mark.parametrize("table", ["cluster", "embedded"])
def test_secret_file_must_not_be_readable_by_others(
    loaded: Load, tmp_path: Path, table: str, mode: int, accepted: bool
) -> None:
    file = tmp_path / "secret"
    file.write_text("sesame\n")
    file.chmod(mode)
    user, key = {"cluster": ("access_key", "secret_key_file"), "embedded": ("super_user", "super_secret_file")}[table]
    backend = "namesrv = 'a:1'" if table == "cluster" else f"directory = '{tmp_path}'"
    settings = loaded(f"[{table}]\n{backend}\n{user} = 'gantry'\n{key} = '{file}'")
    if accepted:
        check_backend(settings)
    else:
        with pytest.raises(ConfigError, match=rf"{table}\.{key} {file}: the mode {mode:o} .*chmod 600"):
            check_backend(settings)


def test_embedded_super_user_needs_a_readable_secret(loaded: Load, tmp_path: Path) -> None:
    table = f"[embedded]\ndirectory = '{tmp_path}'\nsuper_user = 'admin'\n"
    with pytest.raises(ConfigError, match="super_secret_file"):
        loaded(table)
    with pytest.raises(ConfigError, match=r"embedded\.super_secret_file /absent"):
        check_backend(loaded(f"{table}super_secret_file = '/absent'"))
    settings = loaded(f"{table}super_secret = 'sesame'")
    credentials = settings.embedded.super_credentials
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("admin", "sesame")
    assert "sesame" not in f"{settings!r}"
