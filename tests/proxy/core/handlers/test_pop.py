import asyncio
import logging
from typing import Any

import pytest

from protocol_negotiation.advertised_address import Advertise
from proxy.core.advertised_listeners import AdvertisedListener, ListenerRoutes
from remoting import command as commands
from remoting.codes import GO_AWAY_VERSION, RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, GoAway, ServiceUnavailable
from remoting.messages import StoredMessage, encode_message
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeBackend, FakeChannel, Sent, Stage, peer, settle, stage
from tests.proxy.messages import complete, java, route

pytestmark = pytest.mark.anyio

POP, CHANGE = RequestCode.POP_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME
TIMES = {"popTime": "1700000000789", "invisibleTime": "60000", "reviveQid": "6"}
# Two messages of a queue, and one each of the group's old and new retry topics.
MESSAGES = (
    StoredMessage(topic="orders", queue_id=3, queue_offset=40),
    StoredMessage(topic="orders", queue_id=3, queue_offset=42),
    StoredMessage(topic="%RETRY%g_orders", queue_id=0, queue_offset=5),
    StoredMessage(topic="%RETRY%g+orders", queue_id=0, queue_offset=6),
)
OFFSETS = {"startOffsetInfo": "0 3 40;1 0 5;2 0 6", "msgOffsetInfo": "0 3 40,42;1 0 5;2 0 6"}


def popped(*messages: StoredMessage, code: int = 0, **fields: str) -> RemotingCommand:
    """Return a broker's reply."""
    body = b"".join(map(encode_message, messages or MESSAGES))
    return commands.response(code, {**TIMES, **OFFSETS, **fields}, body)


def back(topic: str, queue: int, start: int, retry: int, offset: int, broker: str = "broker-a") -> dict[str, str]:
    """Return the ext fields of the request that releases a message."""
    return {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": str(queue),
        "extraInfo": f"{start} 1700000000789 60000 6 {retry} {broker} {queue} {offset}",
        "offset": str(offset),
        "invisibleTime": "1000",
        "bname": broker,
    }


def everything(broker: str = "broker-a") -> list[dict[str, str]]:
    return [
        back("orders", 3, 40, 0, 40, broker),
        back("orders", 3, 40, 0, 42, broker),
        back("%RETRY%g_orders", 0, 5, 1, 5, broker),
        back("%RETRY%g+orders", 0, 6, 2, 6, broker),
    ]


class Popping:
    """A client with an in-flight POP; the test sets the broker's reply."""

    def __init__(self, channel: FakeChannel | None = None, on: Stage | None = None, **fields: str) -> None:
        self.on = on or stage()
        self.backend = self.on.backend
        self.channel = channel or FakeChannel()
        self.command = java(complete(REQUESTS[POP], pollTime="20000", **fields), GO_AWAY_VERSION + 1)
        self.reply: Reply

    async def start(self) -> "Popping":
        self.backend.pending = []
        reply = self.on.core.handle(self.channel, self.command)
        assert reply is not None
        self.reply = reply
        await settle()
        return self

    async def answer(self, answer: RemotingCommand | Exception | None) -> None:
        """Let the broker answer the POP (None: cancel it) and all later requests at once."""
        assert self.backend.pending is not None
        (future,), self.backend.pending = self.backend.pending, None
        if answer is None:
            future.cancel()
        elif isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        await settle()

    @property
    def returned(self) -> list[Sent]:
        assert self.backend.sent[0].code == POP
        return self.backend.sent[1:]

    @property
    def given_back(self) -> list[dict[str, str]]:
        assert {sent.code for sent in self.returned} <= {CHANGE}
        return [sent.fields for sent in self.returned]


async def test_popped_messages_are_returned_to_the_waiting_client() -> None:
    popping = await Popping().start()
    answer = popped()
    await popping.answer(answer)
    assert await popping.reply is answer
    popping.channel.closed = True
    await settle()
    assert popping.given_back == []
    assert popping.on.observed == [("POP_MESSAGE", 0)]


async def test_messages_popped_for_a_disconnected_client_are_released() -> None:
    popping = await Popping().start()
    popping.channel.closed = True
    await popping.answer(popped())
    assert popping.given_back == everything()
    assert {(sent.broker, sent.body, sent.timeout) for sent in popping.returned} == {("broker-a", b"", 10)}
    # It must not receive messages that are delivered to another consumer.
    assert (await popping.reply).code == ResponseCode.PULL_NOT_FOUND


async def test_messages_popped_after_go_away_are_released() -> None:
    popping = await Popping().start()
    popping.on.core.drain.start()
    with pytest.raises(GoAway):
        await popping.reply
    await popping.answer(popped())
    assert popping.given_back == everything()


async def test_messages_popped_for_a_cancelled_request_are_released() -> None:
    popping = await Popping().start()
    popping.reply.cancel()
    await popping.answer(popped())
    assert popping.given_back == everything()


async def test_messages_popped_from_lite_topics_are_released_to_them() -> None:
    on = stage()
    on.backend.pending = []
    channel, command = FakeChannel(), complete(REQUESTS[RequestCode.POP_LITE_MESSAGE], pollTime="20000")
    assert on.core.handle(channel, command) is not None
    await settle()
    channel.closed = True
    lite = StoredMessage(
        topic="orders", queue_offset=900, properties="__LITE_TOPIC\x01a\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"
    )
    (future,), on.backend.pending = on.backend.pending, None
    future.set_result(commands.success({**TIMES, "orderCountInfo": "0"}, encode_message(lite)))
    await settle()
    asked, given_back = on.backend.sent
    assert asked.code == RequestCode.POP_LITE_MESSAGE
    assert given_back.code == CHANGE
    fields = given_back.fields
    assert (fields["liteTopic"], fields["suspend"], fields["offset"]) == ("a", "true", "7")
    assert fields["extraInfo"] == "0 1700000000789 60000 6 0 broker-a 0 7"


@pytest.mark.parametrize(
    ("topic", "queue", "own"),
    [
        ("orders", "", True),
        ("orders", "%LMQ%$orders$a", True),
        ("%LMQ%$orders$a", "", True),
        # A dead letter, which keeps the property.
        ("%DLQ%g", "%LMQ%$orders$a", True),
        ("secret", "", False),
        ("secret", "%LMQ%$secret$a", False),
        ("%LMQ%$secret$a", "", False),
        ("%DLQ%other", "%LMQ%$secret$a", False),
    ],
)
async def test_messages_of_other_topics_are_not_popped_from_lite_topics(topic: str, queue: str, own: bool) -> None:
    """Brokers choose them by the client id, which may be that of a client of another topic."""
    on = stage()
    on.backend.pending = []
    reply = on.core.handle(FakeChannel(), complete(REQUESTS[RequestCode.POP_LITE_MESSAGE], pollTime="20000"))
    assert reply is not None
    await settle()
    text = "__LITE_TOPIC\x01a\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"
    text += f"INNER_MULTI_DISPATCH\x01{queue}\x02" if queue else ""
    lite = StoredMessage(topic=topic, queue_offset=9, properties=text)
    (future,), on.backend.pending = on.backend.pending, None
    future.set_result(commands.success({**TIMES, "orderCountInfo": "0"}, encode_message(lite)))
    await settle()
    assert ((await reply).code, bool((await reply).body)) == (0 if own else ResponseCode.NO_PERMISSION, own)
    released = [(sent.fields["topic"], sent.fields["liteTopic"]) for sent in on.backend.sent[1:]]
    assert released == ([] if own else [("secret", "a")])


async def test_release_uses_the_handles_in_the_messages() -> None:
    """If a retried message has the requested topic, its property POP_CK names the queue it came from."""
    handle = "5 1700000000789 60000 6 1 broker-a 0 5"
    retried = StoredMessage(topic="orders", queue_offset=5, properties=f"POP_CK\x01{handle}\x02")
    popping = await Popping().start()
    popping.channel.closed = True
    await popping.answer(popped(retried, startOffsetInfo="1 0 5", msgOffsetInfo="1 0 5"))
    assert popping.given_back == [
        {**back("%RETRY%g_orders", 0, 5, 1, 5), "extraInfo": handle},
    ]


@pytest.mark.parametrize(
    "answer",
    [
        commands.response(209, {"popTime": "1", "restNum": "0"}, remark="polling full"),
        popped(code=210),
        popped(code=1),
        ServiceUnavailable("no master"),
        ConnectionLost("lost"),
        None,
    ],
)
@pytest.mark.parametrize("closed", [False, True])
async def test_nothing_is_released_without_popped_messages(
    answer: RemotingCommand | Exception | None, closed: bool
) -> None:
    popping = await Popping().start()
    popping.channel.closed = closed
    await popping.answer(answer)
    assert popping.given_back == []
    if answer is None:
        assert popping.reply.cancelled()
    elif isinstance(answer, Exception):
        assert popping.reply.exception() is answer
    else:
        assert await popping.reply is answer


def own_listeners(*brokers: str) -> ListenerRoutes:
    dedicated = [
        AdvertisedListener(8080 + number, Advertise(), broker, broker) for number, broker in enumerate(brokers, 1)
    ]
    return ListenerRoutes([AdvertisedListener(8080, Advertise(), None, "main"), *dedicated])


@pytest.mark.parametrize(
    ("more", "channel", "broker"),
    [
        ({"warm": {"orders": route("orders", "broker-a", "broker-b")}}, FakeChannel, "broker-b"),
        ({"cold": {"orders": route("orders", "broker-a", "broker-b")}}, FakeChannel, "broker-b"),
        ({}, lambda: FakeChannel(peer(broker="broker-a")), "broker-a"),
    ],
    ids=["warm", "cold", "a listener of its own"],
)
async def test_release_without_a_broker_name_goes_to_the_broker_that_popped(
    more: dict[str, Any], channel: Any, broker: str
) -> None:
    on = stage(FakeBackend(**more), addresses=own_listeners("broker-a"))
    popping = Popping(channel(), on)
    del popping.command.fields["bname"]
    await popping.start()
    popping.channel.closed = True
    await popping.answer(popped())
    assert [sent.broker for sent in popping.backend.sent] == [broker] * 5
    assert popping.given_back == everything(broker)


@pytest.mark.parametrize(
    "answer",
    [
        commands.response(0, {**TIMES, **OFFSETS}, b"garbage"),
        commands.response(0, {}, encode_message(MESSAGES[0])),
        popped(startOffsetInfo="garbage"),
    ],
)
async def test_undecodable_pop_response_is_logged_and_not_released(
    answer: RemotingCommand, caplog: pytest.LogCaptureFixture
) -> None:
    popping = await Popping().start()
    popping.channel.closed = True
    await popping.answer(answer)
    assert popping.given_back == []
    assert "stay invisible" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_pop_creates_no_task() -> None:
    popping = Popping()
    before = asyncio.all_tasks()
    await popping.start()
    assert asyncio.all_tasks() == before
    await popping.answer(popped())


async def test_messages_popped_for_a_client_that_does_not_read_are_released() -> None:
    popping = await Popping(FakeChannel(unread_bytes=8 * 2**20 + 1)).start()
    await popping.answer(popped())
    assert (await popping.reply).code == ResponseCode.PULL_NOT_FOUND
    assert popping.given_back == everything()


async def test_polls_at_a_broker_that_hangs_end_and_its_late_messages_are_released() -> None:
    of_grpc, of_remoting = FakeChannel(supports_go_away=False), FakeChannel()
    popping, other = await Popping(of_grpc).start(), await Popping(of_remoting).start()
    popping.on.core.end_polls_at("broker-b")
    assert not popping.reply.done()
    popping.on.core.end_polls_at("broker-a")
    other.on.core.end_polls_at("broker-a")
    with pytest.raises(GoAway, match="broker-a does not answer"):
        await popping.reply
    assert not other.reply.done()
    await popping.answer(popped())
    assert popping.given_back == everything()
