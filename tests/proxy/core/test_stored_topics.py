from dataclasses import replace
from pathlib import Path

import pytest

from proxy.app import App
from proxy.core.context import Context
from proxy.core.stored_topics import NO_MESSAGE, topics_of, view
from proxy.embedded.store import frame
from proxy.settings.model import Settings
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand, response, success
from remoting.errors import BodyError, MessageNotFound, NotPermitted, ServiceUnavailable
from remoting.ids import OffsetMessageId
from remoting.messages import StoredMessage, encode_message
from tests.proxy.fakes import FakeBackend, FakeChannel, stage
from tests.proxy.messages import request
from tests.proxy.replica import Client, running


@pytest.mark.parametrize(
    ("topic", "origin", "expected"),
    [
        ("orders", "", ("orders",)),
        # Only messages in retry topics have come from others: producers set properties, too.
        ("orders", "other", ("orders",)),
        ("%RETRY%g", "orders", ("%RETRY%g", "orders")),
        ("%RETRY%g_orders", "", ("%RETRY%g_orders", "orders")),
        ("%RETRY%g+orders", "", ("%RETRY%g+orders", "orders")),
        ("%RETRY%other", "", ("%RETRY%other",)),
    ],
)
def test_a_message_has_the_topics_that_it_is_in_and_was_sent_to(
    topic: str, origin: str, expected: tuple[str, ...]
) -> None:
    properties = f"RETRY_TOPIC\x01{origin}\x02" if origin else ""
    assert topics_of(StoredMessage(topic=topic, properties=properties), "g") == expected


# Messages at an offset of a log.

LMQ = "%LMQ%$orders$a"
REAL = StoredMessage(topic="orders", body=b"text", queue_id=2, queue_offset=7, commit_log_offset=1000)
# In the body of another message, with the place of a message that there is.
FORGED = replace(REAL, commit_log_offset=1200)
LITE = replace(
    REAL, properties=f"INNER_MULTI_DISPATCH\x01{LMQ}\x02INNER_MULTI_QUEUE_OFFSET\x013\x02", commit_log_offset=1400
)


class Log:
    """A broker's log and queues. lag: number of pulls after which the queues have their messages."""

    def __init__(self, queues: dict[tuple[str, str, str], StoredMessage], lag: int = 0) -> None:
        self.queues = queues
        self.lag = lag
        self.bytes: dict[str, bytes] = {
            str(message.commit_log_offset): encode_message(message) for message in (REAL, FORGED, LITE)
        }

    def __call__(self, _: str, command: RemotingCommand) -> RemotingCommand:
        fields = command.fields
        if command.code == RequestCode.VIEW_MESSAGE_BY_ID:
            record = self.bytes.get(fields["offset"])
            text = f"{NO_MESSAGE} by the offset"
            return response(ResponseCode.SYSTEM_ERROR, remark=text) if record is None else success(body=record)
        assert command.code == RequestCode.PULL_MESSAGE
        self.lag -= 1
        found = self.queues.get((fields["topic"], fields["queueId"], fields["queueOffset"]))
        if found is None or self.lag >= 0:
            return response(ResponseCode.PULL_NOT_FOUND)
        return success(body=encode_message(found))


async def look(log: Log, offset: str) -> StoredMessage:
    on = stage(FakeBackend(answer=log))
    context = Context(FakeChannel(), request(RequestCode.VIEW_MESSAGE_BY_ID, bname="broker-a"), None, 0.0)
    return await view(on.core, context, offset)


@pytest.mark.anyio
@pytest.mark.parametrize("lag", [0, 2, 7])
async def test_a_message_is_one_that_a_queue_has_at_its_offset(lag: int) -> None:
    log = Log({("orders", "2", "7"): REAL}, lag)
    assert await look(log, "1000") == REAL
    with pytest.raises(MessageNotFound):
        await look(log, "999")
    for offset in ("1200", "1400"):
        with pytest.raises(NotPermitted, match=f"no message at the offset {offset}"):
            await look(log, offset)


@pytest.mark.anyio
async def test_a_message_is_looked_up_once_for_a_request() -> None:
    log = Log({("orders", "2", "7"): REAL})
    on = stage(FakeBackend(answer=log))
    context = Context(FakeChannel(), request(RequestCode.VIEW_MESSAGE_BY_ID, bname="broker-a"), None, 0.0)
    with pytest.raises(MessageNotFound):
        await view(on.core, context, "999")
    for _ in range(3):
        found = await view(on.core, context, "1000")
        assert (found.topic, found.properties) == (REAL.topic, REAL.properties)
    # There may be one by now, and another offset has another one.
    log.bytes["999"] = encode_message(replace(REAL, commit_log_offset=999))
    for offset in ("999", "1200"):
        with pytest.raises(NotPermitted):
            await view(on.core, context, offset)
    looked_up = [sent.fields["offset"] for sent in on.backend.sent if sent.code == RequestCode.VIEW_MESSAGE_BY_ID]
    assert looked_up == ["999", "1000", "999", "1200"]


class Refusing(Log):
    """A broker that answers pulls of a topic otherwise. pulls: their number."""

    def __init__(self, queues: dict[tuple[str, str, str], StoredMessage], answer: RemotingCommand) -> None:
        super().__init__(queues)
        self.answer = answer
        self.pulls = 0

    def __call__(self, broker: str, command: RemotingCommand) -> RemotingCommand:
        self.pulls += command.code == RequestCode.PULL_MESSAGE
        if command.fields.get("topic") == "orders":
            return self.answer.copy()
        return super().__call__(broker, command)


@pytest.mark.anyio
@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION])
async def test_a_broker_that_does_not_show_the_queue_decides_nothing(code: ResponseCode) -> None:
    with pytest.raises(ServiceUnavailable, match="does not show the message's queue: why"):
        await look(Refusing({}, response(code, remark="why")), "1000")
    # The queue of the lite topic does.
    assert await look(Refusing({(LMQ, "0", "3"): LITE}, response(code, remark="why")), "1400") == LITE


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        response(ResponseCode.TOPIC_NOT_EXIST),
        # Offset 7 has been deleted, with the broker's old files.
        response(ResponseCode.PULL_OFFSET_MOVED, {"minOffset": "8", "maxOffset": "20"}),
    ],
)
async def test_a_message_whose_queue_entry_is_gone_is_not_awaited(answer: RemotingCommand) -> None:
    log = Refusing({}, answer)
    with pytest.raises(NotPermitted):
        await look(log, "1000")
    assert log.pulls == 1


@pytest.mark.anyio
async def test_a_lite_message_is_in_the_queue_of_its_lite_topic() -> None:
    assert await look(Log({(LMQ, "0", "3"): LITE}), "1400") == LITE
    log = Log({("%LMQ%$secret$a", "0", "3"): LITE})
    log.bytes["1400"] = encode_message(replace(LITE, properties=LITE.properties.replace(LMQ, "%LMQ%$secret$a")))
    with pytest.raises(NotPermitted):
        await look(log, "1400")


@pytest.mark.anyio
async def test_a_record_of_another_offset_or_with_more_bytes_is_no_message() -> None:
    log = Log({("orders", "2", "7"): REAL})
    log.bytes["1100"] = encode_message(REAL)
    with pytest.raises(NotPermitted):
        await look(log, "1100")
    record = encode_message(REAL)
    log.bytes["1000"] = (len(record) + 6).to_bytes(4, "big") + record[4:] + b"secret"
    with pytest.raises(BodyError, match="6 bytes follow"):
        await look(log, "1000")


@pytest.mark.anyio
async def test_the_embedded_broker_finds_its_messages_by_checksums(tmp_path: Path) -> None:
    """The queues are not asked, since the store finds no record that a client has put into the body of a message."""
    record = encode_message(REAL)
    settings = Settings(
        listen=["127.0.0.1:0"], embedded={"directory": tmp_path}, admin={"listen": "off"}, drain_timeout=0.1
    )
    async with running(settings) as app:
        client = await Client.connect(app)
        fields = {"topic": "TBW102", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0}
        fields |= {"producerGroup": "p", "bornTimestamp": 0, "flag": 0, "properties": ""}
        found: list[tuple[int, bytes]] = []
        for body in (b"a real message", record, frame.encode(frame.Kind.MESSAGE, record, 0, 0)):
            sent = await client.ask(request(RequestCode.SEND_MESSAGE, body, **fields))
            assert sent.code == ResponseCode.SUCCESS, sent.remark
            found.append((OffsetMessageId.parse(sent.fields["msgId"]).offset, body))
        for offset, body in found:
            shown = await shown_by(app, str(offset))
            assert shown is not None
            assert shown.body == body
            # The body begins somewhere in the message's frame.
            for place in range(offset + 1, offset + 300):
                if place not in dict(found):
                    assert await shown_by(app, str(place)) is None
        await client.close()


async def shown_by(app: App, offset: str) -> StoredMessage | None:
    context = Context(FakeChannel(), request(RequestCode.VIEW_MESSAGE_BY_ID, bname="broker-a"), None, 0.0)
    try:
        return await view(app.core, context, offset)
    except MessageNotFound:
        return None
