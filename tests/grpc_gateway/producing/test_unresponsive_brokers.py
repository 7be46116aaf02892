import asyncio
from contextlib import suppress

import pytest

from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.producing.send_service import SendService
from grpc_gateway.producing.unresponsive_brokers import UnresponsiveBrokers
from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.delayed_reply import DelayedReply
from remoting.errors import ClientGone, ConnectionLost, RequestTimeout, ServiceUnavailable
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import route
from tests.grpc_gateway.producing.sends import STORED, message

pytestmark = pytest.mark.anyio


class Sends:
    """Sends to two brokers, of which broker-a fails with `failure` after some seconds of a clock."""

    def __init__(self, failure: type[BaseException], seconds: float = 3.0) -> None:
        self.now = 0.0
        self.failure: type[BaseException] | None = failure
        self.seconds = seconds
        self.core = FakeCore(routes={"orders": route("orders", "broker-a", "broker-b")}, answer=self._answer)
        self.service = SendService(self.core, GatewayOptions(), HalfMessages(self.core))
        self.service._unresponsive = UnresponsiveBrokers(lambda: self.now)

    def _answer(self, command: RemotingCommand) -> RemotingCommand:
        if command.fields["n"] == "broker-a" and self.failure is not None:
            self.now += self.seconds
            raise self.failure("broker-a")
        return commands.success(dict(STORED))

    async def tried(self, count: int, **system: object) -> list[str]:
        """Send messages one after the other, and return the brokers that were tried."""
        before = len(self.core.fields)
        for _ in range(count):
            with suppress(ConnectionLost, RequestTimeout, ServiceUnavailable, asyncio.CancelledError):
                request = SendMessageRequest(messages=[message(**system)])  # type: ignore[arg-type]
                await self.service.send(make_rpc(), request)
        return [fields["n"] for fields in self.core.fields[before:]]


@pytest.mark.parametrize("failure", [ConnectionLost, RequestTimeout, ServiceUnavailable, asyncio.CancelledError])
async def test_sends_avoid_a_broker_that_does_not_answer(failure: type[BaseException]) -> None:
    sends = Sends(failure)
    assert "broker-a" in await sends.tried(8)
    assert await sends.tried(20) == ["broker-b"] * 20


async def test_one_send_in_ten_seconds_tries_it_again() -> None:
    sends = Sends(RequestTimeout)
    await sends.tried(8)
    sends.now += 10
    assert (await sends.tried(20)).count("broker-a") == 1
    sends.now += 10
    assert (await sends.tried(20)).count("broker-a") == 1


async def test_an_answer_ends_the_avoidance() -> None:
    sends = Sends(RequestTimeout)
    await sends.tried(8)
    sends.failure = None
    sends.now += 10
    await sends.tried(8)
    assert (await sends.tried(8)).count("broker-a") == 4


async def test_failures_without_a_wait_are_not_avoided() -> None:
    sends = Sends(ConnectionLost, seconds=0.5)
    await sends.tried(8)
    assert (await sends.tried(16)).count("broker-a") == 8


async def test_a_client_that_leaves_says_nothing_about_the_broker() -> None:
    """Its request waited in Gantry, and was not sent."""
    sends = Sends(ClientGone)
    await sends.tried(8)
    assert (await sends.tried(16)).count("broker-a") == 8


@pytest.mark.parametrize(("sent_at", "avoided"), [(None, False), (2.5, False), (1.0, True)])
async def test_the_time_before_a_request_is_sent_is_not_the_brokers(sent_at: float | None, avoided: bool) -> None:
    brokers = UnresponsiveBrokers(lambda: 3.0)
    reply = DelayedReply()
    reply.sent_at = sent_at
    brokers.note_failure("broker-a", 0.0, reply)
    assert bool(brokers) is avoided


async def test_message_groups_keep_their_queue() -> None:
    sends = Sends(RequestTimeout)
    await sends.tried(8)
    assert len(set(await sends.tried(4, message_group="order-2"))) == 1


async def test_all_brokers_are_tried_if_none_answers() -> None:
    brokers = UnresponsiveBrokers(lambda: 3.0)
    for name in ("broker-a", "broker-b"):
        brokers.note_failure(name, 0)
    core = FakeCore(
        routes={"orders": route("orders", "broker-a", "broker-b")}, answer=lambda _: commands.success(STORED)
    )
    service = SendService(core, GatewayOptions(), HalfMessages(core))
    service._unresponsive = brokers
    await service.send(make_rpc(), SendMessageRequest(messages=[message()]))
    assert len(core.handled) == 1
    assert not brokers.avoided() >= {"broker-a", "broker-b"}


async def test_sends_avoid_a_broker_that_the_backend_finds_unresponsive() -> None:
    sends = Sends(RequestTimeout)
    sends.core.unresponsive = frozenset({"broker-a"})
    assert await sends.tried(8) == ["broker-b"] * 8
    sends.core.unresponsive = frozenset({"broker-a", "broker-b"})
    assert set(await sends.tried(8)) == {"broker-a", "broker-b"}


async def test_sends_to_the_queue_of_a_message_group_at_such_a_broker_fail_at_once() -> None:
    sends = Sends(RequestTimeout)
    sends.core.unresponsive = frozenset({"broker-a", "broker-b"})
    with pytest.raises(Refused) as refused:
        await sends.tried(1, message_group="order-2")
    assert refused.value.code == Code.HA_NOT_AVAILABLE
    assert sends.core.fields == []
