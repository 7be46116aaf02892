"""The sync topic: made where it is missing, written to in batches, read from its end on by everybody."""

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
from remoting.messages import BatchMessage, Permission, PullSysFlag
from remoting.names import DEFAULT_TOPIC
from remoting.requests import REQUESTS
from remoting.routes import TopicRoute

_log = logging.getLogger("gantry.sync")

_TIMEOUT = 3.0
# How long a broker holds a read for news, in ms.
_POLL = 15_000
# A broker looks only every 5 s whether a poll's time is up; how much later than asked it may answer, in seconds.
_LATE = 10.0
_READ = 32
# Seconds between tries after a failure, and between looks for new queues: of a topic that has only just been made
# there is no route yet, and until there is one nothing is heard.
_PAUSE = 3.0
_LOOK = 10.0
_FIRST_LOOK = 1.0


class SyncTopic:
    """One topic of one queue per broker."""

    def __init__(self, backend: Backend, topic: str) -> None:
        self.topic = topic
        self._backend = backend
        self._group = f"CID_{topic}"
        self._turn = itertools.count()
        self._trouble = ""

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Write messages, on the first of the topic's brokers that takes them. Raises RemotingError."""
        brokers = (await self._backend.route(self.topic)).brokers
        failure: RemotingError = ServiceUnavailable(f"topic {self.topic} has no broker now")
        turn = next(self._turn)
        for number in range(len(brokers)):
            broker = brokers[(turn + number) % len(brokers)]
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

    async def read(self, take: Callable[[bytes], None]) -> None:
        """Give every message that is written from now on to `take`, until cancelled."""
        reading: set[tuple[str, int]] = set()
        async with anyio.create_task_group() as group:
            while True:
                for queue in await self._queues():
                    if queue not in reading:
                        reading.add(queue)
                        group.start_soon(self._read_queue, *queue, take)
                await anyio.sleep(_LOOK if reading else _FIRST_LOOK)

    async def _queues(self) -> list[tuple[str, int]]:
        """The topic's queues; the topic is made where a broker lacks it."""
        try:
            await self._make()
            route = await self._backend.route(self.topic)
        except RemotingError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.info("no heartbeat sync for now: %s", error)
            return []
        self._trouble = ""
        return [
            (data["brokerName"], number)
            for data in route.data["queueDatas"]
            for number in range(int(data["readQueueNums"]))
        ]

    async def _make(self) -> None:
        have: tuple[str, ...] = ()
        try:
            route: TopicRoute = await self._backend.route(self.topic)
            have = route.brokers
        except TopicNotExist:
            _log.info("making the topic %s", self.topic)
        missing = sorted(set(await self._backend.brokers()) - set(have))
        await asyncio.gather(*(self._make_at(broker) for broker in missing), return_exceptions=True)

    async def _make_at(self, broker: str) -> None:
        fields = {
            "topic": self.topic,
            "defaultTopic": DEFAULT_TOPIC,
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": str(int(Permission.READ | Permission.WRITE)),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        command = commands.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        reply = await self._backend.request(broker, REQUESTS[command.code], command, _TIMEOUT, None)
        if reply.code != ResponseCode.SUCCESS:
            _log.warning("%s did not make the topic %s: %s", broker, self.topic, reply.remark)

    async def _read_queue(self, broker: str, queue: int, take: Callable[[bytes], None]) -> None:
        offset: int | None = None
        while True:
            try:
                if offset is None:
                    offset = await self._end(broker, queue)
                offset = await self._pull(broker, queue, offset, take)
            except RemotingError as error:
                _log.info("cannot read %s at %s: %s", self.topic, broker, error)
                await anyio.sleep(_PAUSE)

    async def _end(self, broker: str, queue: int) -> int:
        fields = {"topic": self.topic, "queueId": str(queue), "bname": broker}
        reply = await self._ask(broker, RequestCode.GET_MAX_OFFSET, fields, _TIMEOUT)
        if reply.code != ResponseCode.SUCCESS:
            raise ServiceUnavailable(f"{reply.code}: {reply.remark}")
        return reply.integer("offset")

    async def _pull(self, broker: str, queue: int, offset: int, take: Callable[[bytes], None]) -> int:
        """Read on from an offset; where to read next."""
        fields = {
            "consumerGroup": self._group,
            "topic": self.topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": str(_READ),
            "sysFlag": str(int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(_POLL),
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
            "bname": broker,
        }
        reply = await self._ask(broker, RequestCode.PULL_MESSAGE, fields, _POLL / 1000 + _LATE)
        if reply.code not in _READABLE:
            raise ServiceUnavailable(f"{reply.code}: {reply.remark}")
        if reply.code == ResponseCode.SUCCESS:
            _give(reply.body, take)
        return reply.integer("nextBeginOffset")

    def _ask(
        self, broker: str, code: RequestCode, fields: dict[str, str], timeout: float
    ) -> Awaitable[commands.RemotingCommand]:
        return self._backend.request(broker, REQUESTS[code], commands.request(code, fields), timeout, None)


def _give(data: bytes, take: Callable[[bytes], None]) -> None:
    for message in messages.decode_messages(data):
        try:
            take(messages.body(message))
        except BodyError as error:
            # Anybody may write there; reading it again and again would not help.
            _log.warning("a message on %s cannot be read: %s", message.topic, error)


_READABLE = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
