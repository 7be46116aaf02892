"""Requests that name a message instead of its topic."""

import asyncio
import base64
import time
from pathlib import Path

import pytest

from proxy.app import App
from proxy.auth.stored_messages import StoredMessages
from proxy.core.channel import Channel
from proxy.core.client_registry import Groups
from proxy.core.context import Context
from proxy.core.principal import Method
from proxy.core.reply_recipients import ReplyRecipients
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand, response, success
from remoting.errors import BodyError, MessageNotFound, NotPermitted, RemotingError, ServiceUnavailable
from remoting.ids import OffsetMessageId, RecallHandle
from remoting.requests import REQUESTS
from remoting.signature import Credentials
from tests.proxy.auth.replica import replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.users import ALICE, BOB, IMPOSTOR, ROOT, STRANGER, authority, new_topic, signed
from tests.proxy.fakes import FakeBackend, FakeChannel, stage
from tests.proxy.messages import heartbeat, request
from tests.proxy.replica import Client
from tests.waiting import until

pytestmark = pytest.mark.anyio

NO_PERMISSION = int(ResponseCode.NO_PERMISSION)
TIMERS = "rmq_sys_wheel_timer"


async def stored(app: App, client: Client, topic: str) -> str:
    """Send a message as root; return its offset in the log."""
    assert (await client.ask(new_topic(topic))).code == 0
    send = command(RequestCode.SEND_MESSAGE_V2, b=topic, e="0", i="KEYS\x01k1\x02", n="")
    send.body = b"body"
    sent = await client.ask(signed(send, ROOT))
    assert sent.code == 0, sent.remark
    # The message id ends with the offset.
    return str(int(sent.fields["msgId"][-16:], 16))


async def stored_record(folder: Path) -> bytes:
    """Return the record of a message of the topic orders, as a broker stores it."""
    async with replica(folder) as app:
        client = await Client.connect(app)
        view = request(RequestCode.VIEW_MESSAGE_BY_ID, topic="orders", offset=await stored(app, client, "orders"))
        record = (await ask(client, view, ROOT)).body
        await client.close()
    return record


async def ask(client: Client, sent: RemotingCommand, credentials: Credentials) -> RemotingCommand:
    return await client.ask(signed(sent, credentials))


async def test_messages_of_other_topics_are_not_returned_or_sent_back(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        client = await Client.connect(app)
        own, other = await stored(app, client, "orders"), await stored(app, client, "secret")
        for offset, code in ((own, 0), (other, NO_PERMISSION)):
            view = request(RequestCode.VIEW_MESSAGE_BY_ID, topic="orders", offset=offset)
            reply = await ask(client, view, ALICE)
            assert (reply.code, bool(reply.body)) == (code, code == 0)
            back = request(
                RequestCode.CONSUMER_SEND_MSG_BACK, group="g", offset=offset, delayLevel=0, originTopic="orders"
            )
            reply = await ask(client, back, ALICE)
            assert reply.code == code, reply.remark
        view = request(RequestCode.VIEW_MESSAGE_BY_ID, topic="secret", offset=other)
        assert (await ask(client, view, ROOT)).code == 0
        await client.close()


async def test_found_messages_are_checked(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        client = await Client.connect(app)
        await stored(app, client, "orders")
        query = request(
            RequestCode.QUERY_MESSAGE, topic="orders", key="k1", maxNum=8, beginTimestamp=0, endTimestamp=2**53
        )
        reply = await ask(client, query, ALICE)
        assert (reply.code, bool(reply.body)) == (0, True)
        await client.close()


async def test_transaction_checks_are_dropped_for_users_without_the_permission(tmp_path: Path) -> None:
    message = await stored_record(tmp_path)
    made = authority(tmp_path)
    relayed: list[RemotingCommand] = []

    def relay(_: Channel, command: RemotingCommand) -> None:
        relayed.append(command)

    push = StoredMessages(made, ReplyRecipients()).check_push(relay)
    check = request(RequestCode.CHECK_TRANSACTION_STATE, message, True)
    channel = FakeChannel()
    for user, count in (("bob-0001", 0), ("alice-1", 1)):
        channel.principal = made.principal(user, Method.SIGNATURE)
        push(channel, check)
        assert len(relayed) == count


async def test_a_transaction_check_goes_to_a_member_that_may_receive_it(tmp_path: Path) -> None:
    """Without any permission, a client can be a member of others' producer group, and a broker can choose it."""
    made = authority(tmp_path)
    half = messages.StoredMessage(topic="orders", properties="PGROUP\x01p\x02")
    check = request(RequestCode.CHECK_TRANSACTION_STATE, messages.encode_message(half), True)
    stranger, gone, producer = (
        FakeChannel(principal=made.principal(user, Method.SIGNATURE)) for user in ("bob-0001", "alice-1", "alice-1")
    )
    gone.closed = True
    members = {"p": [stranger, gone, producer], "other": [producer]}
    asked: list[Channel] = []
    guard = StoredMessages(made, ReplyRecipients(), producers=lambda group: members[group])
    push = guard.check_push(lambda channel, _: asked.append(channel))
    push(stranger, check)
    assert asked == [producer]
    members["p"].remove(producer)
    refused = push(stranger, check)
    assert asked == [producer]
    assert refused is not None
    assert (await refused).code == NO_PERMISSION


async def test_transactions_of_other_topics_are_not_ended(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        client = await Client.connect(app)
        await stored(app, client, "secret")
        half = command(
            RequestCode.SEND_MESSAGE_V2,
            b="secret",
            e="0",
            # A half message of former times is discarded at the broker's next tick.
            g=str(int(time.time() * 1000)),
            i="TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01A\x02",
            n="",
        )
        half.body = b"half"
        sent = await ask(client, half, ROOT)
        end = {
            "producerGroup": "p",
            "tranStateTableOffset": sent.fields["queueOffset"],
            "commitLogOffset": int(sent.fields["msgId"][-16:], 16),
            "commitOrRollback": 8,
        }
        for topic, credentials, code in (("orders", ALICE, NO_PERMISSION), ("secret", ROOT, 0)):
            reply = await ask(client, request(RequestCode.END_TRANSACTION, topic=topic, **end), credentials)
            assert reply.code == code, reply.remark
            last = await ask(client, request(RequestCode.GET_MAX_OFFSET, topic="secret", queueId=0), ROOT)
            assert last.fields["offset"] == ("2" if code == 0 else "1")
        await client.close()


async def test_a_client_does_not_get_messages_of_other_topics_to_consume(tmp_path: Path) -> None:
    async with replica(tmp_path, tools="all") as app:
        client = await Client.connect(app)
        own, other = await stored(app, client, "orders"), await stored(app, client, "secret")
        consumer = await Client.connect(app)
        assert (await ask(consumer, heartbeat("c1", {"g": ["orders"]}), ALICE)).code == 0
        for offset, received in ((other, False), (own, True)):
            message_id = str(OffsetMessageId("127.0.0.1", 10911, int(offset)))
            consume = request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", clientId="c1", msgId=message_id, brokerName=""
            )
            asking = asyncio.ensure_future(client.connection.request(signed(consume, ROOT), 2.0))
            if not received:
                reply = await asking
                assert reply.code == NO_PERMISSION, reply.remark
            else:
                await until(lambda: any(push.body for push in consumer.pushed))
                asking.cancel()
        assert [push.code for push in consumer.pushed if push.body] == [RequestCode.CONSUME_MESSAGE_DIRECTLY]
        await consumer.close()
        await client.close()


async def test_a_false_access_key_gives_no_permission_for_pushed_messages(tmp_path: Path) -> None:
    message = await stored_record(tmp_path)
    made = authority(tmp_path)
    push = StoredMessages(made, ReplyRecipients()).check_push(lambda *_: pytest.fail("the message was pushed"))
    channel = FakeChannel()
    channel.principal = made.of_command(signed(command(RequestCode.GET_MAX_OFFSET), IMPOSTOR), channel.peer)
    assert channel.principal.user == "alice-1"
    push(channel, request(RequestCode.CHECK_TRANSACTION_STATE, message, True))


@pytest.mark.parametrize(
    ("credentials", "groups", "received"),
    [
        (STRANGER, Groups(producers=frozenset({"p"})), True),
        (STRANGER, Groups(producers=frozenset({"other"}), consumers=frozenset({"p"})), False),
        # Brokers let any client register in a producer group.
        (BOB, Groups(producers=frozenset({"p"})), False),
        (ALICE, Groups(producers=frozenset({"p"})), True),
    ],
    ids=["a member", "a member of another group", "a known user without permission", "a known user"],
)
async def test_pushed_messages_are_for_clients_that_brokers_have_accepted(
    tmp_path: Path, credentials: Credentials, groups: Groups, received: bool
) -> None:
    half = messages.StoredMessage(topic="orders", properties="PGROUP\x01p\x02")
    made = authority(tmp_path)
    relayed: list[RemotingCommand] = []
    accepted = Groups()
    guard = StoredMessages(made, ReplyRecipients(), lambda _: accepted, brokers_judge=True)
    push = guard.check_push(lambda _, command: relayed.append(command))
    check = request(RequestCode.CHECK_TRANSACTION_STATE, messages.encode_message(half), True)
    channel = FakeChannel()
    channel.principal = made.of_command(signed(command(RequestCode.HEART_BEAT), credentials), channel.peer)
    push(channel, check)
    assert len(relayed) == (credentials is ALICE), "no broker has accepted the client yet"
    relayed.clear()
    accepted = groups
    push(channel, check)
    assert len(relayed) == received


async def test_brokers_judge_what_they_send_to_clients_that_only_they_know(tmp_path: Path) -> None:
    made = authority(tmp_path)
    guard = StoredMessages(made, ReplyRecipients(), brokers_judge=True)
    sent = signed(request(RequestCode.VIEW_MESSAGE_BY_ID, topic="orders", offset=0), STRANGER)
    channel = FakeChannel()
    channel.principal = made.of_command(sent, channel.peer)
    reply = success(body=b"a message")
    guard.check_reply(Context(channel, sent, REQUESTS[sent.code], 0.0), reply)
    assert reply.body == b"a message"
    channel.signs = False
    guard.check_reply(Context(channel, sent, REQUESTS[sent.code], 0.0), reply)
    assert (reply.code, reply.body) == (NO_PERMISSION, b"")


async def test_delayed_messages_of_other_topics_are_not_recalled(tmp_path: Path) -> None:
    """A broker removes the delayed message with the id in the handle, whatever topic that names."""
    made = authority(tmp_path)
    delayed = {
        identity: messages.encode_message(messages.StoredMessage(topic=TIMERS, properties=f"REAL_TOPIC\x01{topic}\x02"))
        for identity, topic in (("A", "orders"), ("B", "secret"))
    }

    def answer(broker: str, command: RemotingCommand) -> RemotingCommand:
        if command.code != RequestCode.QUERY_MESSAGE:
            return success({"msgId": "recalled"})
        assert (broker, command.fields["topic"]) == ("broker-a", TIMERS)
        found = delayed.get(command.fields["key"])
        return success(body=found) if found is not None else response(ResponseCode.QUERY_NOT_FOUND)

    core, guard = stage(FakeBackend(answer=answer)).core, StoredMessages(made, ReplyRecipients())
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    for identity, code in (("A", 0), ("B", NO_PERMISSION), ("C", NO_PERMISSION), ("B more", NO_PERMISSION)):
        handle = RecallHandle("orders", "broker-a", 1, identity)
        recall = request(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=str(handle), bname="broker-a")
        reply = await guard.recall(core, Context(channel, recall, REQUESTS[recall.code], 0.0))
        assert reply.code == code, identity


@pytest.mark.parametrize(("text", "readable"), [(b"B \xff", True), (b"B\xff", False)])
async def test_a_handle_that_only_java_reads_is_not_left_to_the_broker(
    tmp_path: Path, text: bytes, readable: bool
) -> None:
    """Java replaces bytes that are no UTF-8, and ignores a further part."""
    secret = messages.StoredMessage(topic=TIMERS, properties="REAL_TOPIC\x01secret\x02")
    backend = FakeBackend(answer=lambda *_: success(body=messages.encode_message(secret)))
    made = authority(tmp_path)
    core, guard = stage(backend).core, StoredMessages(made, ReplyRecipients())
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    handle = base64.urlsafe_b64encode(b"v1 orders broker-a 1 " + text).decode()
    recall = request(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=handle, bname="broker-a")
    recalling = guard.recall(core, Context(channel, recall, REQUESTS[recall.code], 0.0))
    if readable:
        assert (await recalling).code == NO_PERMISSION
    else:
        with pytest.raises(BodyError):
            await recalling
    assert [sent.code for sent in backend.sent] == ([RequestCode.QUERY_MESSAGE] if readable else [])


@pytest.mark.parametrize("code", [RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION])
@pytest.mark.parametrize(
    ("shown", "error"),
    [
        (response(ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]"), ServiceUnavailable),
        (response(ResponseCode.NO_PERMISSION, remark="no"), ServiceUnavailable),
        (response(ResponseCode.SYSTEM_ERROR, remark="java.lang.NullPointerException"), ServiceUnavailable),
        (response(ResponseCode.SYSTEM_ERROR, remark="can not find message by the offset, 1"), MessageNotFound),
    ],
)
async def test_without_the_messages_topic_nothing_is_forwarded(
    tmp_path: Path, code: RequestCode, shown: RemotingCommand, error: type[RemotingError]
) -> None:
    """Also not if there is no message: there may be one when the request arrives."""
    made = authority(tmp_path)
    backend = FakeBackend(answer=lambda _, sent: shown if sent.code == RequestCode.VIEW_MESSAGE_BY_ID else success())
    core, guard = stage(backend).core, StoredMessages(made, ReplyRecipients())
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    sent = command(code, offset="1", commitLogOffset="1", group="g", bname="broker-a")
    with pytest.raises(error, match=shown.remark if error is MessageNotFound else "does not show the message"):
        await guard.handlers[code](core, Context(channel, sent, REQUESTS[code], 0.0))
    assert [each.code for each in backend.sent] == [RequestCode.VIEW_MESSAGE_BY_ID]


async def test_a_delayed_message_is_not_hidden_by_others_with_its_id(tmp_path: Path) -> None:
    """A broker returns only the newest 32 messages, and recalls any with the id."""
    made = authority(tmp_path)
    topics = ["secret", *(["orders"] * 40)]
    records = [
        messages.encode_message(messages.StoredMessage(topic=TIMERS, properties=f"REAL_TOPIC\x01{topic}\x02"))
        for topic in topics
    ]

    def answer(_: str, sent: RemotingCommand) -> RemotingCommand:
        newest = records[::-1][: int(sent.fields.get("maxNum", "0"))]
        return success(body=b"".join(newest)) if sent.code == RequestCode.QUERY_MESSAGE else success()

    core, guard = stage(FakeBackend(answer=answer)).core, StoredMessages(made, ReplyRecipients())
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    handle = RecallHandle("orders", "broker-a", 1, "A")
    recall = request(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=str(handle), bname="broker-a")
    reply = await guard.recall(core, Context(channel, recall, REQUESTS[recall.code], 0.0))
    assert reply.code == NO_PERMISSION


async def test_a_message_is_committed_to_the_topic_that_it_names(tmp_path: Path) -> None:
    """A broker takes any message for a half message."""
    made = authority(tmp_path)
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    message = messages.StoredMessage(topic="orders", commit_log_offset=1, properties="REAL_TOPIC\x01secret\x02")
    core, guard = stage(_broker(message, message)).core, StoredMessages(made, ReplyRecipients())
    sent = command(RequestCode.END_TRANSACTION, **_OFFSET, bname="broker-a")
    reply = await guard.end_transaction(core, Context(channel, sent, REQUESTS[sent.code], 0.0))
    assert reply.code == NO_PERMISSION
    assert reply.remark == "the user alice-1 has no permission Pub on the message's topic"


def _broker(record: messages.StoredMessage, queued: messages.StoredMessage) -> FakeBackend:
    """A broker that shows one record at every offset, and has one message in every queue."""

    def answer(_: str, sent: RemotingCommand) -> RemotingCommand:
        shown = {RequestCode.VIEW_MESSAGE_BY_ID: record, RequestCode.PULL_MESSAGE: queued}.get(RequestCode(sent.code))
        return success(body=b"" if shown is None else messages.encode_message(shown))

    return FakeBackend(names=["broker-a"], answer=answer)


_OFFSET = {"offset": "1", "commitLogOffset": "1", "msgId": str(OffsetMessageId("127.0.0.1", 10911, 1))}


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
    ],
)
async def test_bytes_in_a_message_are_not_taken_for_a_message(tmp_path: Path, code: RequestCode) -> None:
    """A broker shows what is at any offset, such as a record that a client has put into the body of a message."""
    made = authority(tmp_path)
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    real = messages.StoredMessage(topic="orders", commit_log_offset=1)
    for queued, served in ((real, True), (messages.StoredMessage(topic="orders", commit_log_offset=0), False)):
        backend = _broker(real, queued)
        core, guard = stage(backend).core, StoredMessages(made, ReplyRecipients())
        sent = command(code, **_OFFSET, consumerGroup="g", clientId="c1", group="g", bname="broker-a")
        serving = guard.handlers[code](core, Context(channel, sent, REQUESTS[code], 0.0))
        if served:
            assert (await serving).code == 0
        else:
            with pytest.raises(NotPermitted):
                await serving
        last = backend.sent[-1]
        assert last.code == (code if served else RequestCode.PULL_MESSAGE)


@pytest.mark.parametrize("code", [RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION])
@pytest.mark.parametrize(
    ("pairs", "permitted"),
    [
        ({}, True),
        ({"TIMER_DEL_UNIQKEY": "B"}, False),
        ({"INNER_MULTI_DISPATCH": "secret"}, False),
        ({"INNER_MULTI_DISPATCH": "orders"}, True),
        # The broker's own.
        ({"INNER_MULTI_DISPATCH": "%LMQ%$orders$a", "INNER_MULTI_QUEUE_OFFSET": "0"}, True),
        ({"INNER_MULTI_DISPATCH": "%LMQ%$orders$a,%LMQ%$secret$a"}, False),
    ],
)
async def test_a_message_that_affects_other_topics_is_not_stored_again(
    tmp_path: Path, code: RequestCode, pairs: dict[str, str], permitted: bool
) -> None:
    made = authority(tmp_path)
    channel = FakeChannel(principal=made.principal("alice-1", Method.SIGNATURE))
    message = messages.StoredMessage(topic="orders", commit_log_offset=1, properties=properties.encode(pairs))
    core, guard = stage(_broker(message, message)).core, StoredMessages(made, ReplyRecipients())
    sent = command(code, **_OFFSET, group="g", bname="broker-a")
    reply = await guard.handlers[code](core, Context(channel, sent, REQUESTS[code], 0.0))
    assert reply.code == (0 if permitted else NO_PERMISSION)
    assert (
        permitted
        or reply.remark == "the user alice-1 has no permission Pub on a further topic that the message affects"
    )
