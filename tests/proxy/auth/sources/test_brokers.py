from collections.abc import Callable, Mapping, Sequence

import orjson
import pytest

from proxy.auth.authority import Authority, Forbidden
from proxy.auth.policy import Role
from proxy.auth.sources.brokers import BrokerSource, directory
from proxy.core.context import Context
from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.broker.settings import BrokerSettings
from remoting import command as commands
from remoting.acl import AclInfo, Decision, PolicyEntry, PolicyType, UserInfo, UserStatus, UserType
from remoting.codes import RequestCode
from remoting.permissions import ResourceKind
from remoting.requests import REQUESTS
from remoting.signature import Credentials, sign
from tests.proxy.auth.sources.brokers import Brokers
from tests.proxy.embedded.memory_store import MemoryStore
from tests.proxy.fakes import Clock, FakeChannel, peer

pytestmark = pytest.mark.anyio

_ALICE = Credentials("alice", "alice-secret")
_INTERVAL = 2.0


def _source(brokers: Brokers) -> tuple[BrokerSource, Clock]:
    clock = Clock()
    return BrokerSource(lambda: brokers, _INTERVAL, clock), clock


def _error(source: BrokerSource) -> str | None:
    return source.error


def _secret_is(source: BrokerSource, secret: str) -> bool:
    user = source.directory.users.get("alice")
    return (
        user is not None and user.key is not None and user.key.digest(b"x") == Credentials("", secret).key.digest(b"x")
    )


async def test_users_are_loaded_after_each_interval() -> None:
    brokers = Brokers(broker_a="one")
    source, clock = _source(brokers)
    assert await source.refresh()
    assert _secret_is(source, "one")
    brokers.secrets["broker-a"] = "two"
    assert not await source.refresh(), "the interval is not over"
    clock.now += _INTERVAL
    assert await source.refresh()
    assert _secret_is(source, "two")
    clock.now += _INTERVAL
    before = source.directory
    assert not await source.refresh()
    assert source.directory is before, "nothing has changed"
    assert [sent.code for sent in brokers.sent] == [RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL] * 3


async def test_last_users_remain_while_brokers_are_away(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(broker_a=None)
    source, clock = _source(brokers)
    assert not await source.refresh()
    assert _error(source) == "never loaded, so that no user is known: broker-a is away"
    brokers.secrets["broker-a"] = "one"
    clock.now += _INTERVAL
    assert await source.refresh()
    assert _error(source) is None
    brokers.secrets["broker-a"] = None
    for _ in range(3):
        clock.now += 10
        assert not await source.refresh()
    assert _error(source) == "those of 30 s ago are in force: broker-a is away"
    assert _secret_is(source, "one")
    assert caplog.text.count("the former remain in force") == 2, "each problem is logged once"
    brokers.secrets["broker-a"] = "one"
    clock.now += _INTERVAL
    assert not await source.refresh()
    assert _error(source) is None
    assert "one" not in [word for record in caplog.records for word in record.getMessage().split()]


@pytest.mark.parametrize("problem", [None, "denied"])
async def test_another_broker_is_asked_while_the_first_does_not_respond(problem: str | None) -> None:
    brokers = Brokers(broker_a=problem, broker_b="b")
    source, clock = _source(brokers)
    await source.refresh()
    assert _secret_is(source, "b")
    brokers.secrets["broker-a"] = "a"
    clock.now += _INTERVAL
    assert not await source.refresh(), "it remains with the broker that has responded"


async def test_invalid_response_keeps_the_last_users() -> None:
    brokers = Brokers(broker_a="one")
    source, clock = _source(brokers)
    await source.refresh()
    brokers.answer = lambda _, __: commands.success(body=b"{")
    clock.now += _INTERVAL
    assert not await source.refresh()
    assert _secret_is(source, "one")
    assert "JSON" in (source.error or "")


def test_users_and_acls_become_users_with_policies(caplog: pytest.LogCaptureFixture) -> None:
    users = [
        UserInfo("root", "r", UserType.SUPER, UserStatus.ENABLE),
        UserInfo("alice", "a", UserType.NORMAL, UserStatus.DISABLE),
    ]
    acls = [
        AclInfo(
            "User:alice",
            {
                PolicyType.CUSTOM: (
                    PolicyEntry("Topic:orders*", ("Pub", "Sub"), Decision.DENY, ("10.0.0.0/8",)),
                    PolicyEntry("Namespace:n", ("All",), Decision.ALLOW),
                    PolicyEntry("*", ("All",), Decision.ALLOW),
                ),
                PolicyType.DEFAULT: (PolicyEntry("Group:*", ("Sub",), Decision.ALLOW),),
            },
        ),
        AclInfo("Robot:x", {PolicyType.CUSTOM: (PolicyEntry("*", ("All",), Decision.ALLOW),)}),
    ]
    found = directory(users, acls).users
    assert (found["root"].role, found["root"].policies) == (Role.SUPER, ())
    assert (found["alice"].role, found["alice"].enabled) == (Role.NORMAL, False)
    assert [(str(policy), policy.fallback) for policy in found["alice"].policies] == [
        ("deny Pub,Sub on Topic:orders* from 10.0.0.0/8", False),
        ("allow Any on *", False),
        ("allow Sub on Group:*", True),
    ]
    assert "Namespace" in caplog.text


def test_a_blank_in_an_acl_is_part_of_the_name() -> None:
    entries = (
        PolicyEntry("Topic:orders ", ("Pub",), Decision.ALLOW),
        PolicyEntry("Topic:bills ", ("Pub",), Decision.DENY),
        PolicyEntry("Topic:*", ("Pub",), Decision.ALLOW),
    )
    acls = [AclInfo("User:alice", {PolicyType.CUSTOM: entries})]
    policies = directory([UserInfo("alice", "a")], acls).users["alice"].policies
    topics = ("orders", "bills")
    assert [[policy.pattern.covers(ResourceKind.TOPIC, name) for policy in policies] for name in topics] == [
        [False, False, True]
    ] * 2


def _entry(resource: str, decision: str = "Allow", **more: object) -> dict[str, object]:
    return {"resource": resource, "actions": ["Pub"], "decision": decision, **more}


async def _loaded(brokers: Brokers, users: Sequence[object], acls: Mapping[str, Sequence[object]]) -> BrokerSource:
    bodies = {
        RequestCode.AUTH_LIST_USER: users,
        RequestCode.AUTH_LIST_ACL: [
            {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
            for name, entries in acls.items()
        ],
    }
    brokers.answer = lambda _, command: commands.success(body=orjson.dumps(bodies[RequestCode(command.code)]))
    source, _ = _source(brokers)
    assert await source.refresh()
    return source


@pytest.mark.parametrize("resource", ["Topic:", "Topic", "Unknown:foo", "", "Topic:a*b", " Topic:a"])
async def test_an_unreadable_entry_that_permits_is_left_out(resource: str, caplog: pytest.LogCaptureFixture) -> None:
    entries = [_entry(resource), _entry("Topic:orders")]
    users = [{"username": name, "password": "secret"} for name in ("alice", "bob")]
    source = await _loaded(Brokers(broker_a="one"), users, {"bob": entries, "alice": [_entry("Topic:bills")]})
    found = source.directory.users
    assert {
        name: (user.enabled, [str(policy.pattern) for policy in user.policies]) for name, user in found.items()
    } == {
        "alice": (True, ["Topic:bills"]),
        "bob": (True, ["Topic:orders"]),
    }
    assert "User:bob permits nothing" in caplog.text


@pytest.mark.parametrize(
    "entry",
    [
        _entry("Topic:", "Deny"),
        _entry("Unknown:foo", "Deny"),
        _entry("Topic:a*b ", "Deny"),
        _entry("Topic:orders", "Maybe"),
        _entry("Topic:orders", "Deny", sourceIps=["everywhere"]),
        _entry("Topic:orders", "Deny", actions=["Fly"]),
        5,
    ],
    ids=str,
)
async def test_an_unreadable_entry_that_may_deny_disables_the_user(entry: object) -> None:
    users = [{"username": name, "password": "secret"} for name in ("alice", "bob")]
    acls: dict[str, Sequence[object]] = {"bob": [_entry("Topic:*"), entry], "alice": [_entry("Topic:bills")]}
    source = await _loaded(Brokers(broker_a="one"), users, acls)
    assert {name: user.enabled for name, user in source.directory.users.items()} == {"alice": True, "bob": False}


async def test_an_unreadable_user_is_disabled() -> None:
    users = [{"username": "alice", "password": "secret"}, {"username": "bob", "password": 5}, {"username": 5}, 7]
    source = await _loaded(Brokers(broker_a="one"), users, {})
    assert {name: user.enabled for name, user in source.directory.users.items()} == {"alice": True, "bob": False}


async def test_users_of_the_embedded_broker_are_authenticated_and_revoked() -> None:
    now = 1_700_000_000_000
    backend = EmbeddedBackend(BrokerSettings(), MemoryStore(lambda: now), lambda *_: None, lambda: now)
    clock = Clock()
    authority = Authority([BrokerSource(lambda: backend, _INTERVAL, clock)])
    users = backend.broker.users
    users.put(UserInfo("alice", "alice-secret", UserType.NORMAL, UserStatus.ENABLE))
    allow = PolicyEntry("Topic:orders", ("Pub",), Decision.ALLOW)
    users.put_acl(AclInfo("User:alice", {PolicyType.CUSTOM: (allow,)}))
    await authority.refresh()
    decide = _decision(authority)
    decide()
    users.put_acl(AclInfo("User:alice", {}))
    clock.now += _INTERVAL
    await authority.refresh()
    with pytest.raises(Forbidden):
        decide()


def _decision(authority: Authority) -> Callable[[], None]:
    """Return a decision about a send of alice."""
    command = commands.request(RequestCode.SEND_MESSAGE_V2, {"b": "orders"})
    sign(command, _ALICE)

    def decide() -> None:
        channel = FakeChannel(peer())
        channel.principal = authority.of_command(command, channel.peer)
        authority(Context(channel, command, REQUESTS[command.code], 0.0))

    return decide
