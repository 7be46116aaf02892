"""A raw gRPC consumer."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from tests.cluster import coverage
from tests.cluster.client import BROKER, unique, wait_until
from tests.cluster.servers import TIMEOUT

_END: Any = {"query_offset_policy": d.END}


def seconds(value: float) -> Duration:
    """Return a duration."""
    duration = Duration()
    duration.FromMilliseconds(int(value * 1000))
    return duration


class Consumer:
    """A raw gRPC client of one group and topic; an async context manager."""

    def __init__(self, address: str, group: str, topic: str, client_id: str = "") -> None:
        self.address = address
        self.group = d.Resource(name=group)
        self.topic = d.Resource(name=topic)
        # A fixed flow-control window, so that a stream can be broken in its middle.
        window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
        self._channel = grpc.aio.insecure_channel(address, options=window)
        self.stub: Any = MessagingServiceStub(self._channel)
        self.metadata: tuple[tuple[str, str], ...] = (
            ("x-mq-client-id", client_id or unique("grpc-client")),
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", "5.1.1"),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def call(self, name: str, request: Any) -> Any:
        """Call a unary rpc."""
        coverage.saw(self.address, name)
        return await getattr(self.stub, name)(request, metadata=self.metadata, timeout=TIMEOUT)

    def request(
        self, *, invisible: float = 30, wait: float = 5, queue: int = -1, broker: str = BROKER, **fields: Any
    ) -> Any:
        """Return a ReceiveMessageRequest; that of a push consumer with auto_renew."""
        request = pb.ReceiveMessageRequest(
            group=self.group,
            message_queue=self.queue(queue, broker),
            batch_size=fields.pop("batch_size", 32),
            long_polling_timeout=seconds(wait),
            **fields,
        )
        if not request.auto_renew:
            request.invisible_duration.CopyFrom(seconds(invisible))
        return request

    def queue(self, number: int, broker: str = BROKER) -> Any:
        """Return a message queue of the topic."""
        return d.MessageQueue(topic=self.topic, id=number, broker=d.Broker(name=broker))

    def stream(self, **fields: Any) -> Any:
        """Start a receive and return its call."""
        coverage.saw(self.address, "ReceiveMessage")
        return self.stub.ReceiveMessage(self.request(**fields), metadata=self.metadata, timeout=TIMEOUT)

    async def responses(self, **fields: Any) -> list[Any]:
        """Receive, and return all responses."""
        return [response async for response in self.stream(**fields)]

    async def receive(self, **fields: Any) -> list[Any]:
        """Receive, and return the messages."""
        responses = await self.responses(**fields)
        status = responses[0].status
        assert status.code in (Code.OK, Code.MESSAGE_NOT_FOUND), status
        return [response.message for response in responses if response.WhichOneof("content") == "message"]

    async def receive_all(self, count: int, timeout: float = TIMEOUT, **fields: Any) -> list[Any]:
        """Receive until `count` messages have arrived or the timeout (seconds) is over, and return them."""
        messages: list[Any] = []
        deadline = time.monotonic() + timeout
        while len(messages) < count and time.monotonic() < deadline:
            messages += await self.receive(**fields)
        return messages

    async def wait_until_stored(self, count: int, queues: int = 1) -> None:
        """Wait until `count` messages are in the queues; a broker adds them some time after their send."""

        async def all_stored() -> bool:
            ends = [
                await self.call("QueryOffset", pb.QueryOffsetRequest(message_queue=self.queue(number), **_END))
                for number in range(queues)
            ]
            return bool(sum(end.offset for end in ends) >= count)

        await wait_until(all_stored, f"{count} messages in their queues")

    async def ack(self, *messages: Any) -> Any:
        """Acknowledge messages or receipt handles."""
        entries = [
            pb.AckMessageEntry(message_id=_id(message), receipt_handle=handle(message), lite_topic=_lite(message))
            for message in messages
        ]
        return await self.call("AckMessage", pb.AckMessageRequest(group=self.group, topic=self.topic, entries=entries))

    async def change(self, message: Any, invisible: float) -> Any:
        """Change the invisible duration (seconds) of a message or receipt handle."""
        return await self.call(
            "ChangeInvisibleDuration",
            pb.ChangeInvisibleDurationRequest(
                group=self.group,
                topic=self.topic,
                receipt_handle=handle(message),
                message_id=_id(message),
                lite_topic=_lite(message),
                invisible_duration=seconds(invisible),
            ),
        )

    async def forward(self, message: Any) -> Any:
        """Forward a message to the dead letter queue."""
        return await self.call(
            "ForwardMessageToDeadLetterQueue",
            pb.ForwardMessageToDeadLetterQueueRequest(
                group=self.group, topic=self.topic, receipt_handle=handle(message), message_id=_id(message)
            ),
        )

    async def send(self, *bodies: bytes, **system: Any) -> None:
        """Send messages, one per request."""
        for body in bodies:
            await self.send_one(body, **system)

    async def send_one(self, body: bytes, user: Mapping[str, str] | None = None, **system: Any) -> Any:
        """Send a message with these user and system properties, and return its entry of the response."""
        response = await self.call("SendMessage", self.send_request(body, user, **system))
        assert response.status.code == Code.OK, response
        return response.entries[0]

    def send_request(self, body: bytes, user: Mapping[str, str] | None = None, **system: Any) -> Any:
        """Return a SendMessageRequest of one message with these user and system properties."""
        system.setdefault("message_id", unique("01"))
        properties = d.SystemProperties(**system)
        message = d.Message(topic=self.topic, body=body, user_properties=user or {}, system_properties=properties)
        return pb.SendMessageRequest(messages=[message])


def handle(message: Any) -> str:
    """Return the receipt handle of a message; a receipt handle is returned as it is."""
    return message if isinstance(message, str) else message.system_properties.receipt_handle


def _id(message: Any) -> str:
    return "" if isinstance(message, str) else message.system_properties.message_id


def _lite(message: Any) -> str | None:
    """Return the lite topic of a message, None without one."""
    return None if isinstance(message, str) else message.system_properties.lite_topic or None


def bodies(messages: Sequence[Any]) -> list[bytes]:
    """Return the bodies of messages."""
    return [message.body for message in messages]


def codes(response: Any) -> list[int]:
    """Return the code of a response, then those of its entries."""
    return [response.status.code, *(entry.status.code for entry in response.entries)]
