"""`gantry users` and `gantry acl`."""

import os
from pathlib import Path

import orjson
import pytest

from proxy.__main__ import main
from proxy.auth.sources.own_file import parse
from proxy.auth.sources.users_editor import UsersEditor
from tests.proxy.auth.users import PLAIN_ACL, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.toml"


def gantry(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr."""
    status = main([str(word) for word in words])
    done = capsys.readouterr()
    return status, done.out, done.err


def test_users_are_created_and_granted_permissions(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = gantry(capsys, "users", "create", "alice", "--file", file)
    assert (status, out.splitlines()[:2]) == (0, ["user alice created", "access key: alice"])
    assert len(out.splitlines()[2].removeprefix("secret key: ")) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert gantry(capsys, "users", "create", "@billing", "--role", "operator", "--file", file)[0] == 0
    assert gantry(capsys, "acl", "grant", "alice", "Pub,Sub", "Topic:orders", "--file", file)[0] == 0
    assert (
        gantry(capsys, "acl", "grant", "@billing", "All", "*", "--deny", "--from", "10.0.0.0/8", "--file", file)[0] == 0
    )
    directory = parse([("users.toml", file.read_text())])
    assert [str(policy) for policy in directory.users["alice"].policies] == ["allow Pub,Sub on Topic:orders"]
    assert [str(policy) for policy in directory.groups["billing"].policies] == ["deny Any on * from 10.0.0.0/8"]
    status, out, _ = gantry(capsys, "users", "--file", file, "--json")
    assert [orjson.loads(line)["user"] for line in out.splitlines()] == ["alice", "@billing"]
    status, out, _ = gantry(capsys, "acl", "list", "alice", "--file", file, "--json")
    assert orjson.loads(out) == {
        "user": "alice",
        "effect": "allow",
        "actions": ["Pub", "Sub"],
        "resources": ["Topic:orders"],
        "sources": [],
        "default": False,
    }


def test_links_stay_and_other_files_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link, pipe = file.with_name("link.toml"), file.with_name("pipe")
    link.symlink_to(file)
    assert gantry(capsys, "users", "create", "alice", "--file", link)[0] == 0
    assert (link.is_symlink(), "alice" in file.read_text()) == (True, True)
    os.mkfifo(pipe)
    editor = UsersEditor(file)
    editor._path = pipe
    with pytest.raises(ValueError, match="pipe: not a regular file"):
        editor.save()
    assert pipe.is_fifo()


def test_explain_names_the_rule(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gantry(capsys, "users", "create", "alice", "--file", file)
    gantry(capsys, "acl", "grant", "alice", "Sub", "Topic:orders*", "--from", "10.0.0.0/8", "--file", file)
    explain = ("acl", "explain", "alice", "Sub", "Topic:orders-eu", "--file", file)
    assert gantry(capsys, *explain, "--from", "10.1.2.3") == (
        0,
        f"allowed: allow Sub on Topic:orders* from 10.0.0.0/8 ({file}: users.alice)\n",
        "",
    )
    assert gantry(capsys, *explain, "--from", "::ffff:10.1.2.3")[0] == 0
    for text in ("10.1.2.300", "10.0.0.0/8", "host"):
        sentence = f"gantry: not an IP address: {text!r}\n"
        assert gantry(capsys, *explain, "--from", text) == (2, "", sentence)
    assert gantry(capsys, *explain, "--from", "192.0.2.1") == (1, "denied: no rule applies\n", "")
    gantry(capsys, "users", "disable", "alice", "--file", file)
    assert gantry(capsys, *explain, "--from", "10.1.2.3")[1].startswith("denied: the user is disabled")
    gantry(capsys, "users", "enable", "alice", "--file", file)
    assert gantry(capsys, *explain, "--from", "10.1.2.3")[0] == 0
    old = write(tmp_path / "plain_acl.yml", PLAIN_ACL)
    assert gantry(capsys, "acl", "explain", "root-01", "Pub", "Topic:x", "--plain-acl", old)[0] == 0
    assert gantry(capsys, "acl", "explain", "nobody", "Pub", "Topic:x", "--plain-acl", old)[0] == 1
    write(old, PLAIN_ACL + "globalWhiteRemoteAddresses: [10.9.9.9]\n")
    listed = ("--plain-acl", old, "--from", "10.9.9.9")
    exempt = "allowed: allow Pub,Sub on Topic:* (the address is on a white list of ACL 1.0)\n"
    assert gantry(capsys, "acl", "explain", "bob-0001", "Pub", "Topic:x", *listed) == (0, exempt, "")
    assert gantry(capsys, "acl", "explain", "bob-0001", "Delete", "Topic:x", *listed)[0] == 1
    assert gantry(capsys, "acl", "explain", "root-01", "Delete", "Topic:x", *listed)[0] == 0
    gantry(capsys, "acl", "grant", "alice", "Sub", "Topic:*", "--file", file)
    for topic in ("rmq_sys_wheel_timer", "DefaultHeartBeatSyncerTopic"):
        denied = gantry(capsys, "acl", "explain", "alice", "Sub", f"Topic:{topic}", "--file", file)[1]
        assert denied.startswith("denied: no rule names this internal topic")


def test_revoke_removes_actions_and_policies(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gantry(capsys, "users", "create", "alice", "--file", file)
    gantry(capsys, "acl", "grant", "alice", "Pub,Sub", "Topic:orders", "--file", file)
    assert gantry(capsys, "acl", "revoke", "alice", "Topic:orders", "--actions", "Pub", "--file", file)[0] == 0
    assert "Sub on Topic:orders" in str(parse([("f", file.read_text())]).users["alice"].policies[0])
    assert gantry(capsys, "acl", "revoke", "alice", "Topic:orders", "--file", file)[0] == 0
    assert parse([("f", file.read_text())]).users["alice"].policies == ()
    status, _, error = gantry(capsys, "acl", "revoke", "alice", "Topic:orders", "--file", file)
    assert (status, error) == (1, "gantry: alice has no such policy on Topic:orders\n")
    assert gantry(capsys, "users", "delete", "alice", "--yes", "--file", file)[0] == 0
    assert parse([("f", file.read_text())]).users == {}


def test_comments_of_the_file_remain(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, '# Our users.\n[users.alice]\nsecret = "secret-of-alice"  # rotated in May\n')
    file.chmod(0o640)
    gantry(capsys, "acl", "grant", "alice", "Pub", "Topic:orders", "--file", file)
    text = file.read_text()
    assert text.startswith("# Our users.\n")
    assert "# rotated in May" in text
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("acl", "grant", "bob", "Pub", "Topic:x"), "there is no user bob"),
        (("acl", "grant", "@ops", "Pub", "Topic:x"), "there is no group ops"),
        (("acl", "grant", "alice", "Fly", "Topic:x"), "unknown action 'Fly'"),
        (("acl", "grant", "alice", "Pub", "x"), "a resource is Topic:NAME"),
        (("acl", "grant", "alice", "Pub", "Topic:x", "--from", "y"), "not an IP network"),
        (("users", "create", "alice"), "there is a user alice already"),
        (("users", "create", "a b"), "users.a b"),
        (("users", "create", "carol", "--group", "none"), "there is no group 'none'"),
    ],
)
def test_invalid_changes_are_refused(
    file: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    write(file, '[users.alice]\nsecret = "secret-of-alice"\n')
    before = file.read_text()
    status, _, error = gantry(capsys, *words, "--file", file)
    assert status == 1
    assert message in error
    assert file.read_text() == before


def test_a_broken_file_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, "[users.alice\n")
    for words in (("users", "list"), ("users", "create", "bob"), ("acl", "list")):
        status, _, error = gantry(capsys, *words, "--file", file)
        assert (status, error.startswith(f"gantry: {file}: ")) == (1, True)


def test_password_is_stored_as_a_hash(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    password = write(tmp_path / "password", "password-of-ops\n")
    words = ("users", "create", "ops", "--role", "operator", "--password-file", password, "--file", file)
    assert gantry(capsys, *words) == (0, "user ops created\n", "")
    assert "password-of-ops" not in file.read_text()
    user = parse([("f", file.read_text())]).users["ops"]
    assert user.key is None
    assert user.password is not None
    assert user.password.verify("password-of-ops")


def test_expiries_are_set_shown_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gantry(capsys, "users", "create", "alice", "--expires", "2020-01-31T12:00:00Z", "--file", file)[0] == 0
    assert not parse([("users.toml", file.read_text())]).users["alice"].enabled
    shown = orjson.loads(gantry(capsys, "users", "list", "--json", "--file", file)[1])
    assert (shown["enabled"], shown["expires"]) == (False, 1_580_472_000_000)
    assert gantry(capsys, "users", "update", "alice", "--expires", "", "--file", file)[0] == 0
    assert parse([("users.toml", file.read_text())]).users["alice"].enabled
    status, _, error = gantry(capsys, "users", "update", "alice", "--expires", "2030-01-31", "--file", file)
    assert status != 0
    assert "name the zone" in error
    status, _, error = gantry(capsys, "users", "update", "alice", "--expires", "tomorrow", "--file", file)
    assert (status, error) == (2, "gantry: --expires: not a time: 'tomorrow'; write 2030-01-31T12:00:00Z\n")


def test_security_tokens_are_set_and_removed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def token() -> str | None:
        return parse([("users.toml", file.read_text())]).users["alice"].security_token

    first, second = write(tmp_path / "first", "token-of-alice\n"), write(tmp_path / "second", "another-token\n")
    create = ("users", "create", "alice", "--security-token-file", first, "--file", file)
    assert gantry(capsys, *create)[:1] == (0,)
    assert token() == "token-of-alice"
    for value, expected in ((second, "another-token"), ("", None)):
        update = ("users", "update", "alice", "--security-token-file", value, "--file", file)
        assert gantry(capsys, *update)[:2] == (0, "user alice updated\n")
        assert token() == expected
