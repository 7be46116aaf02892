"""Attacks with bearer tokens: each is rejected with the same text, counted and in the audit log."""

import base64
import hashlib
import hmac
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwe, jws, jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from grpc_gateway.permissions import Unauthorized
from proxy.auth.authority import Authority
from proxy.auth.grpc_guard import GrpcGuard
from proxy.auth.tokens import Tokens, _RefuseDowngrade
from proxy.core.principal import Method, Principal
from proxy.settings.auth import AuthSettings
from tests.proxy.auth.users import authority
from tests.proxy.fakes import peer

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
STRANGE = ECKey.generate_key("P-256", {"kid": "ec"})
HEADER = {"alg": "ES256", "kid": "ec"}
CLAIMS: dict[str, object] = {"sub": "alice-1", "exp": int(NOW) + 60, "iss": "idp", "aud": "rocketmq"}


def part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unsigned(header: bytes, signature: bytes = b"x") -> str:
    return ".".join(map(part, (header, json.dumps(CLAIMS).encode(), signature)))


def signed(payload: bytes) -> str:
    """A token of the right key with this payload."""
    return jws.serialize_compact(HEADER, payload, EC, algorithms=["ES256"])


def claims(**changed: object) -> str:
    content = {**CLAIMS, **changed}
    return signed(json.dumps({key: value for key, value in content.items() if value is not None}).encode())


def replaced_payload() -> str:
    header, _, signature = claims().split(".")
    return f"{header}.{part(json.dumps({**CLAIMS, 'sub': 'root-01'}).encode())}.{signature}"


def by_public_key(key: bytes) -> str:
    """A token whose HMAC key is the public key, which a verifier that trusts the header's algorithm accepts."""
    text = ".".join((part(b'{"alg":"HS256","kid":"rsa"}'), part(json.dumps(CLAIMS).encode())))
    return f"{text}.{part(hmac.new(key, text.encode(), hashlib.sha256).digest())}"


def with_key(**header: object) -> str:
    """A token of another key, whose header describes that key."""
    return jws.serialize_compact({**HEADER, **header}, json.dumps(CLAIMS).encode(), STRANGE, algorithms=["ES256"])


ATTACKS = {
    "no algorithm": unsigned(b'{"alg":"none"}', b""),
    "no algorithm, in capitals": unsigned(b'{"alg":"NONE","kid":"ec"}', b""),
    "algorithm is missing": unsigned(b"{}"),
    "algorithm is a list": unsigned(b'{"alg":["ES256"],"kid":"ec"}'),
    "HMAC by the public key (PEM)": by_public_key(RSA.as_pem(private=False)),
    "HMAC by the public key (DER)": by_public_key(RSA.as_der(private=False)),
    "encrypted with the public key": jwe.encrypt_compact(
        {"alg": "RSA-OAEP", "enc": "A128CBC-HS256", "kid": "rsa"}, json.dumps(CLAIMS).encode(), RSA
    ),
    "key of another type": jws.serialize_compact(
        {"alg": "ES256", "kid": "rsa"}, json.dumps(CLAIMS).encode(), EC, algorithms=["ES256"]
    ),
    "unknown key id": jws.serialize_compact(
        {"alg": "ES256", "kid": "9"}, json.dumps(CLAIMS).encode(), EC, algorithms=["ES256"]
    ),
    "key id is a path": with_key(kid="../../../../dev/null"),
    "key id is a list": unsigned(b'{"alg":"ES256","kid":["ec"]}'),
    "key in the header": with_key(jwk=STRANGE.as_dict(private=False)),
    "keys at a URL": with_key(jku="https://attacker.example/jwks"),
    "unknown critical header": unsigned(b'{"alg":"ES256","kid":"ec","crit":["x"],"x":1}'),
    "payload without base64": unsigned(b'{"alg":"ES256","kid":"ec","crit":["b64"],"b64":false}'),
    "signature of another key": with_key(),
    "signature of another payload": replaced_payload(),
    "no signature": claims().rpartition(".")[0] + ".",
    "nested header": unsigned(b"[" * 5000),
    "number of 5000 digits": unsigned(b'{"alg":"ES256","kid":"ec","x":' + b"9" * 5000 + b"}"),
    "header in UTF-16": unsigned('{"alg":"ES256","kid":"ec"}'.encode("utf-16")),
    "giant": claims(padding="x" * 100_000),
    "many dots": "." * 8000,
    "half of a surrogate pair": "\ud800.a.b",
    "expired": claims(exp=int(NOW) - 31),
    "never expires": claims(exp=None),
    "expires at a text": claims(exp="9999999999"),
    "expires at infinity": signed(b'{"sub":"alice-1","iss":"idp","aud":"rocketmq","exp":1e999}'),
    "expires at no number": signed(b'{"sub":"alice-1","iss":"idp","aud":"rocketmq","exp":NaN}'),
    "expires too late to count": signed(b'{"sub":"alice-1","iss":"idp","aud":"rocketmq","exp":' + b"9" * 400 + b"}"),
    "not yet valid": claims(nbf=int(NOW) + 31),
    "issued in the future": claims(iat=int(NOW) + 31),
    "other audience": claims(aud="other"),
    "audience is missing": claims(aud=None),
    "other issuer": claims(iss="other"),
    "issuer is missing": claims(iss=None),
    "user is missing": claims(sub=None),
    "user is empty": claims(sub=""),
    "user is a list": claims(sub=["alice-1"]),
    "user is not printable": claims(sub="alice-1\n"),
    "user is half of a surrogate pair": claims(sub="\ud800"),
    "groups are an object": claims(groups={"a": 1}),
    "too many groups": claims(groups=list(map(str, range(257)))),
    "nested claims": signed(b"[" * 4000),
    "claims are a list": signed(b"[]"),
    "last of two users is empty": signed(b'{"sub":"alice-1","sub":"","exp":1900000000,"iss":"idp","aud":"rocketmq"}'),
    "last of two ends is past": signed(b'{"sub":"alice-1","exp":1900000000,"exp":1,"iss":"idp","aud":"rocketmq"}'),
}


def publish(folder: Path, *keys: Any, more: tuple[dict[str, str], ...] = ()) -> Path:
    file = folder / "jwks.json"
    file.touch(0o644)
    file.write_text(json.dumps({"keys": [*more, *KeySet(list(keys)).as_dict(private=False)["keys"]]}))
    return file


def guard(folder: Path, clock: Callable[[], float] = lambda: NOW) -> tuple[Authority, GrpcGuard, Tokens]:
    settings = AuthSettings(
        users=folder / "users.toml",
        jwks=str(publish(folder, RSA, EC)),
        jwks_interval=10.0,
        token_issuer="idp",
        token_audience="rocketmq",
    )
    made, tokens = authority(folder), Tokens(settings, clock)
    return made, GrpcGuard(made, window=300.0, tokens=tokens, clock=clock), tokens


def send(made: GrpcGuard, token: str) -> Principal:
    return made.authenticate({"authorization": f"Bearer {token}"}, peer(), "QueryRoute")


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_get_the_same_error_are_counted_and_audited(
    tmp_path: Path, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    made, door, _ = guard(tmp_path)
    with caplog.at_level(logging.INFO, "gantry.audit"), pytest.raises(Unauthorized) as caught:
        send(door, ATTACKS[attack])
    assert str(caught.value) == "authentication failed: this listener needs valid credentials"
    assert made.counts == {(Method.TOKEN, "invalid token"): 1}
    (line,) = [record.getMessage() for record in caplog.records if record.name == "gantry.audit"]
    assert '"event":"denied"' in line
    assert len(line) < 500
    assert send(door, claims()).user == "alice-1"


def test_of_repeated_claims_the_last_counts(tmp_path: Path) -> None:
    _, door, _ = guard(tmp_path)
    text = b'{"sub":"root-01","sub":"alice-1","exp":1900000000,"iss":"idp","aud":["x","rocketmq"]}'
    assert send(door, signed(text)).user == "alice-1"


async def test_keys_rotate_and_an_absent_server_leaves_the_former(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = NOW
    _, door, tokens = guard(tmp_path, lambda: now)
    new = ECKey.generate_key("P-256", {"kid": "new"})
    content = json.dumps({**CLAIMS, "exp": int(NOW) + 600}).encode()
    of_new = jws.serialize_compact({"alg": "ES256", "kid": "new"}, content, new, algorithms=["ES256"])
    with pytest.raises(Unauthorized):
        send(door, of_new)
    # A type of key that no verifier knows yet does not stop the rotation.
    file = publish(tmp_path, new, more=({"kty": "LATER", "kid": "later"},))
    now += 11
    assert await tokens.refresh()
    assert "1 keys of unknown types are ignored" in caplog.text
    assert send(door, of_new).user == "alice-1"
    with pytest.raises(Unauthorized):
        send(door, claims(exp=int(NOW) + 600))
    file.unlink()
    now += 11
    assert not await tokens.refresh()
    assert tokens.error is not None
    assert send(door, of_new).user == "alice-1"


def test_keys_of_encryption_verify_nothing(tmp_path: Path) -> None:
    _, door, _ = guard(tmp_path)
    public = RSAKey.import_key({**RSA.as_dict(private=True), "use": "enc"})
    file = publish(tmp_path, public)
    tokens = Tokens(AuthSettings(users=tmp_path / "users.toml", jwks=str(file)), lambda: NOW)
    token = jwt.encode({"alg": "RS256", "kid": "rsa"}, CLAIMS, RSA)
    assert tokens.verify(token) is None
    assert send(door, token).user == "alice-1"


@pytest.mark.parametrize("target", ["http://idp.example/jwks", "ftp://idp.example/jwks"])
def test_keys_are_not_loaded_in_plain_text(target: str) -> None:
    request = urllib.request.Request("https://idp.example/jwks")
    handler = _RefuseDowngrade()
    with pytest.raises(urllib.error.URLError, match="without https"):
        handler.redirect_request(request, None, 302, "Found", {}, target)
    followed = handler.redirect_request(request, None, 302, "Found", {}, "https://idp.example/keys")
    assert followed.full_url == "https://idp.example/keys"
