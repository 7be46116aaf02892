"""Users and ACLs on the wire; the bodies are those of a broker of RocketMQ 5.4.0."""

import orjson
import pytest
from hypothesis import given

from remoting import acl
from remoting.acl import AclInfo, Decision, PolicyEntry, PolicyType, UserInfo, UserStatus, UserType
from remoting.errors import BodyError
from tests.remoting.json_values import JSON

_USERS = (
    b'[{"password":"admin-secret-1","userStatus":"enable","userType":"Super","username":"admin"},'
    b'{"password":"alice-secret-1","userStatus":"disable","userType":"Normal","username":"alice"}]'
)
_ACL = (
    b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:orders"},'
    b'{"actions":["All"],"decision":"Deny","resource":"Group:*","sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],'
    b'"subject":"User:alice"}'
)
_ALICE = AclInfo(
    "User:alice",
    {
        PolicyType.CUSTOM: (
            PolicyEntry("Topic:orders", ("Pub", "Sub"), Decision.ALLOW),
            PolicyEntry("Group:*", ("All",), Decision.DENY, ("10.0.0.0/8",)),
        )
    },
)


def test_users_of_a_broker_are_parsed() -> None:
    admin = UserInfo("admin", "admin-secret-1", UserType.SUPER, UserStatus.ENABLE)
    alice = UserInfo("alice", "alice-secret-1", UserType.NORMAL, UserStatus.DISABLE)
    assert [UserInfo.of(item) for item in orjson.loads(_USERS)] == [admin, alice]
    assert orjson.loads(acl.encode([admin.to_json(), alice.to_json()])) == orjson.loads(_USERS)
    assert "secret" not in repr(admin)


def test_acls_of_a_broker_are_parsed() -> None:
    assert AclInfo.parse(_ACL) == _ALICE
    assert _ALICE.username == "alice"
    assert orjson.loads(acl.encode(_ALICE.to_json())) == orjson.loads(_ACL)


@pytest.mark.parametrize(
    ("text", "resource"),
    [("*", "*"), ("topic:orders", "Topic:orders"), ("GROUP:a*b*", "Group:a*"), ("Cluster:*", "Cluster:*")],
)
def test_resources_have_the_usual_spelling(text: str, resource: str) -> None:
    assert acl.normalized_resource(text) == resource


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"5",
        b'{"username":5}',
        b'{"policies":5}',
        b'{"policies":[5]}',
        b'{"policies":[{"entries":[{"resource":"Topic:a","decision":"Maybe"}]}]}',
        b'{"policies":[{"entries":[{"resource":"orders","decision":"Allow"}]}]}',
        b'{"policies":[{"entries":[{"resource":"Topic:","decision":"Allow"}]}]}',
        b'{"policies":[{"entries":[{"resource":"Topic:a","decision":"Allow","actions":5}]}]}',
    ],
)
def test_invalid_body_is_rejected(body: bytes) -> None:
    with pytest.raises(BodyError):
        (UserInfo if b"username" in body else AclInfo).parse(body)


@given(JSON)
def test_any_json_is_parsed_or_rejected(data: object) -> None:
    body = orjson.dumps(data)
    for parse in (UserInfo.parse, AclInfo.parse):
        try:
            parse(body)
        except BodyError:
            continue
