"""POP: delivery, acknowledgement, change of the invisible time, peek; in both header encodings."""

import time

import anyio
import pytest

from remoting import messages, pop
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode, SerializeType
from remoting.command import RemotingCommand
from remoting.pop import PoppedMessage
from remoting.pop_offset_info import Retry, real_topic
from tests.cluster.client import BROKER, Client, create_topic, described, queue_fields, unique, wait_until
from tests.cluster.coverage import covers
from tests.cluster.servers import TIMEOUT, Cluster, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]

_ENCODINGS = pytest.mark.parametrize("encoding", list(SerializeType), ids=lambda encoding: encoding.name)


def _pop_fields(topic: str, group: str, invisible: int = 30_000, wait: int = 0, count: int = 32) -> dict[str, object]:
    return queue_fields(
        topic,
        consumerGroup=group,
        maxMsgNums=count,
        invisibleTime=invisible,
        pollTime=wait,
        # A client clock that is an hour behind, which the broker must tolerate.
        bornTime=int(time.time() * 1000) - 3_600_000,
        initMode=0,
        expType="TAG",
        exp="*",
        order=False,
    )


def _handles(reply: RemotingCommand, topic: str) -> list[PoppedMessage]:
    """Return the messages of a response with the receipt handles that a client makes for them."""
    return pop.popped(messages.decode_messages(reply.body), topic, reply.fields, BROKER)


async def _pop(client: Client, topic: str, group: str, **options: int) -> list[PoppedMessage]:
    reply = await client.ask(RequestCode.POP_MESSAGE, _pop_fields(topic, group, **options), timeout=TIMEOUT)
    if reply.code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT}:
        return []
    assert reply.code == ResponseCode.SUCCESS, described(reply)
    return _handles(reply, topic)


def _bodies(popped: list[PoppedMessage]) -> list[bytes]:
    return [one.message.body for one in popped]


def _ack_fields(topic: str, group: str, popped: PoppedMessage) -> dict[str, object]:
    # Without bname: it is in the handle.
    handle = popped.extra_info
    return {
        "consumerGroup": group,
        "topic": real_topic(topic, group, handle.retry),
        "queueId": handle.queue_id,
        "extraInfo": handle,
        "offset": handle.queue_offset,
    }


@covers(RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)
@_ENCODINGS
async def test_a_popped_message_is_redelivered_unless_acknowledged(
    cluster: Cluster, gantry: Gantry, replica: Gantry, encoding: SerializeType
) -> None:
    """Guards against POP and ACK with handlers that cannot serve them (8.4)."""
    topic, group = await create_topic(cluster.broker, "pop"), unique("group")
    async with Client(gantry.address, encoding=encoding) as client, Client(replica.address) as other:
        await client.heartbeat({group: [topic]}, consumeType="CONSUME_POP")
        for number in range(4):
            await client.send(topic, b"%d" % number)
        # A stored message can be popped a moment later.
        popped: list[PoppedMessage] = []
        while len(popped) < 4:
            popped += await _pop(client, topic, group, invisible=5000, wait=1000)
        assert _bodies(popped) == [b"0", b"1", b"2", b"3"]
        # One is acknowledged here, two in a batch through another replica.
        await client.get(RequestCode.ACK_MESSAGE, _ack_fields(topic, group, popped[0]))
        batch = BatchAckBody(BROKER, batch_acks(topic, group, [one.extra_info for one in popped[1:3]]))
        await other.get(RequestCode.BATCH_ACK_MESSAGE, {}, batch.encode())
        assert await _pop(client, topic, group) == []
        begin = time.monotonic()
        again: list[PoppedMessage] = []
        while not again and time.monotonic() - begin < TIMEOUT:
            again = await _pop(client, topic, group, wait=3000)
        assert _bodies(again) == [b"3"]
        assert again[0].extra_info.retry is not Retry.NORMAL
        assert again[0].reconsume_times == 1
        await client.get(RequestCode.ACK_MESSAGE, _ack_fields(topic, group, again[0]))


@covers(RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO)
@_ENCODINGS
async def test_pops_and_notifications_wait_for_a_message(
    cluster: Cluster, gantry: Gantry, encoding: SerializeType
) -> None:
    topic, group = await create_topic(cluster.broker, "wait"), unique("group")
    async with Client(gantry.address, encoding=encoding) as client, Client(gantry.address) as producer:
        await client.heartbeat({group: [topic]}, consumeType="CONSUME_POP")
        waiting = client.begin(RequestCode.POP_MESSAGE, _pop_fields(topic, group, wait=15_000), timeout=30)
        notice = {
            "consumerGroup": group,
            "pollTime": 15_000,
            "bornTime": int(time.time() * 1000) - 3_600_000,
            "order": False,
        }
        notification = client.begin(RequestCode.NOTIFICATION, {**queue_fields(topic), **notice}, timeout=30)
        await anyio.sleep(0.5)
        info = await client.get(RequestCode.POLLING_INFO, queue_fields(topic, consumerGroup=group))
        assert int(info.fields["pollingNum"]) >= 1
        assert not waiting.done()
        assert not notification.done()
        begin = time.monotonic()
        await producer.send(topic, b"at last")
        popped = _handles(await waiting, topic)
        assert _bodies(popped) == [b"at last"]
        await client.get(RequestCode.ACK_MESSAGE, _ack_fields(topic, group, popped[0]))
        assert time.monotonic() - begin < 12
        await producer.send(topic, b"another")
        assert (await notification).fields["hasMsg"] == "true"
        nothing = await client.ask(
            RequestCode.NOTIFICATION, {**queue_fields(topic), **notice, "consumerGroup": unique("group"), "pollTime": 0}
        )
        assert nothing.code == ResponseCode.SUCCESS, described(nothing)


@covers(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.PEEK_MESSAGE)
@_ENCODINGS
async def test_change_invisible_time_redelivers_at_the_new_time(
    cluster: Cluster, gantry: Gantry, encoding: SerializeType
) -> None:
    topic, group = await create_topic(cluster.broker, "change"), unique("group")
    async with Client(gantry.address, encoding=encoding) as client:
        await client.heartbeat({group: [topic]}, consumeType="CONSUME_POP")
        await client.send(topic, b"patience")
        peek = queue_fields(topic, consumerGroup=group, maxMsgNums=32)

        async def peeked() -> list[bytes]:
            reply = await client.ask(RequestCode.PEEK_MESSAGE, peek)
            assert reply.code in {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND}, described(reply)
            return [message.body for message in messages.decode_messages(reply.body)]

        await wait_until(peeked, "the message in its queue")
        assert await peeked() == [b"patience"]
        [popped] = await _pop(client, topic, group, invisible=30_000, wait=1000)
        handle = popped.extra_info
        fields = {**_ack_fields(topic, group, popped), "invisibleTime": 1500}
        reply = await client.get(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        changed = handle.changed(reply.fields)
        assert changed.invisible_time == 1500
        assert changed.pop_time >= handle.pop_time
        # The old handle has expired.
        await client.ask(RequestCode.ACK_MESSAGE, _ack_fields(topic, group, popped))
        again: list[PoppedMessage] = []
        begin = time.monotonic()
        while not again and time.monotonic() - begin < TIMEOUT:
            again = await _pop(client, topic, group, wait=3000)
        assert _bodies(again) == [b"patience"]
        wrong = {**_ack_fields(topic, group, again[0]), "offset": 10**6, "topic": topic}
        assert (await client.ask(RequestCode.ACK_MESSAGE, wrong)).code == ResponseCode.NO_MESSAGE
        queue = {**_ack_fields(topic, group, again[0]), "queueId": 99, "topic": topic}
        assert (await client.ask(RequestCode.ACK_MESSAGE, queue)).code == ResponseCode.MESSAGE_ILLEGAL


@covers(RequestCode.POP_LITE_MESSAGE, RequestCode.LITE_SUBSCRIPTION_CTL, RequestCode.NOTIFY_UNSUBSCRIBE_LITE)
@_ENCODINGS
async def test_lite_topic_requests_are_rejected_by_brokers_without_lite_topics(
    cluster: Cluster, gantry: Gantry, encoding: SerializeType
) -> None:
    """Version 5.4 of the broker rejects them itself; clients may not send the notification."""
    topic, group = await create_topic(cluster.broker, "lite"), unique("group")
    async with Client(gantry.address, encoding=encoding) as client:
        fields = queue_fields(
            topic, clientId=client.client_id, consumerGroup=group, maxMsgNum=1, invisibleTime=10_000, pollTime=0
        )
        for code, given in (
            (RequestCode.POP_LITE_MESSAGE, fields),
            (RequestCode.LITE_SUBSCRIPTION_CTL, {"bname": BROKER}),
            (RequestCode.NOTIFY_UNSUBSCRIBE_LITE, {"clientId": client.client_id, "liteTopic": "a"}),
        ):
            reply = await client.ask(code, given, b"{}")
            assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, described(reply)


async def test_a_pop_of_too_many_messages_is_rejected(cluster: Cluster, gantry: Gantry) -> None:
    topic, group = await create_topic(cluster.broker, "many"), unique("group")
    async with Client(gantry.address) as client:
        await client.heartbeat({group: [topic]}, consumeType="CONSUME_POP")
        reply = await client.ask(RequestCode.POP_MESSAGE, _pop_fields(topic, group, count=33))
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert reply.remark


@pytest.mark.parametrize("alias", [3442, 3443, 3444, 3445, 3446, 3447, 3543])
async def test_codes_truncated_by_java_clients_are_accepted(gantry: Gantry, alias: int) -> None:
    """A Java client with binary headers sends the low 16 bits of the codes over 32767."""
    async with Client(gantry.address, encoding=SerializeType.ROCKETMQ) as client:
        reply = await client.ask(alias, {}, b"{}")
        assert reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED, described(reply)
        assert reply.serialize_type == SerializeType.ROCKETMQ
