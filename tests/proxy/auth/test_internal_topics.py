"""Topics of brokers and proxies, which have the messages and memberships of everyone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.auth.authority import Authority, Forbidden
from proxy.auth.policy import Directory
from proxy.auth.sources.brokers import directory
from proxy.auth.sources.source import Source
from proxy.auth.stored_messages import StoredMessages
from proxy.auth.stores.store import explain
from proxy.core.channel import Channel
from proxy.core.principal import Method
from proxy.core.reply_recipients import ReplyRecipients
from remoting import messages, properties
from remoting.acl import AclInfo, Decision, PolicyEntry, PolicyType, UserInfo, UserStatus, UserType
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.permissions import ResourceKind
from remoting.requests import RequestSpec
from remoting.signature import Credentials
from tests.proxy.auth.replica import replica
from tests.proxy.auth.requests import DATA, ask, command
from tests.proxy.auth.users import (
    OWN_FILE,
    ROOT,
    authority,
    new_topic,
    own_source,
    plain_source,
    signed,
    undelayed,
    write,
)
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import heartbeat, request
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


def test_a_batch_for_unknown_queues_needs_more_than_all_topics(tmp_path: Path) -> None:
    """One of them may be that of an internal topic."""
    made = authority(tmp_path, OWN_FILE + _OWN)
    batch = command(RequestCode.SEND_BATCH_MESSAGE, m="true")
    ask(made, signed(batch, STAR))
    dispatch = properties.encode({"INNER_MULTI_DISPATCH": "members", "INNER_MULTI_QUEUE_OFFSET": "0"})
    batch.body = messages.encode_batch([messages.BatchMessage(0, b"x", dispatch)])
    with pytest.raises(Forbidden, match="Update on Cluster"):
        ask(made, signed(batch, STAR))
    ask(made, signed(batch, ROOT))


@pytest.mark.parametrize("topic", ["members", "renewals"])
async def test_the_configured_sync_topics_are_internal(tmp_path: Path, topic: str) -> None:
    async with replica(tmp_path, auth={"users": _users(tmp_path)}, sync=_SYNC) as app:
        client = await Client.connect(app)
        assert (await client.ask(new_topic(topic))).code == ResponseCode.SUCCESS
        assert (await client.ask(signed(_send(topic), STAR))).code == ResponseCode.NO_PERMISSION
        assert (await client.ask(signed(_send(topic), ROOT))).code == ResponseCode.SUCCESS
        await client.close()


@pytest.mark.parametrize(
    "kept",
    [{"TIMER_DELAY_SEC": "300"}, {"DELAY": "10"}, {"TRAN_MSG": "true", "PGROUP": "p"}],
    ids=lambda kept: min(kept),
)
async def test_delayed_and_half_messages_have_the_permissions_of_their_topic(
    tmp_path: Path, kept: dict[str, str]
) -> None:
    async with replica(tmp_path, auth={"users": _users(tmp_path)}) as app:
        client = await Client.connect(app)
        for topic, code in (("mine", ResponseCode.SUCCESS), ("secret", ResponseCode.NO_PERMISSION)):
            assert (await client.ask(new_topic(topic))).code == ResponseCode.SUCCESS
            sent = await client.ask(signed(_send(topic, UNIQ_KEY="A", **kept), ROOT))
            assert sent.code == ResponseCode.SUCCESS, sent.remark
            offset = int(sent.fields["msgId"][-16:], 16)
            view = request(RequestCode.VIEW_MESSAGE_BY_ID, topic="mine", offset=offset)
            reply = await client.ask(signed(view, STAR))
            assert (reply.code, bool(reply.body)) == (code, code == ResponseCode.SUCCESS)
            back = request(
                RequestCode.CONSUMER_SEND_MSG_BACK, group="g", offset=offset, delayLevel=0, originTopic="mine"
            )
            assert (await client.ask(signed(back, STAR))).code == code
        await client.close()


@pytest.mark.parametrize(("topic", "received"), [("mine", True), ("secret", False)])
async def test_delayed_messages_of_other_topics_are_not_pushed(tmp_path: Path, topic: str, received: bool) -> None:
    made = authority(tmp_path, _OWN)
    relayed: list[RemotingCommand] = []

    def relay(_: Channel, command: RemotingCommand) -> None:
        relayed.append(command)

    kept = messages.StoredMessage(topic="rmq_sys_wheel_timer", properties=properties.encode({"REAL_TOPIC": topic}))
    consume = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, messages.encode_message(kept), consumerGroup="g")
    channel = FakeChannel(principal=made.principal("star-01", Method.SIGNATURE))
    StoredMessages(made, ReplyRecipients()).check_push(relay)(channel, consume)
    assert bool(relayed) is received


def _users(folder: Path) -> Path:
    return write(folder / "star.toml", OWN_FILE + _OWN)
