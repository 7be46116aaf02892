from collections.abc import Callable

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
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable
from remoting.requests import REQUESTS
from remoting.signature import Credentials, sign
from tests.proxy.embedded.memory_store import MemoryStore
from tests.proxy.fakes import Clock, FakeBackend, FakeChannel, peer

pytestmark = pytest.mark.anyio

_ALICE = Credentials("alice", "alice-secret")
_INTERVAL = 2.0


class Brokers(FakeBackend):
    """Brokers with one user; `secrets` has the secret at each broker, None for a broker that is away."""

    def __init__(self, **secrets: str | None) -> None:
        super().__init__(names=[name.replace("_", "-") for name in secrets], answer=self._answer)
        self.secrets = {name.replace("_", "-"): secret for name, secret in secrets.items()}

    def _answer(self, broker: str, command: RemotingCommand) -> RemotingCommand | Exception:
        secret = self.secrets[broker]
        if secret is None:
            return ServiceUnavailable(f"{broker} is away")
        if secret == "denied":
            return commands.response(ResponseCode.NO_PERMISSION, remark="no matched policies.")
        if command.code == RequestCode.AUTH_LIST_ACL:
            return commands.success()
        user = {"username": "alice", "password": secret, "userType": "Normal", "userStatus": "enable"}
        return commands.success(body=orjson.dumps([user]))


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
