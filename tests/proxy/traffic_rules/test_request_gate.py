"""Deferred service of requests, without a proxy, and send-backs, with one."""

from pathlib import Path

import pytest

from proxy.core.context import Context
from proxy.core.messaging import completed
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.mirroring import MirrorSender
from proxy.traffic_rules.parsing import parse
from proxy.traffic_rules.request_gate import RequestGate
from remoting import command as commands
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.delayed_reply import DelayedReply
from remoting.errors import ClientGone, NotPermitted
from remoting.messages import StoredMessage, encode_message
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeBackend, FakeChannel, stage
from tests.proxy.messages import complete, request
from tests.proxy.traffic_rules.replica import run_replica

pytestmark = pytest.mark.anyio

SEND = REQUESTS[RequestCode.SEND_MESSAGE_V2]
SLOW = '[[rule]]\nname = "slow"\nkind = "fault"\ndelay = 0.05\nmatch.topics = ["orders"]'


@pytest.mark.parametrize("gone", [False, True])
async def test_a_delayed_request_is_served_unless_its_client_has_gone(gone: bool) -> None:
    on = stage()
    gate = RequestGate(on.core, MirrorSender(), lambda rule, context: None)
    gate.evaluator = Evaluator(parse(SLOW))
    channel = FakeChannel()
    context = Context(channel, complete(SEND, b="orders", n="broker-a"), SEND, 0.0)
    served = []
    reply = gate.handle(context, lambda context: served.append(context))
    assert isinstance(reply, DelayedReply)
    assert reply.sent_at is None
    channel.closed = gone
    if gone:
        with pytest.raises(ClientGone):
            await reply
    else:
        await reply
    assert served == ([] if gone else [context])


@pytest.mark.parametrize("origin", [{}, {"originTopic": "other"}])
@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ('[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["orders"]', ResponseCode.NO_PERMISSION),
        ('[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["other"]', ResponseCode.SUCCESS),
        (
            '[[rule]]\nname = "a"\nkind = "allow"\nmatch.topics = ["other"]\n'
            '[[rule]]\nname = "d"\nkind = "deny"\nmatch.groups = ["g"]',
            ResponseCode.NO_PERMISSION,
        ),
    ],
)
async def test_a_send_back_is_matched_by_the_topic_of_its_message(
    tmp_path: Path, rules: str, code: int, origin: dict[str, str]
) -> None:
    async with run_replica(tmp_path, "rule = []") as replica, replica.remoting() as client:
        await replica.create("orders", "other")
        sent = await client.send("orders", b"x", {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        await client.heartbeat(consumers={"g": ["other"]})
        first = int(sent.fields["msgId"][16:], 16)
        fields = {"group": "g", "delayLevel": 1, **origin}

        async def send_back(offset: int) -> int:
            reply = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, client.named({**fields, "offset": offset}))
            return reply.code

        await replica.apply(rules)
        assert await send_back(first) == code
        # Also when it is sent back again, from the retry topic.
        await replica.apply("rule = []")
        assert await send_back(first) == ResponseCode.SUCCESS
        *_, retry = await client.pull("%RETRY%g", "g")
        await replica.apply(rules)
        assert await send_back(retry.commit_log_offset) == code


@pytest.mark.parametrize(
    ("rules", "served"),
    [
        ('[[rule]]\nname = "l"\nkind = "limit"\nrequests = 1000\nmatch.topics = ["orders"]\n{codes}', True),
        ('[[rule]]\nname = "d"\nkind = "deny"\nmatch.topics = ["other"]\n{codes}', False),
    ],
)
async def test_a_message_whose_queue_is_gone_is_sent_back_unless_topics_may_be_denied(rules: str, served: bool) -> None:
    message = StoredMessage(topic="orders", commit_log_offset=1)

    def answer(_: str, sent: RemotingCommand) -> RemotingCommand:
        if sent.code == RequestCode.PULL_MESSAGE:
            return commands.response(ResponseCode.TOPIC_NOT_EXIST)
        return commands.success(body=encode_message(message))

    core = stage(FakeBackend(answer=answer)).core
    gate = RequestGate(core, MirrorSender(), lambda *_: None)
    gate.evaluator = Evaluator(parse(rules.format(codes='match.requests = ["CONSUMER_SEND_MSG_BACK"]')))
    sent = request(RequestCode.CONSUMER_SEND_MSG_BACK, offset=1, group="g", originTopic="orders", bname="broker-a")
    handling = gate.handle(
        Context(FakeChannel(), sent, REQUESTS[sent.code], 0.0), lambda _: completed(commands.success())
    )
    assert handling is not None
    if served:
        assert (await handling).code == ResponseCode.SUCCESS
    else:
        with pytest.raises(NotPermitted):
            await handling
