import pytest

from proxy.backends.cluster.push_recipients import RECIPIENTS
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, UnsupportedRequest
from remoting.requests import REQUESTS, Direction
from tests.proxy.backends.cluster.membership_bench import Bench, client
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio


def half_message(group: str) -> bytes:
    return messages.encode_message(messages.StoredMessage(topic="orders", properties=f"PGROUP\x01{group}\x02"))


def reply_to(client_id: str) -> dict[str, str]:
    return {"properties": f"REPLY_TO_CLIENT\x01{client_id}\x02"}


async def test_every_request_of_brokers_has_a_recipient() -> None:
    assert RECIPIENTS.keys() == {row.code for row in REQUESTS.values() if row.direction is not Direction.CLIENT}


@pytest.mark.parametrize(
    ("push", "addressee"),
    [
        (request(RequestCode.CHECK_TRANSACTION_STATE, half_message("p1")), "c1"),
        (request(RequestCode.CHECK_TRANSACTION_STATE, half_message("p2")), "c2"),
        (request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="g"), "c1"),
        (request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="h"), "c2"),
        (request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, group="g", topic="t"), "c1"),
        (request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, group="h", topic="t"), "c2"),
        (request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1"), "c1"),
        (request(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="h", clientId="c2"), "c2"),
        (request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, **reply_to("c1")), "c1"),
        (request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, **reply_to("c2")), "c2"),
        (request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, consumerGroup="g", clientId="c1", liteTopic="a"), "c1"),
        (request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, consumerGroup="h", clientId="c2", liteTopic="a"), "c2"),
    ],
)
async def test_broker_request_reaches_its_recipient(bench: Bench, push: RemotingCommand, addressee: str) -> None:
    c1, c2, elsewhere = client("c1"), client("c2"), client("c3")
    await bench.join(c1, "g", producers=("p1",), at=("broker-b",))
    await bench.join(c2, "h", producers=("p2",), at=("broker-b",))
    await bench.join(elsewhere, "g", "h", producers=("p1", "p2"), at=("broker-b",))
    shared, other = bench.servers
    command = commands.request(push.code, dict(push.fields), push.body)
    shared.push(command)
    assert [(channel.session.client_id, pushed) for channel, pushed in bench.pushed] == [(addressee, command)]
    assert command.fields["bname"] == "broker-b"
    if push.code not in {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.NOTIFY_UNSUBSCRIBE_LITE}:
        other.push(commands.request(push.code, dict(push.fields), push.body))
        assert bench.pushed[1][0] is elsewhere


async def test_server_for_returns_the_connection_of_the_registration(bench: Bench) -> None:
    c1, c2, unknown = client("c1"), client("c2"), client("c3")
    await bench.join(c1, "g", at=("broker-b",))
    await bench.join(c2, "g", at=("broker-b",))
    address = bench.servers[0].address
    found: list[object] = [bench.membership.server_for(channel, address) for channel in (c1, c2)]
    assert found == list[object](bench.servers)
    assert bench.membership.server_for(c1, "elsewhere:1") is None
    assert bench.membership.server_for(unknown, address) is None


async def test_broker_name_in_a_request_is_kept(bench: Bench) -> None:
    await bench.join(client("c1"), "g", at=("broker-b",))
    bench.servers[0].push(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="g", bname="broker-x"))
    assert bench.pushed[0][1].fields["bname"] == "broker-x"


@pytest.mark.parametrize(
    ("push", "error"),
    [
        (request(RequestCode.CHECK_TRANSACTION_STATE, half_message("nobody")), ConsumerNotOnline),
        (request(RequestCode.CHECK_TRANSACTION_STATE, b""), ConsumerNotOnline),
        (request(RequestCode.CHECK_TRANSACTION_STATE, b"garbage"), BodyError),
        (request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="nobody"), ConsumerNotOnline),
        (request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="p1"), ConsumerNotOnline),
        (request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), ConsumerNotOnline),
        (request(RequestCode.GET_CONSUMER_RUNNING_INFO), ConsumerNotOnline),
        # A client of another group with this id.
        (
            request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, consumerGroup="h", clientId="c1", liteTopic="a"),
            ConsumerNotOnline,
        ),
        (request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, clientId="c1", liteTopic="a"), ConsumerNotOnline),
        (request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, **reply_to("nobody")), ConsumerNotOnline),
        (request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT), ConsumerNotOnline),
        (request(RequestCode.SEND_MESSAGE), UnsupportedRequest),
        (request(RequestCode.HEART_BEAT), UnsupportedRequest),
    ],
)
async def test_broker_request_without_a_recipient_is_rejected(
    bench: Bench, push: RemotingCommand, error: type[Exception]
) -> None:
    await bench.join(client("c1"), "g", producers=("p1",), at=("broker-b",))
    with pytest.raises(error):
        bench.servers[0].push(commands.request(push.code, dict(push.fields), push.body))
    assert bench.pushed == []


async def test_closed_client_receives_no_broker_request(bench: Bench) -> None:
    c1 = client("c1")
    await bench.join(c1, "g", at=("broker-b",))
    c1.closed = True
    with pytest.raises(ConsumerNotOnline):
        bench.servers[0].push(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="g"))
