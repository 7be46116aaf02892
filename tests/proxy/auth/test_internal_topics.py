"""Topics of brokers and proxies, which have the messages and memberships of everyone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.auth.authority import Authority, Forbidden
from proxy.auth.policy import Directory
from proxy.auth.sources.brokers import directory
from proxy.auth.sources.source import Source
from proxy.auth.stores.store import explain
from remoting import properties
from remoting.acl import AclInfo, Decision, PolicyEntry, PolicyType, UserInfo, UserStatus, UserType
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.permissions import ResourceKind
from remoting.requests import RequestSpec
from remoting.signature import Credentials
from tests.proxy.auth.test_authority import DATA, ask, command
from tests.proxy.auth.test_replica import replica
from tests.proxy.auth.users import OWN_FILE, ROOT, new_topic, own_source, plain_source, signed, undelayed, write
from tests.proxy.messages import heartbeat
from tests.proxy.replica import Client

pytestmark = pytest.mark.anyio

STAR = Credentials("star-01", "secret-of-star")
# All topics but one.
_OWN = """
[users.star-01]
secret = "secret-of-star"
[[users.star-01.policies]]
resources = ["Topic:*", "Group:*"]
actions = "All"
[[users.star-01.policies]]
resources = "Topic:secret"
actions = "All"
effect = "deny"
"""
_PLAIN = """
accounts:
- {accessKey: star-01, secretKey: secret-of-star, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""
_SYNC = {"topic": "members", "renewals": "renewals"}


@dataclass
class _Brokers:
    """Users that brokers keep."""

    directory: Directory
    name: str = "brokers"
    error: str | None = None

    async def refresh(self) -> bool:
        return False


def _brokers(_: Path) -> Source:
    users = [UserInfo("star-01", "secret-of-star", UserType.NORMAL, UserStatus.ENABLE)]
    entry = PolicyEntry("*", ("All",), Decision.ALLOW)
    return _Brokers(directory(users, [AclInfo("User:star-01", {PolicyType.CUSTOM: (entry,)})]))


_SOURCES: dict[str, Callable[[Path], Source]] = {
    "own file": lambda folder: own_source(folder, _OWN),
    "plain_acl": lambda folder: plain_source(folder, _PLAIN),
    "brokers": _brokers,
}


def _topic_fields(spec: RequestSpec) -> list[str]:
    needs = [] if spec.needs is None else spec.needs.fields
    return [need.field for need in needs if need.kind is ResourceKind.TOPIC and need.field is not None]


@pytest.mark.parametrize("source", _SOURCES)
@pytest.mark.parametrize("topic", ["rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "members"])
def test_a_permission_on_all_topics_is_none_on_internal_ones(tmp_path: Path, source: str, topic: str) -> None:
    made = undelayed(Authority([_SOURCES[source](tmp_path)], sync_topics=frozenset(_SYNC.values())))
    for spec in DATA:
        for field in _topic_fields(spec):
            ask(made, signed(command(spec.code), STAR))
            with pytest.raises(Forbidden, match=f"Topic:{topic}"):
                ask(made, signed(command(spec.code, **{field: topic}), STAR))
    ask(made, signed(heartbeat("c1", {"g": ["orders"]}), STAR))
    with pytest.raises(Forbidden):
        ask(made, signed(heartbeat("c1", {"g": [topic]}), STAR))
    assert not explain(made.sources, "star-01", "Pub", f"Topic:{topic}", "10.0.0.1", made.sync_topics).allowed


def _send(topic: str, **pairs: str) -> RemotingCommand:
    sent = command(RequestCode.SEND_MESSAGE_V2, b=topic, e="0", i=properties.encode(pairs), n="")
    sent.body = b"body"
    return sent


@pytest.mark.parametrize("topic", ["members", "renewals"])
async def test_the_configured_sync_topics_are_internal(tmp_path: Path, topic: str) -> None:
    async with replica(tmp_path, auth={"users": _users(tmp_path)}, sync=_SYNC) as app:
        client = await Client.connect(app)
        assert (await client.ask(new_topic(topic))).code == ResponseCode.SUCCESS
        assert (await client.ask(signed(_send(topic), STAR))).code == ResponseCode.NO_PERMISSION
        assert (await client.ask(signed(_send(topic), ROOT))).code == ResponseCode.SUCCESS
        await client.close()


def _users(folder: Path) -> Path:
    return write(folder / "star.toml", OWN_FILE + _OWN)
