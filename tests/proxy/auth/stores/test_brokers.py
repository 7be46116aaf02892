"""The store of the brokers' users and policies."""

from collections.abc import Mapping

import orjson
import pytest
from hypothesis import given

from proxy.auth.sources.broker_lists import read_acls, read_users
from proxy.auth.stores.brokers import BrokersStore
from remoting.codes import RequestCode
from remoting.errors import BodyError
from tests.remoting.json_values import JSON

pytestmark = pytest.mark.anyio


def _entry(resource: str, decision: str = "Allow") -> dict[str, object]:
    return {"resource": resource, "actions": ["Pub"], "sourceIps": [], "decision": decision}


async def test_entries_that_cannot_be_read_do_not_hide_the_others() -> None:
    users = [{"username": name, "password": "secret"} for name in ("alice", "bob")]
    entries = {"alice": [_entry("Topic:"), _entry("Topic:orders")], "bob": [_entry("Unknown:a", "Deny")]}
    acls = [
        {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": each}]}
        for name, each in entries.items()
    ]

    async def ask(code: RequestCode, fields: Mapping[str, str], body: bytes) -> bytes:
        return orjson.dumps({RequestCode.AUTH_LIST_ACL: acls, RequestCode.AUTH_LIST_USER: users}.get(code, users[0]))

    store = BrokersStore(ask)
    assert [(user.user, user.enabled, user.policies) for user in await store.users()] == [
        ("alice", True, 1),
        ("bob", False, 0),
    ]
    assert [policy.resources for policy in await store.policies()] == [("Topic:orders",)]
    directory = await store.directory()
    assert {name: user.enabled for name, user in directory.users.items()} == {"alice": True, "bob": False}


def test_no_body_is_an_empty_list() -> None:
    assert (read_users(b""), read_acls(b"").infos) == ([], [])


@given(JSON)
def test_any_json_is_read_or_rejected(data: object) -> None:
    body = orjson.dumps(data)
    for read in (read_users, read_acls):
        try:
            read(body)
        except BodyError:
            continue
