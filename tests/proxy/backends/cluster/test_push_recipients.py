import pytest

from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, ConsumerNotOnline, UnsupportedRequest
from tests.proxy.backends.cluster.membership_bench import Bench, client
from tests.proxy.messages import request

pytestmark = pytest.mark.anyio


def half_message(group: str) -> bytes:
    return messages.encode_message(messages.StoredMessage(topic="orders", properties=f"PGROUP\x01{group}\x02"))


def reply_to(client_id: str) -> dict[str, str]:
    return {"properties": f"REPLY_TO_CLIENT\x01{client_id}\x02"}


@pytest.mark.parametrize(
    ("push", "addressee"),
    [
        (request(39, half_message("p1")), "c1"),
        (request(39, half_message("p2")), "c2"),
        (request(40, consumerGroup="g"), "c1"),
        (request(40, consumerGroup="h"), "c2"),
        (request(220, group="g", topic="t"), "c1"),
        (request(221, group="h", topic="t"), "c2"),
        (request(307, consumerGroup="g", clientId="c1"), "c1"),
        (request(309, consumerGroup="h", clientId="c2"), "c2"),
        (request(326, **reply_to("c1")), "c1"),
        (request(326, **reply_to("c2")), "c2"),
        (request(200073, clientId="c1", liteTopic="a"), "c1"),
        (request(200073, clientId="c2", liteTopic="a"), "c2"),
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
    bench.servers[0].push(request(40, consumerGroup="g", bname="broker-x"))
    assert bench.pushed[0][1].fields["bname"] == "broker-x"


@pytest.mark.parametrize(
    ("push", "error"),
    [
        (request(39, half_message("nobody")), ConsumerNotOnline),
        (request(39, b""), ConsumerNotOnline),
        (request(39, b"garbage"), BodyError),
        (request(40, consumerGroup="nobody"), ConsumerNotOnline),
        (request(40, consumerGroup="p1"), ConsumerNotOnline),
        (request(40), ConsumerNotOnline),
        (request(307), ConsumerNotOnline),
        (request(326, **reply_to("nobody")), ConsumerNotOnline),
        (request(326), ConsumerNotOnline),
        (request(10), UnsupportedRequest),
        (request(34), UnsupportedRequest),
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
        bench.servers[0].push(request(40, consumerGroup="g"))
