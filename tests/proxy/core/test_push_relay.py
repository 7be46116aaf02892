import pytest

from proxy.core.push_relay import relay
from proxy.core.unanswered import CLIENT_TIMEOUT
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.messages import StoredMessage
from remoting.outcomes import Reply
from remoting.signature import Credentials, sign
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio

CHECK = RequestCode.CHECK_TRANSACTION_STATE
HALF = messages.encode_message(StoredMessage(topic="orders", body=b"half"))


class Client(FakeChannel):
    """A channel that records timeouts as well."""

    timeout: float | None = None

    def request(self, command: RemotingCommand, timeout: float) -> Reply:
        self.timeout = timeout
        return super().request(command, timeout)


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    ],
)
async def test_relay_returns_the_clients_reply(code: int) -> None:
    client = Client()
    client.session.client_id = "c1"
    command = request(code, b"body", consumerGroup="g")
    reply = relay(client, command)
    assert reply is not None
    assert (await reply).fields == {"answered by": "c1"}
    assert (client.requests, client.oneways, client.timeout) == ([command], [], CLIENT_TIMEOUT)
    assert (command.fields, command.body) == ({"consumerGroup": "g"}, b"body")


@pytest.mark.parametrize("code", [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET])
async def test_relay_sends_oneway_requests(code: int) -> None:
    client = Client()
    command = request(code, b"", True, consumerGroup="g")
    assert relay(client, command) is None
    assert (client.requests, client.oneways) == ([], [command])


@pytest.mark.parametrize("oneway", [True, False])
@pytest.mark.parametrize("told", [{"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, {}])
async def test_relay_sets_the_real_topic_of_a_transaction_check(oneway: bool, told: dict[str, str]) -> None:
    client = Client()
    relay(client, request(CHECK, HALF, oneway, transactionId="T", **told))
    (command,) = client.oneways if oneway else client.requests
    assert command.fields == {"transactionId": "T", "topic": "orders"}
    assert command.body == HALF


async def test_relay_keeps_a_transaction_check_without_a_message() -> None:
    client = Client()
    relay(client, request(CHECK, b"", True, topic="half"))
    assert [command.fields for command in client.oneways] == [{"topic": "half"}]


async def test_relay_rejects_a_transaction_check_with_an_undecodable_message() -> None:
    client = Client()
    with pytest.raises(BodyError):
        relay(client, request(CHECK, HALF[:-1], True))
    assert client.oneways == []


@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY])
async def test_relay_removes_the_signature_of_the_tool(code: int) -> None:
    """Brokers copy it into the request to the client, which could use it for other requests."""
    client = Client()
    command = request(code, consumerGroup="g", clientId="c1")
    sign(command, Credentials("admin", "secret", "token"))
    relay(client, command)
    assert [command.fields for command in client.requests] == [{"consumerGroup": "g", "clientId": "c1"}]
