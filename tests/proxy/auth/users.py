"""Users of the tests, in every kind of source; and their credentials."""

import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from proxy.auth.authority import Authority
from proxy.auth.grpc_guard import GrpcGuard, VerifiedToken
from proxy.auth.sources import own_file, plain_acl
from proxy.auth.sources.files import FileSource
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.messages import Permission
from remoting.signature import Credentials, SecretKey, sign
from remoting.topic_group_config import topic_fields
from tests.proxy.messages import request

ALICE = Credentials("alice-1", "secret-of-alice")
BOB = Credentials("bob-0001", "secret-of-bob")
ROOT = Credentials("root-01", "secret-of-root")
STRANGER = Credentials("stranger", "secret-of-alice")
IMPOSTOR = Credentials("alice-1", "not-the-secret")

# Alice may publish and consume orders as the group g, bob may do nothing, root everything.
OWN_FILE = """
[users.alice-1]
secret = "secret-of-alice"
[[users.alice-1.policies]]
resources = ["Topic:orders", "Group:g"]
actions = ["Pub", "Sub"]

[users.bob-0001]
secret = "secret-of-bob"

[users.root-01]
secret = "secret-of-root"
role = "super"
"""
TOKEN = "token-of-alice"
# The same, with a security token of alice.
FILE_WITH_TOKEN = OWN_FILE.replace(
    'secret = "secret-of-alice"', f'secret = "secret-of-alice"\nsecurity_token = "{TOKEN}"'
)

PLAIN_ACL = """
accounts:
- accessKey: alice-1
  secretKey: secret-of-alice
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB|SUB]
  groupPerms: [g=SUB]
- accessKey: bob-0001
  secretKey: secret-of-bob
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- {accessKey: root-01, secretKey: secret-of-root, admin: true}
"""


def write(file: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    file.touch(0o600)
    file.write_text(text)
    return file


def own_source(folder: Path, text: str = OWN_FILE) -> FileSource:
    return FileSource("users file", write(folder / "users.toml", text), own_file.parse)


def plain_source(folder: Path, text: str = PLAIN_ACL) -> FileSource:
    return FileSource("plain_acl", write(folder / "plain_acl.yml", text), plain_acl.parse, plain_acl.PATTERNS)


def authority(folder: Path, text: str = OWN_FILE, *, anonymous: bool = False) -> Authority:
    """An authority with an own file, without delays after failures."""
    return undelayed(Authority([own_source(folder, text)], anonymous=anonymous))


def plain_authority(folder: Path, text: str = PLAIN_ACL) -> Authority:
    return undelayed(Authority([plain_source(folder, text)]))


def undelayed(made: Authority) -> Authority:
    made.failures.fail = lambda host: 0.0  # type: ignore[method-assign]
    return made


def signed(command: RemotingCommand, credentials: Credentials | None) -> RemotingCommand:
    if credentials is not None:
        sign(command, credentials)
    return command


def date_text(at: float | None = None) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))


def grpc_metadata(credentials: Credentials, at: float | None = None, scope: str = "") -> dict[str, str]:
    """The metadata of a signed rpc, as Java's client sends it."""
    date = date_text(at)
    digest = SecretKey(credentials.secret_key).digest(date.encode()).hex().upper()
    header = (
        f"MQv2-HMAC-SHA1 Credential={credentials.access_key}{scope}, SignedHeaders=x-mq-date-time, Signature={digest}"
    )
    return {"authorization": header, "x-mq-date-time": date}


def new_topic(name: str) -> RemotingCommand:
    """Return root's request for a topic with one queue."""
    fields = topic_fields(name, "NORMAL", 1, 1, Permission.READ | Permission.WRITE)
    return signed(request(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields), ROOT)


def guard(made: Authority, **more: Any) -> GrpcGuard:
    return GrpcGuard(made, window=more.pop("window", 300.0), **more)


class FakeTokens:
    """Knows one token."""

    def verify(self, token: str) -> VerifiedToken | None:
        return VerifiedToken("carol", frozenset({"readers"}), time.time() + 60, "key") if token == "valid" else None


def basic(credentials: Credentials) -> str:
    return "Basic " + b64encode(f"{credentials.access_key}:{credentials.secret_key}".encode()).decode()
