"""A sync topic: created at brokers that lack it, written in batches, read from its end by every replica."""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio

from proxy.core.backend import Backend
from remoting import command as commands
from remoting import messages, send_message
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.messages import READ_AND_WRITE, BatchMessage
from remoting.names import DEFAULT_TOPIC, sync_group
from remoting.pulling import NOTHING, reading_fields
from remoting.requests import REQUESTS
from remoting.routes import TopicRoute
from remoting.tasks import every

_log = logging.getLogger("gantry.sync")

# Timeout of a request in seconds.
_TIMEOUT = 3.0
# Duration of a long poll in ms, and the seconds by which its reply may be late: brokers check every 5 s.
_POLL_MS = 15_000
_POLL_MARGIN = 10.0
# Maximum number of messages per pull.
_MAX_MESSAGES = 32
# Seconds until the next attempt after a failure.
_RETRY_DELAY = 3.0
# Seconds between checks for new queues; shorter until the first queue is found, as a new topic has no route yet.
_CHECK_INTERVAL = 10.0
_FIRST_CHECK_INTERVAL = 1.0


class SyncTopic:
    """A topic with one queue per broker."""

    def __init__(self, backend: Backend, topic: str) -> None:
        self.topic = topic
        self._backend = backend
        self._group = sync_group(topic)
        self._next_broker = itertools.count()
        self._last_error = ""

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages as one batch to the first of the topic's brokers that accepts them. Raises RemotingError."""
        brokers = (await self._backend.route(self.topic)).brokers
        failure: RemotingError = ServiceUnavailable(f"topic {self.topic} has no available broker")
        first = next(self._next_broker)
        for number in range(len(brokers)):
            broker = brokers[(first + number) % len(brokers)]
            fields = self._send_fields(broker)
            command = commands.request(
                RequestCode.SEND_BATCH_MESSAGE,
                fields,
                messages.encode_batch([BatchMessage(0, body, "") for body in bodies]),
            )
            try:
                reply = await self._backend.request(
                    broker, REQUESTS[RequestCode.SEND_BATCH_MESSAGE], command, _TIMEOUT, None
                )
            except RemotingError as error:
                failure = error
                continue
            if reply.code in (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT):
                return
            failure = ServiceUnavailable(f"{broker} answered {reply.code}: {reply.remark}")
        raise failure

    def _send_fields(self, broker: str) -> dict[str, str]:
        return send_message.send_fields(
            producer_group=f"PID_{self.topic}",
            topic=self.topic,
            queue_id=0,
            broker=broker,
            default_topic_queues=0,
            born_timestamp=time.time_ns() // 1_000_000,
            batch=True,
        )

    async def read(self, receive: Callable[[bytes], None]) -> None:
        """Call `receive` with the body of every message that is written from now on, until cancelled."""
        reading: set[tuple[str, int]] = set()
        checked = False

        def interval() -> float:
            if not checked:
                return 0.0
            return _CHECK_INTERVAL if reading else _FIRST_CHECK_INTERVAL

        async def read_new_queues() -> None:
            nonlocal checked
            checked = True
            for queue in await self._queues():
                if queue not in reading:
                    reading.add(queue)
                    group.start_soon(self._read_queue, *queue, receive)

        async with anyio.create_task_group() as group:
            await every(interval, read_new_queues, name=f"queues of the topic {self.topic}")

    async def _queues(self) -> list[tuple[str, int]]:
        """Return the topic's queues as (broker, queue id), after creating the topic at brokers that lack it."""
        try:
            await self._create_missing()
            route = await self._backend.route(self.topic)
        except RemotingError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _log.info("topic %s is not available, retrying: %s", self.topic, error)
            return []
        self._last_error = ""
        return [
            (data["brokerName"], number)
            for data in route.data["queueDatas"]
            for number in range(int(data["readQueueNums"]))
        ]

    async def _create_missing(self) -> None:
        existing: tuple[str, ...] = ()
        try:
            route: TopicRoute = await self._backend.route(self.topic)
            existing = route.brokers
        except TopicNotExist:
            _log.info("creating the topic %s", self.topic)
        missing = sorted(set(await self._backend.brokers()) - set(existing))
        await asyncio.gather(*(self._create_at(broker) for broker in missing), return_exceptions=True)

    async def _create_at(self, broker: str) -> None:
        fields = {
            "topic": self.topic,
            "defaultTopic": DEFAULT_TOPIC,
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": str(READ_AND_WRITE),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        command = commands.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        reply = await self._backend.request(broker, REQUESTS[command.code], command, _TIMEOUT, None)
        if reply.code != ResponseCode.SUCCESS:
            _log.warning("creating the topic %s at broker %s failed: %s", self.topic, broker, reply.remark)

    async def _read_queue(self, broker: str, queue: int, receive: Callable[[bytes], None]) -> None:
        offset: int | None = None
        while True:
            try:
                if offset is None:
                    offset = await self._end(broker, queue)
                offset = await self._pull(broker, queue, offset, receive)
            except RemotingError as error:
                _log.info("reading topic %s from broker %s failed, retrying: %s", self.topic, broker, error)
                await anyio.sleep(_RETRY_DELAY)
            except Exception:
                # Otherwise the task group would end all other tasks, and with them the process.
                _log.exception("reading topic %s from broker %s failed, retrying", self.topic, broker)
                await anyio.sleep(_RETRY_DELAY)

    async def _end(self, broker: str, queue: int) -> int:
        fields = {"topic": self.topic, "queueId": str(queue), "bname": broker}
        reply = await self._ask(broker, RequestCode.GET_MAX_OFFSET, fields, _TIMEOUT)
        if reply.code != ResponseCode.SUCCESS:
            raise ServiceUnavailable(f"{reply.code}: {reply.remark}")
        return reply.integer("offset")

    async def _pull(self, broker: str, queue: int, offset: int, receive: Callable[[bytes], None]) -> int:
        """Pull messages from an offset and return the next offset."""
        where = {"topic": self.topic, "queueId": str(queue), "bname": broker}
        fields = {**where, **reading_fields(self._group, offset, _MAX_MESSAGES, wait_ms=_POLL_MS)}
        reply = await self._ask(broker, RequestCode.PULL_MESSAGE, fields, _POLL_MS / 1000 + _POLL_MARGIN)
        if reply.code not in _READABLE:
            raise ServiceUnavailable(f"{reply.code}: {reply.remark}")
        if reply.code == ResponseCode.SUCCESS:
            _deliver(reply.body, receive)
        return reply.integer("nextBeginOffset")

    def _ask(
        self, broker: str, code: RequestCode, fields: dict[str, str], timeout: float
    ) -> Awaitable[commands.RemotingCommand]:
        return self._backend.request(broker, REQUESTS[code], commands.request(code, fields), timeout, None)


def _deliver(data: bytes, receive: Callable[[bytes], None]) -> None:
    for message in messages.decode_messages(data):
        try:
            receive(messages.body(message))
        except BodyError as error:
            # Any client may write to the topic: skip the message instead of reading it again.
            _log.warning("ignoring an unreadable message on topic %s: %s", message.topic, error)
        except Exception:
            _log.exception("ignoring a message on topic %s", message.topic)


_READABLE = NOTHING | {ResponseCode.SUCCESS}
