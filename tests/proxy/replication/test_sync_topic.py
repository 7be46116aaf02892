import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.replication import sync_topic as topics
from proxy.replication.sync_topic import SyncTopic
from remoting import command as commands
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.messages import StoredMessage, SysFlag
from remoting.outcomes import Reply
from remoting.requests import REQUESTS, RequestSpec
from remoting.routes import TopicRoute, parse
from tests.proxy.fakes import FakeBackend, Sent
from tests.proxy.messages import route
from tests.waiting import until

pytestmark = pytest.mark.anyio

_SEND = RequestCode.SEND_BATCH_MESSAGE
_CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
_PULL = RequestCode.PULL_MESSAGE
_END = RequestCode.GET_MAX_OFFSET


class Brokers(FakeBackend):
    """Brokers with one queue each, read by long polls. `trouble`: by code, the next reply, used once."""

    def __init__(self, *names: str, having: tuple[str, ...] | None = None) -> None:
        super().__init__(names=names)
        self.having = list(names if having is None else having)
        self.queues: dict[str, list[StoredMessage]] = defaultdict(list)
        self.trouble: dict[int, list[RemotingCommand | Exception]] = defaultdict(list)
        self._polls: list[tuple[str, int, Reply]] = []

    async def route(self, topic: str) -> TopicRoute:
        await asyncio.sleep(0)
        if not self.names:
            raise ServiceUnavailable("no name server can be reached")
        if not self.having:
            raise TopicNotExist(f"No topic route info in name server for the topic: {topic}")
        found = route(topic, *self.having)
        for queue in found.data["queueDatas"]:
            queue["readQueueNums"] = 1
        return found

    def request(self, broker: str, spec: RequestSpec, command: RemotingCommand, timeout: float, channel: Any) -> Reply:
        assert channel is None
        self.sent.append(Sent(broker, command.code, dict(command.fields), command.body, timeout))
        reply: Reply = asyncio.get_running_loop().create_future()
        if self.trouble[command.code]:
            _settle(reply, self.trouble[command.code].pop(0))
        elif command.code == _PULL:
            self._polls.append((broker, command.integer("queueOffset"), reply))
            self._answer()
        elif command.code == _END:
            reply.set_result(commands.success({"offset": str(len(self.queues[broker]))}))
        else:
            if command.code == _CREATE:
                self.having.append(broker)
            reply.set_result(commands.success())
        return reply

    def write(self, broker: str, *stored: StoredMessage | str) -> None:
        self.queues[broker] += [_stored(item) if isinstance(item, str) else item for item in stored]
        self._answer()

    def _answer(self) -> None:
        """Answer the polls that have messages."""
        polls, self._polls = self._polls, []
        for broker, offset, reply in polls:
            news = self.queues[broker][offset:]
            if not news:
                self._polls.append((broker, offset, reply))
                continue
            body = b"".join(map(messages.encode_message, news))
            _settle(reply, commands.success({"nextBeginOffset": str(offset + len(news))}, body))

    def codes(self, code: int) -> list[Sent]:
        return [sent for sent in self.sent if sent.code == code]


def _settle(reply: Reply, outcome: RemotingCommand | Exception) -> None:
    if reply.done():
        return
    if isinstance(outcome, Exception):
        reply.set_exception(outcome)
    else:
        reply.set_result(outcome)


def _stored(text: str) -> StoredMessage:
    return StoredMessage(topic="sync", body=text.encode())


def refusal(code: int = ResponseCode.SYSTEM_BUSY, **fields: str) -> RemotingCommand:
    return commands.response(code, fields, remark="not now")


@asynccontextmanager
async def reading(backend: Brokers, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """Read the topic in the background and yield the list of received bodies."""
    monkeypatch.setattr(topics, "_RETRY_DELAY", 0.01)
    monkeypatch.setattr(topics, "_CHECK_INTERVAL", 0.02)
    monkeypatch.setattr(topics, "_FIRST_CHECK_INTERVAL", 0.02)
    taken: list[str] = []
    task = asyncio.ensure_future(SyncTopic(backend, "sync").read(lambda body: taken.append(body.decode())))
    try:
        yield taken
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# Writing.


async def test_messages_are_sent_as_one_batch() -> None:
    backend = Brokers("broker-a")
    await SyncTopic(backend, "sync").send([b"one", b"two"])
    (sent,) = backend.sent
    assert (sent.broker, sent.code) == ("broker-a", _SEND)
    assert REQUESTS[_SEND].required <= sent.fields.keys()
    letters = {name: sent.fields[name] for name in "abemn"}
    assert letters == {"a": "PID_sync", "b": "sync", "e": "0", "m": "true", "n": "broker-a"}
    assert [message.body for message in messages.decode_batch(sent.body)] == [b"one", b"two"]


async def test_sends_start_at_the_next_broker_each_time() -> None:
    backend = Brokers("broker-a", "broker-b")
    topic = SyncTopic(backend, "sync")
    for _ in range(4):
        await topic.send([b"x"])
    assert [sent.broker for sent in backend.sent] == ["broker-a", "broker-b", "broker-a", "broker-b"]


@pytest.mark.parametrize(
    ("trouble", "asked"),
    [
        ([ConnectionLost("gone")], 2),
        ([ServiceUnavailable("no master"), refusal()], 3),
        ([refusal()], 2),
        # The message is stored; only its replication to slaves is late or impossible.
        ([refusal(ResponseCode.SLAVE_NOT_AVAILABLE)], 1),
        ([refusal(ResponseCode.FLUSH_SLAVE_TIMEOUT)], 1),
    ],
)
async def test_send_ends_at_the_first_broker_that_accepts(
    trouble: list[RemotingCommand | Exception], asked: int
) -> None:
    backend = Brokers("broker-a", "broker-b", "broker-c")
    backend.trouble[_SEND] = list(trouble)
    await SyncTopic(backend, "sync").send([b"x"])
    assert len(backend.sent) == asked


@pytest.mark.parametrize(
    ("backend", "trouble", "error", "text"),
    [
        (Brokers(), [], ServiceUnavailable, "no name server"),
        (Brokers("broker-a", having=()), [], TopicNotExist, "No topic route info in name server for the topic: sync"),
        (Brokers("broker-a"), [ConnectionLost("gone")], ConnectionLost, "gone"),
        (Brokers("broker-a"), [refusal()], ServiceUnavailable, "broker-a answered 2: not now"),
    ],
)
async def test_send_raises_the_error_of_the_last_broker(
    backend: Brokers, trouble: list[RemotingCommand | Exception], error: type[RemotingError], text: str
) -> None:
    backend.trouble[_SEND] = list(trouble)
    with pytest.raises(error, match=text):
        await SyncTopic(backend, "sync").send([b"x"])


async def test_topic_without_brokers_is_unavailable() -> None:
    backend = FakeBackend(warm={"sync": parse("sync", b"{}")})
    with pytest.raises(ServiceUnavailable, match="topic sync has no available broker"):
        await SyncTopic(backend, "sync").send([b"x"])


# Reading.


async def test_read_starts_at_the_end_of_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Brokers("broker-a", "broker-b")
    backend.write("broker-a", "old", "older")
    async with reading(backend, monkeypatch) as taken:
        await until(lambda: len(backend.codes(_PULL)) == 2)
        backend.write("broker-a", "one", "two")
        backend.write("broker-b", "three")
        await until(lambda: len(taken) == 3)
        backend.write("broker-a", "four")
        await until(lambda: len(taken) == 4)
    assert sorted(taken[:3]) == ["one", "three", "two"]
    assert taken[3] == "four"
    pulls = backend.codes(_PULL)
    assert [sent.fields["queueOffset"] for sent in pulls if sent.broker == "broker-a"] == ["2", "4", "5"]
    assert {sent.fields["consumerGroup"] for sent in pulls} == {"CID_sync"}
    assert all(REQUESTS[_PULL].required <= sent.fields.keys() for sent in pulls)
    # The timeout exceeds the requested duration of the poll.
    assert all((sent.timeout or 0) > int(sent.fields["suspendTimeoutMillis"]) / 1000 for sent in pulls)
    assert backend.codes(_CREATE) == []


async def test_topic_is_created_at_brokers_that_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Brokers("broker-a", "broker-b", having=())
    async with reading(backend, monkeypatch) as taken:
        await until(lambda: len(backend.codes(_PULL)) == 2)
        assert sorted(sent.broker for sent in backend.codes(_CREATE)) == ["broker-a", "broker-b"]
        assert backend.codes(_CREATE)[0].fields == {
            "topic": "sync",
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        backend.names = ("broker-a", "broker-b", "broker-c")
        await until(lambda: len(backend.codes(_PULL)) == 3)
        assert [sent.broker for sent in backend.codes(_CREATE)][2:] == ["broker-c"]
        backend.write("broker-c", "news")
        await until(lambda: taken == ["news"])
    # No queue is read twice.
    assert [sent.broker for sent in backend.codes(_PULL)].count("broker-a") == 1


async def test_new_topic_is_read_as_soon_as_it_has_a_route(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The route cache keeps a missing topic for a second, and brokers register a new topic late."""

    class Late(Brokers):
        async def route(self, topic: str) -> TopicRoute:
            if len(self.codes(_CREATE)) < 3:
                raise TopicNotExist(f"No topic route info in name server for the topic: {topic}")
            return await super().route(topic)

    backend = Late("broker-a", having=())
    caplog.set_level(logging.INFO, "gantry.sync")
    async with reading(backend, monkeypatch) as taken:
        monkeypatch.setattr(topics, "_CHECK_INTERVAL", 3600)
        await until(lambda: backend.codes(_PULL))
        backend.write("broker-a", "news")
        await until(lambda: taken == ["news"])
    assert caplog.text.count("not available, retrying") == 1


async def test_broker_that_rejects_the_topic_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Brokers("broker-a", "broker-b", having=("broker-b",))
    backend.trouble[_CREATE] = [ConnectionLost("gone"), refusal()]
    async with reading(backend, monkeypatch) as taken:
        await until(lambda: backend.codes(_PULL))
        order = [sent.code for sent in backend.sent]
        assert order[: order.index(_PULL)].count(_CREATE) == 1
        await until(lambda: len(backend.codes(_CREATE)) == 3 and len(backend.codes(_PULL)) == 2)
        backend.write("broker-a", "news")
        await until(lambda: "news" in taken)
    assert "creating the topic sync at broker broker-a failed: not now" in caplog.text


async def test_read_waits_for_the_cluster(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gantry.sync")
    backend = Brokers()
    async with reading(backend, monkeypatch) as taken:
        await until(lambda: "not available, retrying: no name server" in caplog.text)
        backend.names, backend.having = ("broker-a",), ["broker-a"]
        await until(lambda: backend.codes(_PULL))
        backend.write("broker-a", "news")
        await until(lambda: taken == ["news"])


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (_END, ConnectionLost("gone")),
        (_END, refusal()),
        (_END, commands.success({"offset": "x"})),
        (_PULL, ConnectionLost("gone")),
        (_PULL, refusal(ResponseCode.NO_PERMISSION)),
        (_PULL, commands.success()),
        (_PULL, refusal(ResponseCode.PULL_NOT_FOUND, nextBeginOffset="1")),
        (_PULL, refusal(ResponseCode.PULL_RETRY_IMMEDIATELY, nextBeginOffset="1")),
    ],
    ids=["end lost", "end refused", "no end", "lost", "refused", "no offset", "nothing new", "at once"],
)
async def test_failed_read_continues_at_its_offset(
    monkeypatch: pytest.MonkeyPatch, code: int, trouble: RemotingCommand | Exception
) -> None:
    backend = Brokers("broker-a")
    backend.write("broker-a", "old")
    backend.trouble[code] = [trouble]
    async with reading(backend, monkeypatch) as taken:
        await until(lambda: len(backend.codes(code)) == 2 and backend.codes(_PULL))
        backend.write("broker-a", "news")
        await until(lambda: taken)
    assert taken == ["news"]
    assert {sent.fields["queueOffset"] for sent in backend.codes(_PULL)} <= {"1", "2"}


async def test_read_follows_a_moved_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Brokers("broker-a")
    backend.trouble[_END] = [commands.success({"offset": "700"})]
    backend.trouble[_PULL] = [refusal(ResponseCode.PULL_OFFSET_MOVED, nextBeginOffset="0")]
    async with reading(backend, monkeypatch) as taken:
        backend.write("broker-a", "news")
        await until(lambda: taken == ["news"])
    assert [sent.fields["queueOffset"] for sent in backend.codes(_PULL)] == ["700", "0", "1"]


async def test_undecodable_message_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Brokers("broker-a")
    spoilt = StoredMessage(topic="sync", body=b"not compressed", sys_flag=int(SysFlag.COMPRESSED))
    async with reading(backend, monkeypatch) as taken:
        await until(lambda: backend.codes(_PULL))
        backend.write("broker-a", "one", spoilt, "two")
        await until(lambda: len(backend.codes(_PULL)) == 2)
    assert taken == ["one", "two"]
    assert "ignoring an unreadable message on topic sync" in caplog.text
