import re
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from proxy.admin.access import Access, BadCredentials, Role
from proxy.auth.admin_users import AdminUsers, TooManyLogins
from proxy.auth.authority import Authority
from proxy.auth.failures import FailureDelays
from proxy.auth.grpc_guard import GrpcGuard
from proxy.auth.passwords import PasswordHash, hash_password
from proxy.core.principal import Method
from proxy.settings.admin import AdminSettings
from remoting.signature import Credentials
from tests.proxy.auth.users import ALICE, IMPOSTOR, OWN_FILE, ROOT, STRANGER, FakeTokens, authority, basic
from tests.proxy.fakes import Clock

OPERATOR = Credentials("oper-01", "secret-of-oper")
USERS = f"""{OWN_FILE}
[users.oper-01]
secret = "secret-of-oper"
role = "operator"

[groups.readers]
role = "operator"
"""


def access(folder: Path) -> Access:
    made = authority(folder, USERS)
    users = AdminUsers(made, GrpcGuard(made, window=300.0, tokens=FakeTokens()))
    return Access(AdminSettings(read_token="a-token-of-admin-settings"), users=users)


@pytest.mark.parametrize(
    ("header", "name", "role"),
    [
        (basic(ROOT), "root-01", Role.WRITE),
        (basic(OPERATOR), "oper-01", Role.READ),
        (basic(ALICE), "alice-1", Role.NONE),
        ("Bearer valid", "carol", Role.READ),
        ("Bearer a-token-of-admin-settings", "read_token", Role.READ),
    ],
)
def test_users_have_the_role_of_the_users_file(tmp_path: Path, header: str, name: str, role: Role) -> None:
    caller = access(tmp_path).caller("192.0.2.1", {"authorization": header}, None)
    assert (caller.name, caller.role) == (name, role)


@pytest.mark.parametrize(
    "header",
    [
        basic(STRANGER),
        basic(IMPOSTOR),
        "Basic x",
        "Basic eA==",
        "Basic \xe9",
        "Basic /w==",
        "Bearer other",
        "Bearer \xe9",
        "Digest x",
        "",
    ],
)
def test_other_credentials_are_rejected(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadCredentials):
        access(tmp_path).caller("127.0.0.1", {"authorization": header}, None)


def test_failures_are_counted(tmp_path: Path) -> None:
    made = authority(tmp_path, USERS)
    users = AdminUsers(made, GrpcGuard(made, window=300.0))
    assert users(basic(IMPOSTOR), "192.0.2.1") is None
    assert made.counts == {(Method.PASSWORD, "wrong secret"): 1}


@pytest.mark.parametrize("header", ["Basic x", "Basic eA==", "Basic \xe9", "Basic /w=="])
def test_malformed_credentials_are_failures_of_their_source(tmp_path: Path, header: str) -> None:
    made = authority(tmp_path, USERS)
    made.failures = FailureDelays(Clock())
    assert AdminUsers(made, GrpcGuard(made, window=300.0))(header, "192.0.2.1") is None
    assert made.counts == {(Method.PASSWORD, "malformed credential"): 1}
    assert made.failures.count("192.0.2.1") == 1


def hashed(folder: Path) -> tuple[AdminUsers, Clock, Authority]:
    made = authority(
        folder,
        f'''{USERS}
[users.boss-01]
password = "{hash_password("password-of-boss")}"
role = "super"
''',
    )
    clock = Clock()
    made.failures = FailureDelays(clock)
    return AdminUsers(made, GrpcGuard(made, window=300.0), clock), clock, made


def test_hashed_password_identifies_its_user(tmp_path: Path) -> None:
    users, clock, made = hashed(tmp_path)
    assert users(basic(Credentials("boss-01", "password-of-boss")), "192.0.2.1") == ("boss-01", "write")
    assert users(basic(ROOT), "192.0.2.1") == ("root-01", "write")
    clock.now += 1
    assert users(basic(Credentials("boss-01", "password-of-root")), "192.0.2.1") is None
    assert users(basic(Credentials("boss-02", "password-of-boss")), "192.0.2.1") is None
    assert made.counts == {(Method.PASSWORD, "wrong secret"): 1, (Method.PASSWORD, "unknown user"): 1}


def guess(users: AdminUsers, count: int, source: str, user: str = "boss-01") -> None:
    for number in range(count):
        with suppress(TooManyLogins):
            assert users(basic(Credentials(user, f"guess-{number}")), source) is None


BOSS = basic(Credentials("boss-01", "password-of-boss"))


def test_verifications_of_hashes_are_limited_but_not_for_verified_passwords(tmp_path: Path) -> None:
    users, clock, made = hashed(tmp_path)
    assert users(BOSS, "192.0.2.1") is not None
    guess(users, 10, "192.0.2.66")
    # One without a failure of its source, two with few, two with more.
    assert made.counts == {(Method.PASSWORD, "wrong secret"): 5, (Method.PASSWORD, "too many verifications"): 5}
    assert users(BOSS, "192.0.2.1") is not None
    clock.now += 1
    guess(users, 10, "192.0.2.66")
    assert made.counts[Method.PASSWORD, "wrong secret"] == 7


# With a password, with a secret key only, and unknown.
KINDS = ("boss-01", "root-01", "boss-02")


@pytest.mark.parametrize("name", KINDS)
def test_all_users_are_limited_alike(tmp_path: Path, name: str) -> None:
    users, _, made = hashed(tmp_path)
    guess(users, 10, "192.0.2.66", name)
    assert made.counts[Method.PASSWORD, "too many verifications"] == 5
    for other in KINDS:
        with pytest.raises(TooManyLogins):
            users(basic(Credentials(other, "guess")), "192.0.2.66")


@pytest.mark.parametrize("name", KINDS)
def test_a_guess_takes_one_verification_of_a_hash_for_every_user(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, _, _ = hashed(tmp_path)
    verified = []
    monkeypatch.setattr(PasswordHash, "verify", lambda hashed, secret: verified.append(secret))
    guess(users, 1, "192.0.2.66", name)
    assert verified == ["guess-0"]


def test_guesses_of_secret_keys_are_limited_without_passwords_too(tmp_path: Path) -> None:
    made, clock = authority(tmp_path, USERS), Clock()
    made.failures = FailureDelays(clock)
    users = AdminUsers(made, GrpcGuard(made, window=300.0), clock)
    assert users(basic(ROOT), "192.0.2.1") is not None
    guess(users, 1500, "192.0.2.66", "root-01")
    assert made.counts[Method.PASSWORD, "wrong secret"] == 5
    # Verified before, at its own address and at that of the guesses.
    assert users(basic(ROOT), "192.0.2.1") == users(basic(ROOT), "192.0.2.66") == ("root-01", "write")


def test_a_changed_secret_key_is_verified_again(tmp_path: Path) -> None:
    users, clock, made = hashed(tmp_path)
    assert users(basic(ROOT), "192.0.2.1") is not None
    file = tmp_path / "users.toml"
    file.write_text(file.read_text().replace("secret-of-root", "another-secret-of-root"))
    anyio.run(made.refresh)
    clock.now += 1
    assert users(basic(ROOT), "192.0.2.1") is None
    assert users(basic(Credentials("root-01", "another-secret-of-root")), "192.0.2.1") is not None


def test_guesses_do_not_keep_others_from_logging_in(tmp_path: Path) -> None:
    users, clock, _ = hashed(tmp_path)
    mistyped = basic(Credentials("boss-01", "password-of-bos"))
    assert users(mistyped, "192.0.2.1") is None
    clock.now += 1
    guess(users, 10, "192.0.2.66")
    # Its source is slow by its own fault, and others are not, neither after a wrong password.
    with pytest.raises(TooManyLogins):
        users(BOSS, "192.0.2.66")
    assert users(BOSS, "192.0.2.2") is not None
    clock.now += 1
    guess(users, 10, "192.0.2.66")
    assert users(mistyped, "192.0.2.1") is None
    assert users(BOSS, "192.0.2.1") is not None


def test_a_password_that_is_not_verified_is_no_failure(tmp_path: Path) -> None:
    users, clock, made = hashed(tmp_path)
    for source in ("192.0.2.66", "192.0.2.67"):
        guess(users, 1, source)
    for _ in range(5):
        with pytest.raises(TooManyLogins):
            users(basic(Credentials("boss-01", "password")), "192.0.2.1")
    assert made.failures.count("192.0.2.1") == 0
    clock.now += 1
    assert users(BOSS, "192.0.2.1") is not None


def test_a_change_of_users_keeps_the_verified_passwords_of_others(tmp_path: Path) -> None:
    users, _, made = hashed(tmp_path)
    assert users(BOSS, "192.0.2.1") is not None
    guess(users, 10, "192.0.2.1")
    file = tmp_path / "users.toml"
    file.write_text(file.read_text() + '\n[users.new-user]\nsecret = "secret-of-new-user"\n')
    anyio.run(made.refresh)
    assert made.user("new-user") is not None
    assert users(BOSS, "192.0.2.1") is not None
    changed = re.sub('password = ".*"', f'password = "{hash_password("another-password")}"', file.read_text())
    # The size changes, too: two writes may have the same time.
    file.write_text(f"{changed}# changed\n")
    anyio.run(made.refresh)
    before = made.counts[Method.PASSWORD, "too many verifications"]
    with pytest.raises(TooManyLogins):
        users(BOSS, "192.0.2.1")
    assert made.counts[Method.PASSWORD, "too many verifications"] == before + 1


def test_hash_has_the_password_in_no_readable_form() -> None:
    one, other = hash_password("a-password"), hash_password("a-password")
    assert one != other
    assert "a-password" not in one
    assert PasswordHash(one).verify("a-password")
    assert not PasswordHash(one).verify("a-passwore")


@pytest.mark.parametrize(
    "text",
    ["", "plain", "scrypt:1:8:1:c2FsdHNhbHQ=:aGFzaA==", "argon2:16384:8:1:c2FsdHNhbHQ=:" + "YWFh" * 8]
    + [
        f"scrypt:{cost}:c2FsdHNhbHQ=:" + "YWFh" * 8 for cost in ("1048576:8:1", "16384:64:1", "16384:8:99", "16383:8:1")
    ],
)
def test_other_texts_are_no_hashes(text: str) -> None:
    with pytest.raises(ValueError, match="hashed password"):
        PasswordHash(text)
