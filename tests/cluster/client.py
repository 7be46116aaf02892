"""A raw remoting client, which sends exactly the given fields and keeps all pushes."""

import asyncio
import itertools
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self

import anyio
import orjson

from remoting import command as commands
from remoting import messages, properties
from remoting.close_cause import CloseCause
from remoting.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.frame import FrameDecoder
from remoting.messages import StoredMessage
from remoting.outcomes import Reply
from remoting.signature import Credentials, sign
from remoting.timeout_wheel import TimeoutWheel
from tests.cluster import coverage
from tests.cluster.servers import TIMEOUT, Failed, eventually

BROKER = "broker-a"
_numbers = itertools.count(1)
_V2 = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}


def unique(name: str) -> str:
    """Return a unique name."""
    return f"{name}-{time.time_ns() // 1000 % 10**9}-{next(_numbers)}"


class BinaryConnection(RemotingConnection):
    """A connection whose frames all have binary headers."""

    def _write(self, header: bytes, body: bytes) -> None:
        (frame,) = FrameDecoder().feed(header + body)
        command = commands.decode(frame)
        command.serialize_type = SerializeType.ROCKETMQ
        super()._write(command.encode(), body)


class Client:
    """One connection. `async with` it.

    pushes are the requests of the other side in their order; `answers` has the functions that answer them, by code.
    credentials: sign all requests. tls: the context of a TLS connection.
    """

    wire: ClassVar[type[RemotingConnection]] = RemotingConnection

    def __init__(
        self,
        address: str,
        client_id: str = "",
        *,
        language: str = LanguageCode.JAVA.name,
        version: int = 481,
        encoding: SerializeType = SerializeType.JSON,
        broker: str | None = BROKER,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.client_id = client_id or unique("client")
        self.language = language
        self.version = version
        self.broker = broker
        self.credentials = credentials
        self.pushes: list[RemotingCommand] = []
        self.answers: dict[int, Callable[[RemotingCommand], RemotingCommand]] = {}
        self._kind = BinaryConnection if encoding is SerializeType.ROCKETMQ else self.wire
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._wheel = TimeoutWheel(self._loop.time)
        self._ticking: asyncio.TimerHandle | None = None
        self._wire: RemotingConnection

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        _, self._wire = await self._loop.create_connection(
            lambda: self._kind(self._wheel, self._pushed, lambda _: None, name=self.address),
            host,
            int(port),
            ssl=self._tls,
        )
        self._tick()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._wire.close(CloseCause.LOCAL)
        with suppress(Failed):
            await eventually(lambda: self._wire.closed, timeout=2)

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._wire.closed

    @property
    def local_address(self) -> str:
        """This side's host:port."""
        transport = self._wire.transport
        assert transport is not None
        host, port = transport.get_extra_info("sockname")
        return f"{host}:{port}"

    def pause(self) -> None:
        """Pause reads."""
        self._wire.pause()

    def resume(self) -> None:
        """Resume reads."""
        self._wire.resume()

    def abort(self) -> None:
        """Abort the connection."""
        self._wire.abort(CloseCause.LOCAL)

    def write(self, data: bytes) -> None:
        """Write raw bytes."""
        assert self._wire.transport is not None
        self._wire.transport.write(data)

    # Requests.

    def begin(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", timeout: float = TIMEOUT
    ) -> Reply:
        """Send a request; return the future of its response."""
        future = self._wire.request(self._command(code, fields, body), timeout)
        # A failed test does not await it.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    async def ask(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        timeout: float = TIMEOUT,
        version: int | None = None,
    ) -> RemotingCommand:
        """Send a request and return its response."""
        command = self._command(code, fields, body)
        if version is not None:
            command.header["version"] = version
        return await self._wire.request(command, timeout)

    async def get(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, timeout: float = TIMEOUT
    ) -> RemotingCommand:
        """Send a request and return its response, which must be SUCCESS."""
        return ok(await self.ask(code, fields, body, timeout=timeout))

    def send_oneway(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> None:
        """Send a oneway request."""
        self._wire.oneway(self._command(code, fields, body))

    def _command(self, code: int, fields: Mapping[str, object] | None, body: bytes) -> RemotingCommand:
        command = commands.request(code, strings(fields or {}), body)
        command.header["language"] = self.language
        command.header["version"] = self.version
        coverage.saw(self.address, code)
        if self.credentials is not None:
            sign(command, self.credentials)
        return command

    # Pushes.

    def _pushed(self, _: RemotingConnection, command: RemotingCommand) -> Reply | None:
        self.pushes.append(command)
        coverage.saw(self.address, command.code)
        if command.is_oneway:
            return None
        reply: Reply = self._loop.create_future()
        answer = self.answers.get(command.code)
        reply.set_result(commands.success() if answer is None else answer(command))
        return reply

    def pushed(self, code: int) -> list[RemotingCommand]:
        """Return the pushes of this code so far."""
        return [command for command in self.pushes if command.code == code]

    async def push(self, code: int, timeout: float = TIMEOUT) -> RemotingCommand:
        """Wait for a push of this code; remove and return the first one."""
        await eventually(lambda: self.pushed(code), f"a push of {RequestCode(code).name}", timeout)
        command = self.pushed(code)[0]
        self.pushes.remove(command)
        return command

    def _tick(self) -> None:
        self._wheel.advance()
        self._ticking = self._loop.call_later(self._wheel.tick, self._tick)

    # Common requests.

    def named(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields with the broker's name, unless this client sends none."""
        return {**fields, "bname": self.broker} if self.broker is not None else dict(fields)

    async def heartbeat(
        self,
        consumers: Mapping[str, Iterable[str]] | None = None,
        producers: Iterable[str] = (),
        **changes: object,
    ) -> RemotingCommand:
        """Send a heartbeat with consumer groups, their topics, and producer groups."""
        return await self.get(
            RequestCode.HEART_BEAT, body=heartbeat(self.client_id, consumers or {}, producers, **changes)
        )

    async def send(
        self, topic: str, body: bytes, pairs: Mapping[str, str] | None = None, queue: int = 0, **changes: object
    ) -> RemotingCommand:
        """Send a message by SEND_MESSAGE_V2, which must succeed; `changes` are fields by their long names."""
        fields = self.named(send_fields(topic, properties.encode(pairs or {}), queue, **changes))
        return await self.get(RequestCode.SEND_MESSAGE_V2, v2(fields), body)

    async def pull(
        self, topic: str, group: str, queue: int = 0, offset: int = 0, wait: int = 3000
    ) -> list[StoredMessage]:
        """Pull all messages by PULL_MESSAGE; wait up to `wait` ms for one.

        A broker delivers a message a moment after the response to its send, so tests that need one wait for it.
        """
        end = time.monotonic() + wait / 1000
        fields = self.named(pull_fields(topic, group, queue, offset, wait))
        while True:
            reply = await self.ask(RequestCode.PULL_MESSAGE, fields, timeout=TIMEOUT + wait / 1000)
            if reply.code == ResponseCode.SUCCESS:
                return messages.decode_messages(reply.body)
            assert reply.code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY}, described(reply)
            if reply.code == ResponseCode.PULL_NOT_FOUND or time.monotonic() > end:
                return []

    async def pull_all(self, count: int, topic: str, group: str, queue: int = 0) -> list[StoredMessage]:
        """Return the first `count` messages of a queue."""
        found: list[StoredMessage] = []
        while len(found) < count:
            found += (more := await self.pull(topic, group, queue, len(found)))
            assert more, f"{len(found)} of {count} messages"
        return found

    async def consumers(self, group: str) -> list[str]:
        """Return the members of a group by GET_CONSUMER_LIST_BY_GROUP, none if it is refused."""
        reply = await self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return json(reply)["consumerIdList"] if reply.code == ResponseCode.SUCCESS else []

    async def route(self, topic: str) -> dict[str, Any]:
        """Return the route by GET_ROUTEINFO_BY_TOPIC, which must succeed."""
        data: dict[str, Any] = json(await self.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
        return data


def ok(reply: RemotingCommand) -> RemotingCommand:
    """Return the response, which must be SUCCESS."""
    assert reply.code == ResponseCode.SUCCESS, described(reply)
    return reply


def described(reply: RemotingCommand) -> str:
    """Return a response as the message of an assertion."""
    return f"{reply.code}: {reply.remark} {reply.fields}"


def json(reply: RemotingCommand) -> Any:
    """Return the response's body."""
    return orjson.loads(reply.body)


def strings(fields: Mapping[str, object]) -> dict[str, str]:
    """Return fields as Java writes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }


def send_fields(topic: str, text: str = "", queue: int = 0, **changes: object) -> dict[str, object]:
    """Return the header of a SEND_MESSAGE."""
    return {
        "producerGroup": "test-producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": text,
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
        **changes,
    }


def v2(fields: Mapping[str, object]) -> dict[str, object]:
    """Return a header with the one-letter names of SEND_MESSAGE_V2; other names remain."""
    return {_V2.get(name, name): value for name, value in fields.items()}


def pull_fields(topic: str, group: str, queue: int = 0, offset: int = 0, wait: int = 0) -> dict[str, object]:
    """Return the header of a PULL_MESSAGE."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": int(messages.PullSysFlag.SUBSCRIPTION | (messages.PullSysFlag.SUSPEND if wait else 0)),
        "commitOffset": 0,
        "suspendTimeoutMillis": wait,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def heartbeat(
    client_id: str, consumers: Mapping[str, Iterable[str]], producers: Iterable[str], **changes: object
) -> bytes:
    """Return HeartbeatData; `changes` apply to every consumer."""
    return orjson.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "unitMode": False,
                    "subscriptionDataSet": [subscription(topic) for topic in topics],
                    **changes,
                }
                for group, topics in consumers.items()
            ],
        }
    )


def subscription(topic: str, expression: str = "*", kind: str = "TAG") -> dict[str, object]:
    """Return SubscriptionData."""
    return {
        "topic": topic,
        "subString": expression,
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 1_700_000_000_000,
        "expressionType": kind,
        "classFilterMode": False,
    }


def queue_fields(topic: str, queue: int = 0, **more: object) -> dict[str, object]:
    """Return the header of most requests for one queue."""
    return {"topic": topic, "queueId": queue, "bname": BROKER, **more}


def message_queue(topic: str, queue: int, broker: str = BROKER) -> dict[str, object]:
    """Return a MessageQueue."""
    return {"topic": topic, "brokerName": broker, "queueId": queue}


def lists(client: Client, group: str, *members: str) -> Callable[[], Awaitable[bool]]:
    """Return a check that these are the members of the group, in any order, by the client's proxy."""

    async def check() -> bool:
        return sorted(await client.consumers(group)) == sorted(members)

    return check


async def create_topic(
    broker: str,
    name: str,
    queues: int = 1,
    kind: str = "NORMAL",
    credentials: Credentials | None = None,
    exact: bool = False,
) -> str:
    """Create a topic of a unique name, or with `exact` of this name, at this broker; return the name."""
    topic = name if exact else unique(name)
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": f"+message.type={kind}",
    }
    async with Client(broker, credentials=credentials) as client:
        await client.get(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    return topic


async def wait_until(check: Callable[[], Any], what: str = "it", timeout: float = TIMEOUT, pause: float = 0.1) -> float:
    """Wait until the awaited check() is true; return the duration in seconds."""
    begin = time.monotonic()
    while not await check():
        if time.monotonic() - begin > timeout:
            raise Failed(f"{what} did not happen within {timeout} s")
        await anyio.sleep(pause)
    return time.monotonic() - begin


async def wait_until_end_is(client: Client, topic: str, count: int) -> None:
    """Wait until queue 0 of the topic ends at the offset `count`: brokers index a message after they have stored it."""

    async def end() -> int:
        reply = await client.get(RequestCode.GET_MAX_OFFSET, client.named({"topic": topic, "queueId": 0}))
        return int(reply.fields["offset"])

    async def is_reached() -> bool:
        return await end() >= count

    await wait_until(is_reached, f"offset {count} of {topic}")
    assert await end() == count
