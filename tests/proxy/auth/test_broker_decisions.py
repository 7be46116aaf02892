import pytest

from proxy.auth.authority import Authority, NotAuthenticated
from proxy.auth.broker_decisions import BrokerDecisions
from proxy.core.context import Context
from proxy.core.principal import UNAUTHENTICATED, Method, Principal
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


def test_unknown_senders_are_rejected_where_names_are_chosen_by_user() -> None:
    command = commands.request(RequestCode.SEND_MESSAGE_V2, {"Signature": "s"})
    for principal, denied in ((UNAUTHENTICATED, True), (Principal("alice", Method.SIGNATURE), False)):
        context = Context(FakeChannel(principal=principal), command, REQUESTS[RequestCode.SEND_MESSAGE_V2], 0.0)
        BrokerDecisions(Authority([]), lambda: False)(context)
        decide = BrokerDecisions(Authority([]), lambda: True)
        if denied:
            with pytest.raises(NotAuthenticated):
                decide(context)
        else:
            decide(context)
