"""A ReceiveService with brokers in memory, for tests."""

import asyncio
from typing import Any

import pytest

from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receive_service import ReceiveService
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused, status_from_error
from protos.apache.rocketmq.v2.definition_pb2 import Broker, FilterExpression, FilterType, MessageQueue
from protos.apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.topic_group_config import GroupConfig, TopicConfig
from tests.grpc_gateway.fakes import FakeCore, Written, make_rpc
from tests.grpc_gateway.messages import pop_reply, resource, route, stored

_POPS = (RequestCode.POP_MESSAGE, RequestCode.POP_LITE_MESSAGE)


class ReceiveHarness:
    """A ReceiveService with its core and renewal. answer: reply to the pop."""

    def __init__(self, answer: Any = None, remaining: float | None = None, **options: Any) -> None:
        self.reply_to_pop = pop_reply(stored(5), stored(6)) if answer is None else answer
        self.core = FakeCore(
            routes={"orders": route("orders", "broker-a", "broker-b")},
            groups={"group": GroupConfig("group")},
            topics={"orders": TopicConfig("orders")},
            answer=self._answer,
        )
        self.renewal = Renewal(self.core, GatewayOptions(**options), lambda: 1_000.0, "replica")
        self.clocks = BrokerClocks(0.5)
        self.receive_service = ReceiveService(self.core, self.renewal, GatewayOptions(**options), self.clocks)
        self.rpc = make_rpc(remaining=remaining)
        self.settlement_reply: Any = commands.success()

    def _answer(self, command: RemotingCommand) -> Any:
        return self.reply_to_pop if command.code in _POPS else self.settlement_reply

    @property
    def sent(self) -> list[tuple[int, str]]:
        """Request code and offset of all commands after the pop."""
        return [(code, fields["offset"]) for _, code, fields, _ in self.core.handled[1:]]

    async def receive(self, **fields: Any) -> list[ReceiveMessageResponse]:
        written = Written(ReceiveMessageResponse)
        await self.receive_service.receive(self.rpc, request(**fields), written.write)
        return written.responses

    async def start(self, **fields: Any) -> "asyncio.Task[None]":
        """Return a receive whose responses are not read, once it waits."""

        async def write(_: list[bytes]) -> None:
            await asyncio.Event().wait()

        receiving = asyncio.ensure_future(self.receive_service.receive(self.rpc, request(**fields), write))
        await asyncio.sleep(0.01)
        assert not receiving.done()
        return receiving

    async def code(self, **fields: Any) -> int:
        """Return the code of a receive without messages; that of an error, as the messaging service maps it."""
        try:
            [response] = await self.receive(**fields)
        except (Refused, RemotingError) as error:
            return status_from_error(error).code
        return response.status.code

    async def pop_fields(self, **fields: Any) -> dict[str, str]:
        """Receive, and return the ext fields of the pop."""
        await self.receive(**fields)
        return self.core.fields[0]


async def cancel(receiving: "asyncio.Task[Any]") -> None:
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving


def request(
    *, invisible: int = 30, wait: float | None = None, queue: int = -1, broker: str = "broker-a", **fields: Any
) -> ReceiveMessageRequest:
    """Return a request of a simple consumer."""
    made = ReceiveMessageRequest(
        group=resource("group"),
        message_queue=MessageQueue(topic=resource(), id=queue, broker=Broker(name=broker)),
        batch_size=fields.pop("batch_size", 16),
        **fields,
    )
    if not made.auto_renew:
        made.invisible_duration.seconds = invisible
    if wait is not None:
        made.long_polling_timeout.FromMilliseconds(int(wait * 1000))
    return made


def tags(expression: str) -> FilterExpression:
    return FilterExpression(type=FilterType.TAG, expression=expression)
