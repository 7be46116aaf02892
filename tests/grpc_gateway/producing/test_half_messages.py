"""Look-ups of half messages by the ids of their messages."""

import pytest

from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.transaction_id import TransactionId
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout, ServiceUnavailable
from remoting.messages import StoredMessage
from remoting.names import HALF_TOPIC
from tests.grpc_gateway.fakes import FakeCore
from tests.grpc_gateway.messages import route, stored

pytestmark = pytest.mark.anyio


def half(offset: int, topic: str = "orders", message_id: str = "01AB") -> StoredMessage:
    return stored(offset, topic=HALF_TOPIC, REAL_TOPIC=topic, UNIQ_KEY=message_id)


def found(*halves: StoredMessage) -> RemotingCommand:
    return commands.success(body=b"".join(map(messages.encode_message, halves)))


NOTHING = commands.response(ResponseCode.QUERY_NOT_FOUND)
REFUSED = commands.response(ResponseCode.NO_PERMISSION, remark="no")


class Lookup:
    """Look-ups at broker-a, with its answers one after the other, and at broker-b, which has nothing."""

    def __init__(self, *answers: RemotingCommand | Exception, **more: frozenset[str]) -> None:
        self._answers = list(answers)
        self.core = FakeCore(routes={"orders": route("orders", "broker-a", "broker-b")}, answer=self._answer, **more)  # type: ignore[arg-type]
        self.half_messages = HalfMessages(self.core)

    def _answer(self, command: RemotingCommand) -> RemotingCommand | Exception:
        assert command.code == RequestCode.QUERY_MESSAGE
        if command.fields["bname"] == "broker-b":
            return NOTHING
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def offset(self, message_id: str = "01AB", topic: str = "orders") -> int | None:
        transaction = await self.half_messages.look_up(topic, message_id)
        return None if transaction is None else transaction.commit_log_offset


def transaction(number: int, topic_offset: int = 0) -> TransactionId:
    return TransactionId("broker-a", topic_offset, number, f"id-{number}")


async def test_half_message_is_found_by_the_id_of_its_message() -> None:
    lookup = Lookup(found(half(5)))
    stored_half = half(5)
    assert await lookup.half_messages.look_up("orders", "01AB") == TransactionId(
        "broker-a", stored_half.queue_offset, stored_half.commit_log_offset, "01AB"
    )
    query = lookup.core.fields[0]
    assert (query["topic"], query["key"], query["_UNIQUE_KEY_QUERY"]) == (HALF_TOPIC, "01AB", "true")


async def test_half_message_that_was_stored_last_counts() -> None:
    halves = [half(5), half(7), half(6)]
    assert await Lookup(found(*halves)).offset() == half(7).commit_log_offset


async def test_half_messages_of_other_topics_and_ids_do_not_count() -> None:
    assert await Lookup(found(half(5, topic="payments"), half(6, message_id="01CD"))).offset() is None


async def test_half_message_is_looked_up_until_the_broker_has_indexed_it() -> None:
    lookup = Lookup(NOTHING, NOTHING, found(half(5)))
    assert await lookup.offset() == half(5).commit_log_offset
    assert len(lookup.core.handled) == 6


@pytest.mark.parametrize("answer", [RequestTimeout("no answer"), REFUSED])
async def test_unknown_half_message_counts_as_unavailable_while_a_broker_does_not_tell(
    answer: RemotingCommand | Exception,
) -> None:
    with pytest.raises((RequestTimeout, ServiceUnavailable)):
        await Lookup(answer).offset()


async def test_broker_that_hangs_is_not_asked() -> None:
    lookup = Lookup(found(half(5)), unresponsive=frozenset({"broker-b"}))
    assert await lookup.offset() == half(5).commit_log_offset
    assert [fields["bname"] for fields in lookup.core.fields] == ["broker-a"]
    with pytest.raises(ServiceUnavailable, match=r"^a broker of the topic does not answer$"):
        await Lookup(found(half(5)), unresponsive=frozenset({"broker-a"})).offset()


@pytest.mark.parametrize(("message_id", "topic"), [("x" * 257, "orders"), ("a\x01b", "orders"), ("01AB", "unknown")])
async def test_ids_and_topics_that_no_broker_has_are_not_looked_up(message_id: str, topic: str) -> None:
    lookup = Lookup(found(half(5)))
    assert await lookup.offset(message_id, topic) is None
    assert lookup.core.handled == []


def test_number_of_known_half_messages_is_limited() -> None:
    half_messages = HalfMessages(FakeCore(), limit=2)
    for number in (1, 2, 1, 3):
        half_messages.add("orders", transaction(number))
    assert half_messages.known("orders", "id-2") is None
    assert half_messages.known("orders", "id-1") == transaction(1)
    assert half_messages.known("payments", "id-1") is None
    half_messages.add("orders", transaction(1, topic_offset=9))
    assert half_messages.known("orders", "id-1") == transaction(1, topic_offset=9)
