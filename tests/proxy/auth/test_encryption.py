"""Encrypted secrets of the users file."""

import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.auth.assembly import authority, users_cipher
from proxy.auth.encryption import SecretCipher
from proxy.auth.sources.own_file import parse
from proxy.auth.sources.source import AuthError
from proxy.settings.auth import AuthSettings
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.requests import command
from tests.proxy.auth.users import signed, write
from tests.proxy.fakes import peer

ROOT = Path(__file__).resolve().parents[3]
_PLAIN = """
# Kept.
[users.alice-1]
secret = "secret-of-alice"
security_token = "token-of-alice"
"""


def new_key() -> str:
    return b64encode(os.urandom(32)).decode()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write(tmp_path / "users.key", new_key() + "\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "users.toml", _PLAIN)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    done = capsys.readouterr()
    return status, done.out, done.err


def accepts(file: Path, credentials: Credentials, **settings: object) -> bool:
    made = authority(AuthSettings(users=file, **settings))
    assert made is not None
    return made.of_command(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), credentials), peer()).failure is None


def test_commands_encrypt_and_gantry_decrypts(
    file: Path, key_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, _ = run(capsys, "users", "create", "bob", "--file", file, "--users-key-file", key_file)
    secret = out.splitlines()[2].removeprefix("secret key: ")
    text = file.read_text()
    assert (status, text.count('"aes256gcm:'), "# Kept." in text) == (0, 3, True)
    assert not any(plain in text for plain in (secret, "secret-of-alice", "token-of-alice"))
    alice = Credentials("alice-1", "secret-of-alice", "token-of-alice")
    for credentials in (alice, Credentials("bob", secret)):
        assert accepts(file, credentials, users_key_file=key_file)
        assert accepts(file, credentials, users_key=key_file.read_text())
    assert not accepts(file, Credentials("bob", "wrong"), users_key_file=key_file)
    # The environment of `gantry serve` names the key for the commands as well.
    monkeypatch.setenv("GANTRY_AUTH__USERS_KEY_FILE", str(key_file))
    assert run(capsys, "acl", "grant", "bob", "Pub", "Topic:t", "--file", file)[0] == 0
    assert run(capsys, "acl", "explain", "bob", "Pub", "Topic:t", "--file", file)[0] == 0
    before = file.read_text().split("[users.alice-1]")[1].splitlines()[1]
    assert before in text, "a secret that is encrypted already stays"


def test_keys_are_replaced_one_after_the_other(file: Path, key_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = ("users", "enable", "alice-1", "--file", file, "--users-key-file", key_file)
    assert run(capsys, *change)[0] == 0
    former = key_file.read_text()
    key_file.write_text(f"{new_key()}\n{former}")
    alice = Credentials("alice-1", "secret-of-alice", "token-of-alice")
    assert accepts(file, alice, users_key_file=key_file)
    assert run(capsys, *change)[0] == 0
    key_file.write_text(key_file.read_text().splitlines()[0])
    assert accepts(file, alice, users_key_file=key_file)
    with pytest.raises(AuthError):
        accepts(file, alice, users_key=former)


def test_start_without_the_right_key_names_the_setting(
    tmp_path: Path, file: Path, key_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capsys, "users", "enable", "alice-1", "--file", file, "--users-key-file", key_file)[0] == 0
    other = write(tmp_path / "other.key", new_key())
    open_to_all = write(tmp_path / "open.key", new_key())
    open_to_all.chmod(0o644)
    short = write(tmp_path / "short.key", "c2hvcnQ=")
    monkeypatch.setenv("GANTRY_AUTH__USERS", str(file))
    for name, value, message in (
        (None, "", "users.alice-1.secret: it is encrypted: set auth.users_key_file"),
        (
            "USERS_KEY_FILE",
            other,
            f"users.alice-1.secret: it is not encrypted with a key of auth.users_key_file {other}",
        ),
        ("USERS_KEY_FILE", tmp_path / "none", "auth.users_key_file"),
        ("USERS_KEY_FILE", open_to_all, "chmod 600"),
        ("USERS_KEY_FILE", short, "auth.users_key_file"),
        ("USERS_KEY", "not base64", "auth.users_key: a key is 32 random bytes in base64"),
        ("USERS_KEY", new_key(), "users.alice-1.secret: it is not encrypted with a key of auth.users_key"),
    ):
        with monkeypatch.context() as environment:
            if name is not None:
                environment.setenv(f"GANTRY_AUTH__{name}", str(value))
            # The commands refuse to change the file, too.
            errors = [run(capsys, "acl", "grant", "alice-1", "Pub", "Topic:t", "--file", file)[2]]
        with pytest.raises(AuthError) as raised:
            authority(AuthSettings(users=file, **({} if name is None else {name.lower(): value})))
        for error in (*errors, str(raised.value)):
            assert message in error, error
            assert "secret-of-alice" not in error
            assert name != "USERS_KEY" or str(value) not in error
    # A process of its own: it sets up the logs.
    command = [sys.executable, "-m", "proxy", "serve", "--listen", "127.0.0.1:0", "--embedded", str(tmp_path / "data")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "users.alice-1.secret: it is encrypted: set auth.users_key_file" in done.stderr


def test_a_secret_is_bound_to_its_user_and_key() -> None:
    cipher = SecretCipher(new_key(), "the setting")
    sealed = cipher.encrypt("secret-of-alice", "alice-1.secret")
    assert cipher.encrypt("secret-of-alice", "alice-1.secret") != sealed
    entry = f'[users.{{}}]\n{{}} = "{sealed}"\n'
    assert parse([("f", entry.format("alice-1", "secret"))], cipher).users["alice-1"].key is not None
    for name, key in (("bob", "secret"), ("alice-1", "security_token")):
        with pytest.raises(ValueError, match=rf"f: users.{name}.{key}: it is not encrypted with a key of the setting"):
            parse([("f", entry.format(name, key))], cipher)
    for text in (sealed[:-5], "aes256gcm:", "aes256gcm:????", "aes256gcm:" + "A" * 60):
        with pytest.raises(ValueError, match="not encrypted with a key"):
            cipher.decrypt(text, "alice-1.secret")


def test_a_key_needs_a_users_file(key_file: Path) -> None:
    with pytest.raises(ValueError, match="need users"):
        AuthSettings(users_key_file=key_file)
    assert users_cipher(None, None) is None
    assert key_file.read_text().strip() not in repr(AuthSettings(users=key_file, users_key=key_file.read_text()))
