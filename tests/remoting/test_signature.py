"""Signatures of requests; the vectors are from AclClientRPCHook and AclSigner of RocketMQ 5.4.0."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting import command as commands
from remoting import signature
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.frame import FrameDecoder
from remoting.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Credentials, SecretKey

_CREDENTIALS = Credentials("alice", "secret")
_V4_9_3, _V4_9_4 = 399, 401

TEXT = st.text(st.characters(codec="utf-8"))
FIELDS = st.dictionaries(TEXT, TEXT, max_size=8)
SECRETS = st.text(st.characters(codec="utf-8"), min_size=1)


def test_signature_of_text_matches_java() -> None:
    assert signature.signature(SecretKey("12345678"), b"RocketMQ") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


@pytest.mark.parametrize(
    ("fields", "body", "credentials", "expected"),
    [
        (
            {"topic": "TopicTest", "acceptStandardJsonOnly": "true"},
            b"",
            Credentials("rocketmq2", "12345678"),
            "EvCVn1/pIhQGNcZnAZsj264sC2k=",
        ),
        (
            {},
            '{"clientID":"c1","note":"你好"}'.encode(),
            Credentials("alice", "secret-ü", "token=="),
            "o7gS8KLhvFYaZr5bxPwjZ7fTESw=",
        ),
        (
            # In UTF-16, U+1F600 is before U+E000.
            {"\ue000": "private", "\U0001f600": "emoji", "ä": "umlaut", "a": "1", "B": "2", "Empty": ""},
            b"\0\1\2",
            Credentials("ak", "sk"),
            "UoazckbawEr1s8Ag+8jWPXbewF4=",
        ),
    ],
    ids=["route", "heartbeat with a token", "field names beyond ASCII"],
)
def test_sign_matches_java(fields: dict[str, str], body: bytes, credentials: Credentials, expected: str) -> None:
    command = commands.request(RequestCode.HEART_BEAT, fields, body)
    signature.sign(command, credentials)
    assert command.fields[SIGNATURE] == expected
    assert command.fields[ACCESS_KEY] == credentials.access_key
    assert command.fields.get(SECURITY_TOKEN) == credentials.security_token
    assert signature.verify(command, credentials.key)


@given(FIELDS, st.binary(max_size=50), SECRETS, TEXT)
def test_content_is_sorted_values_and_body(fields: dict[str, str], body: bytes, secret: str, access_key: str) -> None:
    command = commands.request(RequestCode.HEART_BEAT, dict(fields), body)
    signature.sign(command, Credentials(access_key, secret))
    expected = {**fields, ACCESS_KEY: access_key}
    expected.pop(SIGNATURE, None)
    expected.pop(SECURITY_TOKEN, None)
    ordered = sorted(expected, key=lambda name: name.encode("utf-16-be"))
    signed = "".join(expected[name] for name in ordered).encode() + body
    assert signature.content(command) == signed
    assert command.fields[SIGNATURE] == base64.b64encode(hmac.digest(secret.encode(), signed, "sha1")).decode()


@given(FIELDS, st.binary(max_size=50), st.data())
def test_verify_fails_after_a_change(fields: dict[str, str], body: bytes, data: st.DataObject) -> None:
    command = commands.request(RequestCode.HEART_BEAT, dict(fields), body)
    signature.sign(command, _CREDENTIALS)
    assert signature.verify(command, _CREDENTIALS.key)
    name = data.draw(st.sampled_from(sorted(command.fields)))
    command.fields[name] += "x"
    assert not signature.verify(command, _CREDENTIALS.key)


@given(FIELDS, st.binary(max_size=50))
def test_signature_survives_encoding(fields: dict[str, str], body: bytes) -> None:
    command = commands.request(RequestCode.HEART_BEAT, dict(fields), body)
    signature.sign(command, _CREDENTIALS)
    assert signature.verify(_received(command), _CREDENTIALS.key)


@given(st.text(st.characters(codec="utf-8"), max_size=100), st.binary(max_size=200))
def test_digest_is_hmac_sha1(secret: str, signed: bytes) -> None:
    assert SecretKey(secret).digest(signed) == hmac.digest(secret.encode(), signed, "sha1")


def test_verify_another_secret_fails() -> None:
    command = commands.request(RequestCode.HEART_BEAT)
    signature.sign(command, _CREDENTIALS)
    assert not signature.verify(command, SecretKey("another"))


@pytest.mark.parametrize("received", ["", "ä", "c2hvcnQ="])
def test_verify_an_invalid_signature_fails(received: str) -> None:
    command = commands.request(RequestCode.HEART_BEAT, {SIGNATURE: received})
    assert not signature.verify(command, _CREDENTIALS.key)
    assert not signature.verify(commands.request(RequestCode.HEART_BEAT), _CREDENTIALS.key)


def test_sign_replaces_all_fields_of_another_signer() -> None:
    command = commands.request(RequestCode.HEART_BEAT, {"topic": "t"})
    signature.sign(command, Credentials("bob", "other", "token"))
    signature.sign(command, _CREDENTIALS)
    assert signature.verify(command, _CREDENTIALS.key)
    assert command.fields.keys() == {"topic", ACCESS_KEY, SIGNATURE}


@pytest.mark.parametrize(("version", "valid"), [(_V4_9_3, True), (_V4_9_4, False)])
def test_old_clients_add_a_field_after_signing(version: int, valid: bool) -> None:
    command = commands.request(RequestCode.QUERY_MESSAGE, {"topic": "t", "key": "k"})
    command.header["version"] = version
    signature.sign(command, _CREDENTIALS)
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert signature.verify(command, _CREDENTIALS.key) is valid


def test_credentials_do_not_show_secrets() -> None:
    assert "secret" not in repr(Credentials("alice", "secret", "secret-token"))


def _received(command: RemotingCommand) -> RemotingCommand:
    [frame] = FrameDecoder(1 << 20).feed(command.encode() + command.body)
    return commands.decode(frame)
