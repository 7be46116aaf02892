"""Deferred service of requests, without a proxy."""

import pytest

from proxy.core.context import Context
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.mirroring import MirrorSender
from proxy.traffic_rules.parsing import parse
from proxy.traffic_rules.request_gate import RequestGate
from remoting.codes import RequestCode
from remoting.delayed_reply import DelayedReply
from remoting.errors import ClientGone
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeChannel, stage
from tests.proxy.messages import complete

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
