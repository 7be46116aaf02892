from typing import Any

import orjson
import pytest

from remoting.broker_requests import BROKER_REQUESTS
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.requests import Action
from tests.proxy.embedded.broker_harness import BrokerHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def broker() -> BrokerHarness:
    harness = BrokerHarness()
    harness.broker.users.add_super_user("admin", "admin-secret")
    return harness


def _put_user(
    broker: BrokerHarness, name: str, code: RequestCode = RequestCode.AUTH_CREATE_USER, **data: str
) -> RemotingCommand:
    return broker.ask(code, {"username": name}, orjson.dumps(data))


def _users(broker: BrokerHarness, **fields: str) -> dict[str, Any]:
    body = broker.get(RequestCode.AUTH_LIST_USER, fields).body
    return {item["username"]: item for item in orjson.loads(body or b"[]")}


def _grant(
    broker: BrokerHarness,
    user: str,
    *entries: tuple[str, list[str]],
    code: RequestCode = RequestCode.AUTH_CREATE_ACL,
    **more: Any,
) -> Any:
    items = [{"resource": resource, "actions": actions, "decision": "Allow", **more} for resource, actions in entries]
    body = {"subject": f"User:{user}", "policies": [{"policyType": "Custom", "entries": items}]}
    return broker.ask(code, {"subject": f"User:{user}"}, orjson.dumps(body))


def _entries(broker: BrokerHarness, user: str) -> dict[str, list[str]]:
    body = broker.get(RequestCode.AUTH_GET_ACL, {"subject": f"User:{user}"}).body
    policies = orjson.loads(body)["policies"] if body else []
    return {entry["resource"]: entry["actions"] for policy in policies for entry in policy["entries"]}


async def test_users_are_created_changed_and_deleted(broker: BrokerHarness) -> None:
    assert _put_user(broker, "alice", password="one").code == ResponseCode.SUCCESS
    assert _put_user(broker, "alice", password="two").remark == "The user is existed"
    alice = {"username": "alice", "password": "one", "userType": "Normal", "userStatus": "enable"}
    assert orjson.loads(broker.get(RequestCode.AUTH_GET_USER, {"username": "alice"}).body) == alice
    _put_user(broker, "alice", RequestCode.AUTH_UPDATE_USER, userStatus="disable")
    assert _users(broker)["alice"] == {**alice, "userStatus": "disable"}
    _put_user(broker, "alice", RequestCode.AUTH_UPDATE_USER, password="three", userStatus="enable")
    assert _users(broker, filter="li") == {"alice": {**alice, "password": "three"}}
    assert _grant(broker, "alice", ("Topic:t", ["Pub"])).code == ResponseCode.SUCCESS
    for _ in range(2):
        broker.get(RequestCode.AUTH_DELETE_USER, {"username": "alice"})
    assert _users(broker).keys() == {"admin"}
    assert broker.get(RequestCode.AUTH_GET_USER, {"username": "alice"}).body == b""
    assert broker.get(RequestCode.AUTH_LIST_ACL).body == b""


async def test_users_and_acls_survive_a_restart(broker: BrokerHarness) -> None:
    _put_user(broker, "alice", password="one")
    _grant(broker, "alice", ("Topic:orders", ["Pub", "Sub"]))
    broker.restart()
    assert _users(broker)["alice"]["password"] == "one"
    assert _entries(broker, "alice") == {"Topic:orders": ["Pub", "Sub"]}
    broker.broker.users.add_super_user("admin", "another secret")
    assert _users(broker)["admin"]["password"] == "admin-secret", "the setting is for the first start only"


async def test_acl_entries_are_added_replaced_and_deleted(broker: BrokerHarness) -> None:
    _put_user(broker, "alice", password="one")
    _grant(broker, "alice", ("topic:orders", ["Pub"]), ("Group:*", ["Sub"]))
    _grant(broker, "alice", ("Topic:orders", ["sub", "GET"]), code=RequestCode.AUTH_UPDATE_ACL)
    assert _entries(broker, "alice") == {"Topic:orders": ["Sub", "Get"], "Group:*": ["Sub"]}
    listed = orjson.loads(
        broker.get(RequestCode.AUTH_LIST_ACL, {"subjectFilter": "lic", "resourceFilter": "Group"}).body
    )
    assert [entry["resource"] for item in listed for entry in item["policies"][0]["entries"]] == ["Group:*"]
    broker.get(RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice", "resource": "Group:*"})
    assert _entries(broker, "alice") == {"Topic:orders": ["Sub", "Get"]}
    broker.get(RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice"})
    assert _entries(broker, "alice") == {}
    assert broker.ask(RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice"}).remark == "The acl is not exist."


@pytest.mark.parametrize(
    ("entry", "more", "remark"),
    [
        (("Topic:t", []), {}, "The actions is empty."),
        (("Topic:t", ["Any"]), {}, "The actions can not be Any."),
        (("Topic:t", ["Pub"]), {"sourceIps": ["10.0.0.300"]}, "The source ip is invalid."),
        (("Topic:t", ["Pub"]), {"decision": "Perhaps"}, "The decision is null or illegal."),
        (("t", ["Pub"]), {}, "The resource is null."),
    ],
)
async def test_invalid_acl_entry_is_refused(broker: BrokerHarness, entry: Any, more: Any, remark: str) -> None:
    _put_user(broker, "alice", password="one")
    reply = _grant(broker, "alice", entry, **more)
    assert (reply.code != ResponseCode.SUCCESS, reply.remark) == (True, remark)
    assert _entries(broker, "alice") == {}


async def test_unknown_users_and_subjects_are_refused(broker: BrokerHarness) -> None:
    assert _put_user(broker, "bob", RequestCode.AUTH_UPDATE_USER, password="x").remark == "The user is not exist"
    assert _put_user(broker, " ", password="x").remark == "The username is blank"
    assert _put_user(broker, "bob", password=" ").remark == "password can not be blank"
    assert _put_user(broker, "b" * 129, password="x").code == ResponseCode.INVALID_PARAMETER
    assert _grant(broker, "bob", ("Topic:t", ["Pub"])).remark == "The subject is not exist."
    for code in (RequestCode.AUTH_GET_ACL, RequestCode.AUTH_DELETE_ACL):
        assert broker.ask(code, {"subject": "User:bob"}).remark == "The subject is not exist."
        assert broker.ask(code, {"subject": "Robot:bob"}).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("code", [code for code in RequestCode if code.name.startswith("AUTH_")])
def test_tools_that_may_only_read_get_no_passwords(code: int) -> None:
    row = BROKER_REQUESTS[code]
    assert row.tool
    assert (row.action is Action.GET) == (code in (RequestCode.AUTH_GET_ACL, RequestCode.AUTH_LIST_ACL))
