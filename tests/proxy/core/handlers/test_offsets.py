import pytest

from proxy.core.client_registry import ConsumerData, Member
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, RequestTimeout
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeBackend, FakeChannel, stage
from tests.proxy.messages import complete

pytestmark = pytest.mark.anyio

QUERY, END = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET
NOT_FOUND = commands.response(ResponseCode.QUERY_NOT_FOUND, remark="no offset")
Answers = dict[int, list[RemotingCommand | RemotingError]]


def offset(value: int) -> RemotingCommand:
    return commands.success({"offset": str(value)})


async def ask(
    answers: Answers, channel: FakeChannel | None = None, subscribed: str | None = None, **fields: str
) -> tuple[RemotingCommand, FakeBackend]:
    """Ask for an offset; the broker gives the answers of each code in turn.

    subscribed: the topic that the client has subscribed to (default: that of the query).
    """
    backend = FakeBackend(answer=lambda _, command: answers[command.code].pop(0))
    on, asking = stage(backend), channel or FakeChannel()
    query = complete(REQUESTS[QUERY], bname="broker-a", **fields)
    data = ConsumerData({"subscriptionDataSet": [{"topic": subscribed or query.fields["topic"]}]})
    on.registry.heartbeat(Member(asking, "c", asking), (), {query.fields["consumerGroup"]: data}, 0.0)
    reply = await on.ask(query, asking)
    assert reply is not None
    return reply, backend


async def test_a_new_group_starts_at_0_in_a_queue_without_messages() -> None:
    """Otherwise, it misses messages stored between this query and the client's next one, for the end of the queue."""
    reply, backend = await ask({QUERY: [NOT_FOUND], END: [offset(0)]}, topic="orders", queueId="3")
    assert (reply.code, reply.fields) == (ResponseCode.SUCCESS, {"offset": "0"})
    assert [sent.code for sent in backend.sent] == [QUERY, END]
    assert backend.sent[1].fields == {"topic": "orders", "queueId": "3", "bname": "broker-a"}


@pytest.mark.parametrize(("second", "code"), [(offset(0), ResponseCode.SUCCESS), (NOT_FOUND, NOT_FOUND.code)])
async def test_the_broker_decides_for_a_queue_with_messages(second: RemotingCommand, code: int) -> None:
    reply, backend = await ask({QUERY: [NOT_FOUND, second], END: [offset(7)]})
    assert reply.code == code
    assert [sent.code for sent in backend.sent] == [QUERY, END, QUERY]
    assert backend.sent[2] == backend.sent[0]


async def test_a_known_offset_is_forwarded() -> None:
    reply, backend = await ask({QUERY: [offset(5)]})
    assert reply.fields == {"offset": "5"}
    assert [sent.code for sent in backend.sent] == [QUERY]


async def test_a_client_without_a_subscription_gets_the_brokers_answer() -> None:
    """It chooses its queues itself, and may take an offset for a sign that the group has consumed."""
    reply, backend = await ask({QUERY: [NOT_FOUND]}, subscribed="other")
    assert reply.code == ResponseCode.QUERY_NOT_FOUND
    assert len(backend.sent) == 1


@pytest.mark.parametrize(
    ("channel", "fields"), [(FakeChannel(), {"setZeroIfNotFound": "false"}), (FakeChannel(signs=False), {})]
)
async def test_clients_that_need_to_know_get_the_brokers_answer(channel: FakeChannel, fields: dict[str, str]) -> None:
    reply, backend = await ask({QUERY: [NOT_FOUND]}, channel, **fields)
    assert reply.code == ResponseCode.QUERY_NOT_FOUND
    assert len(backend.sent) == 1


@pytest.mark.parametrize("end", [RequestTimeout("late"), commands.response(ResponseCode.NO_PERMISSION)])
async def test_without_the_end_of_the_queue_the_brokers_answer_stands(end: RemotingCommand | RemotingError) -> None:
    reply, _ = await ask({QUERY: [NOT_FOUND], END: [end]})
    assert (reply.code, reply.remark) == (ResponseCode.QUERY_NOT_FOUND, "no offset")
