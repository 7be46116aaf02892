import time
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey
from pydantic import ValidationError

from proxy.auth.assembly import grpc_guard
from proxy.auth.authority import Authority
from proxy.auth.sources.source import AuthError
from proxy.auth.tokens import Tokens
from proxy.settings.auth import AuthSettings
from tests.proxy.auth.tokens import NOW, publish, token
from tests.proxy.auth.users import own_source

pytestmark = pytest.mark.anyio

OTHER = ECKey.generate_key("P-256", {"kid": "1", "alg": "ES256"})


def tokens(folder: Path, clock: Any = lambda: NOW, **settings: Any) -> Tokens:
    return Tokens(AuthSettings(users=folder / "users.toml", jwks=str(publish(folder)), **settings), clock)


def test_a_token_names_its_user_and_groups(tmp_path: Path) -> None:
    verified = tokens(tmp_path).verify(token())
    assert verified is not None
    assert (verified.user, verified.groups, verified.expires_at) == ("carol", frozenset({"readers"}), NOW + 90)
    other = tokens(tmp_path, token_user="email", token_groups="scope").verify(token(email="c@x", scope="a b"))
    assert other is not None
    assert (other.user, other.groups) == ("c@x", frozenset({"a", "b"}))


@pytest.mark.parametrize(
    "text",
    [
        token(OTHER),
        token(exp=int(NOW) - 31),
        token(exp=None),
        token(nbf=int(NOW) + 60),
        token(sub=None),
        token(sub=1),
        token(groups=1),
        token(OctKey.import_key("symmetric-key-of-many-characters"), "HS256"),
        token()[:-4],
        token() + "x" * 10_000,
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYXJvbCJ9.",
        "",
        "a.b.c",
    ],
)
def test_other_tokens_are_rejected(tmp_path: Path, text: str) -> None:
    assert tokens(tmp_path).verify(text) is None


def test_issuer_and_audience_are_required_if_configured(tmp_path: Path) -> None:
    made = tokens(tmp_path, token_issuer="idp", token_audience="rocketmq")
    assert made.verify(token(iss="idp", aud="rocketmq")) is not None
    assert made.verify(token(iss="idp", aud="other")) is None
    assert made.verify(token(iss="other", aud="rocketmq")) is None
    assert made.verify(token()) is None


async def test_keys_are_loaded_again(tmp_path: Path) -> None:
    now = NOW
    made = tokens(tmp_path, lambda: now, jwks_interval=10.0)
    publish(tmp_path, OTHER)
    assert not await made.refresh()
    now += 11
    assert await made.refresh()
    assert made.verify(token(OTHER)) is not None
    (tmp_path / "jwks.json").write_text("no keys")
    now += 11
    assert not await made.refresh()
    assert made.error is not None
    assert made.verify(token(OTHER)) is not None


@pytest.mark.parametrize("text", ['{"keys": []}', '{"keys": [{"kty": "LATER", "kid": "1"}]}'])
async def test_no_former_key_outlives_the_removal_of_all(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    now = NOW
    made = tokens(tmp_path, lambda: now, jwks_interval=10.0)
    verified = made.verify(token())
    assert verified is not None
    (tmp_path / "jwks.json").write_text(text)
    now += 11
    assert await made.refresh()
    assert made.verify(token()) is None
    assert not made.has_key(verified.key)
    now += 11
    assert not await made.refresh()
    assert caplog.text.count("has no usable key: all bearer tokens are rejected") == 1
    publish(tmp_path)
    now += 11
    assert await made.refresh()
    assert made.verify(token()) is not None


@pytest.mark.parametrize("text", ["{}", '{"keys": {}}', '{"keys": [1]}', '{"keys": "a"}', "[]"])
async def test_other_texts_than_a_key_set_leave_the_former_keys(tmp_path: Path, text: str) -> None:
    now = NOW
    made = tokens(tmp_path, lambda: now, jwks_interval=10.0)
    (tmp_path / "jwks.json").write_text(text)
    now += 11
    assert not await made.refresh()
    assert made.error is not None
    assert made.verify(token()) is not None


def test_a_start_needs_a_key(tmp_path: Path) -> None:
    file = publish(tmp_path)
    file.write_text('{"keys": []}')
    with pytest.raises(AuthError, match="not a JWK set with a usable key"):
        Tokens(AuthSettings(users=tmp_path / "users.toml", jwks=str(file)))


@pytest.mark.parametrize(("mode", "accepted"), [(0o444, True), (0o644, True), (0o664, False), (0o646, False)])
def test_a_key_set_that_others_can_change_is_refused(tmp_path: Path, mode: int, accepted: bool) -> None:
    file = publish(tmp_path)
    file.chmod(mode)
    settings = AuthSettings(users=tmp_path / "users.toml", jwks=str(file))
    if accepted:
        assert Tokens(settings, lambda: NOW).verify(token()) is not None
        return
    with pytest.raises(AuthError, match=f"^auth.jwks: {file}: the mode {mode:o} lets others change it: chmod go-w"):
        grpc_guard(settings, Authority([own_source(tmp_path)]))


async def test_keys_that_others_could_add_are_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = NOW
    made = tokens(tmp_path, lambda: now, jwks_interval=10.0)
    publish(tmp_path, OTHER).chmod(0o666)
    for _ in range(2):
        now += 11
        assert not await made.refresh()
    assert caplog.text.count("lets others change it") == 1
    assert made.verify(token(OTHER)) is None
    assert made.verify(token()) is not None


def test_invalid_settings(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="jwks needs users"):
        AuthSettings(jwks="keys.json")
    with pytest.raises(ValidationError, match="begins with https"):
        AuthSettings(users=tmp_path, jwks="http://idp/jwks")
    with pytest.raises(AuthError, match="No such file"):
        Tokens(AuthSettings(users=tmp_path, jwks=str(tmp_path / "none")), time.time)
