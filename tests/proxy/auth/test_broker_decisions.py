import pytest

from proxy.auth.authority import Authority, NotAuthenticated
from proxy.auth.broker_decisions import BrokerDecisions
from proxy.core.context import Context
from proxy.core.principal import UNAUTHENTICATED
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeChannel


@pytest.mark.parametrize(
    ("code", "signed", "grpc", "denied"),
    [
        (RequestCode.SEND_MESSAGE_V2, True, False, False),
        (RequestCode.SEND_MESSAGE_V2, False, False, True),
        (RequestCode.SEND_MESSAGE_V2, True, True, True),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, True, False, True),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, True, False, True),
    ],
    ids=["signed", "unsigned", "gRPC", "a tool's, for name servers", "a tool's, for a client"],
)
def test_only_signed_requests_for_brokers_are_left_to_them(
    code: RequestCode, signed: bool, grpc: bool, denied: bool
) -> None:
    command = commands.request(code, {"Signature": "s"} if signed else {})
    channel = FakeChannel(principal=UNAUTHENTICATED, signs=not grpc)
    context = Context(channel, command, REQUESTS[code], 0.0)
    decide = BrokerDecisions(Authority([]))
    if denied:
        with pytest.raises(NotAuthenticated):
            decide(context)
    else:
        decide(context)
