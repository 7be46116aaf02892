"""The body and the query of a write in the audit."""

import json

import pytest

from proxy.admin.http.audited import audited_body, audited_query

MASK = "********"


@pytest.mark.parametrize(
    "name",
    ["secret", "secretKey", "SECRET_KEY", "security-token", "passWord", "api_key", "Authorization", "credentials"],
)
def test_values_with_the_name_of_a_secret_are_masked_at_any_depth(name: str) -> None:
    body = json.dumps({"name": "alice", name: "x", "list": [{name: ["x"], "enabled": True}]}).encode()
    assert audited_body(body, 200) == {"name": "alice", name: MASK, "list": [{name: MASK, "enabled": True}]}
    assert audited_query(f"a=b&{name}=x&c", 200) == f"a=b&{name}={MASK}&c"


def test_other_names_keep_their_values() -> None:
    body = {"name": "alice", "keys": ["order-17"], "groups": [], "secret": None, "queues": 8}
    assert audited_body(json.dumps(body).encode(), 409) == body
    assert audited_query("resource=Topic:orders&action=Pub", 200) == "resource=Topic:orders&action=Pub"


@pytest.mark.parametrize("status", [400, 404, 405, 415, 422])
def test_of_an_invalid_request_only_names_remain(status: int) -> None:
    assert audited_body(b'{"name": "alice", "secrt": "x", "list": [{"a": 1}]}', status) == {
        "name": MASK,
        "secrt": MASK,
        "list": [{"a": MASK}],
    }
    assert audited_query("store=file&secrt=x&secrt", status) == f"store={MASK}&secrt={MASK}&secrt"


def test_the_encoded_name_of_a_parameter_is_that_of_a_secret() -> None:
    assert audited_query("s%65cret=x", 200) == f"s%65cret={MASK}"


def test_other_bodies_are_their_size() -> None:
    assert audited_body(b"", 200) is None
    assert audited_body(b'{"secret": "x",}', 422) == "16 bytes, not JSON"
    assert audited_body(b"[" * 65, 422) == "65 bytes"
    assert audited_body(b" " * 5000, 422) == "5000 bytes"
