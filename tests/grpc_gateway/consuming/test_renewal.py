"""Renewal, with a manual clock and brokers in memory."""

import asyncio
import logging
import time
from typing import Any

import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.consuming import renewal as module
from grpc_gateway.consuming import renewal_peers
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.consuming.renewal_events import RenewalEventType, decode
from grpc_gateway.gateway_options import GatewayOptions
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, ServiceUnavailable
from remoting.topic_group_config import CustomizedBackoff, GroupConfig
from tests.grpc_gateway.fakes import PEER, FakeCore, make_client
from tests.grpc_gateway.messages import receipt_handle

pytestmark = pytest.mark.anyio

_CHANGE, _ACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.ACK_MESSAGE


class Clock:
    """Manual clock in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def renew(command: RemotingCommand) -> RemotingCommand:
    """Answer as a broker that accepts every command."""
    if command.code != _CHANGE:
        return commands.success()
    now = str(time.time_ns() // 1_000_000)
    return commands.success({"popTime": now, "invisibleTime": command.fields["invisibleTime"], "reviveQid": "3"})


class Replica:
    """A renewal with its core and clock."""

    def __init__(self, name: str = "a", **options: Any) -> None:
        self.core = FakeCore(answer=renew)
        self.clock = Clock()
        self.renewal = Renewal(self.core, GatewayOptions(**options), self.clock, name)
        self.client = make_client("c1", PEER)

    def add(self, offset: int = 5, client: Client | None = None, lite_topic: str = "") -> ReceiptHandle:
        """Add a delivery and return its handle."""
        handle = receipt_handle(offset, renewal_id=self.renewal.new_renewal_id())
        client = self.client if client is None else client
        client.last_call_at = self.clock.now
        self.renewal.add(client, "group", "orders", handle, 1, lite_topic)
        return handle

    async def sleep(self, seconds: float, client_calls: bool = True) -> None:
        """Advance the clock, with a sweep every second as in the proxy."""
        for _ in range(int(seconds)):
            self.clock.now += 1
            if client_calls:
                self.client.last_call_at = self.clock.now
            self.renewal.sweep(self.clock.now)
            await asyncio.sleep(0)

    @property
    def sent(self) -> list[tuple[int, str]]:
        """Request code and invisible time of all commands to brokers."""
        return [(code, fields.get("invisibleTime", "")) for _, code, fields, _ in self.core.handled]

    def events(self) -> list[tuple[RenewalEventType, str, str]]:
        """Return type, original and handle of all events since the last call."""
        return [
            (item.event_type, item.original, item.handle)
            for body in self.renewal.take_messages()
            for item in decode(body)[1]
        ]


def handle_of_command(original: ReceiptHandle, fields: dict[str, str]) -> ReceiptHandle:
    """Return the handle in the fields of a command."""
    handle = ReceiptHandle.parse(fields["extraInfo"])
    assert handle.queue_offset == original.queue_offset
    return handle


async def test_delivery_is_renewed_before_it_becomes_visible() -> None:
    replica = Replica()
    first = replica.add()
    await replica.sleep(44)
    assert replica.sent == []
    await replica.sleep(2)
    assert replica.sent == [(_CHANGE, "60000")]
    newest = await replica.renewal.claim("group", first)
    assert newest.text != first.text
    assert (newest.queue_offset, newest.commit_log_offset) == (first.queue_offset, first.commit_log_offset)
    replica.renewal.unclaim("group", first)
    await replica.sleep(46)
    assert replica.sent == [(_CHANGE, "60000")] * 2
    # The second renewal uses the newest handle.
    assert handle_of_command(first, replica.core.fields[1]).text == newest.text
    assert replica.core.fields[1] == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "1",
        "offset": "5",
        "extraInfo": newest.text,
        "invisibleTime": "60000",
        "bname": "broker-a",
    }


async def test_renewal_names_the_lite_topic() -> None:
    replica = Replica()
    replica.add(lite_topic="lite")
    await replica.sleep(46)
    assert replica.core.fields[0]["liteTopic"] == "lite"


async def test_settled_delivery_is_not_renewed() -> None:
    replica = Replica()
    handle = replica.add()
    used = await replica.renewal.claim("group", handle)
    replica.renewal.settled("group", "orders", handle, used)
    assert len(replica.renewal) == 0
    await replica.sleep(120)
    assert replica.sent == []
    assert replica.events() == []


async def test_claimed_delivery_is_not_renewed_until_it_is_unclaimed() -> None:
    replica = Replica()
    handle = replica.add()
    await replica.renewal.claim("group", handle)
    await replica.sleep(50)
    assert replica.sent == []
    replica.renewal.unclaim("group", handle)
    await replica.sleep(3)
    assert replica.sent == [(_CHANGE, "60000")]


async def test_claim_waits_for_the_renewal_in_flight() -> None:
    replica = Replica()
    replica.core.pending = []
    handle = replica.add()
    await replica.sleep(46)
    claim = asyncio.ensure_future(replica.renewal.claim("group", handle))
    await asyncio.sleep(0)
    assert not claim.done()
    [reply] = replica.core.pending
    reply.set_result(commands.success({"popTime": "7", "invisibleTime": "60000", "reviveQid": "3"}))
    assert (await claim).pop_time == 7


async def test_claim_cancelled_while_it_waits_claims_nothing() -> None:
    replica = Replica()
    replica.core.pending = []
    handle = replica.add()
    await replica.sleep(46)
    claim = asyncio.ensure_future(replica.renewal.claim("group", handle))
    await asyncio.sleep(0)
    claim.cancel()
    await asyncio.wait((claim,))
    [reply] = replica.core.pending
    reply.set_result(renew(commands.request(_CHANGE, {"invisibleTime": "60000"})))
    await replica.sleep(46)
    assert len(replica.core.pending) == 2


async def test_claim_by_another_group_gets_the_original_handle() -> None:
    replica = Replica()
    handle = replica.add()
    await replica.sleep(46)
    assert await replica.renewal.claim("other", handle) is handle


@pytest.mark.parametrize("error", [ServiceUnavailable("gone"), ConnectionLost("gone")])
async def test_failed_renewal_is_retried(error: Exception) -> None:
    replica = Replica()
    replica.core.answer = lambda _: error
    replica.add()
    await replica.sleep(50)
    tries = len(replica.sent)
    assert tries in {2, 3}
    replica.core.answer = renew
    await replica.sleep(4)
    assert len(replica.sent) == tries + 1
    assert replica.renewal.counts == {"renewed": 1, "failed": tries}
    await replica.sleep(30)
    assert len(replica.sent) == tries + 1


async def test_renewal_stops_when_the_delivery_has_expired() -> None:
    replica = Replica()
    replica.core.answer = lambda _: commands.response(ResponseCode.SYSTEM_ERROR)
    replica.add()
    await replica.sleep(70)
    assert len(replica.renewal) == 0


async def test_renewal_that_the_core_rejects_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica()

    def reject(channel: object, command: RemotingCommand) -> None:
        raise ServiceUnavailable("no broker")

    with monkeypatch.context() as patch:
        patch.setattr(replica.core, "handle", reject)
        replica.add()
        await replica.sleep(50)
    await replica.sleep(3)
    assert replica.sent == [(_CHANGE, "60000")]


@pytest.mark.parametrize("code", [ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.TOPIC_NOT_EXIST])
async def test_renewal_stops_after_a_permanent_error(code: ResponseCode) -> None:
    replica = Replica()
    replica.core.answer = lambda _: commands.response(code)
    replica.add()
    await replica.sleep(120)
    assert len(replica.sent) == 1
    assert len(replica.renewal) == 0


async def test_renewal_stops_if_the_message_is_consumed_already() -> None:
    replica = Replica()
    replica.core.answer = lambda _: commands.success({"popTime": "0", "invisibleTime": "0", "reviveQid": "0"})
    replica.add()
    await replica.sleep(120)
    assert len(replica.sent) == 1
    assert len(replica.renewal) == 0


async def test_renewal_beyond_the_limit_uses_the_backoff_of_the_group() -> None:
    replica = Replica(renewal_limit=100.0)
    replica.core.groups["group"] = GroupConfig("group", backoff=CustomizedBackoff((7_000, 9_000)))
    replica.add()
    await replica.sleep(300)
    assert replica.sent == [(_CHANGE, "60000"), (_CHANGE, "60000"), (_CHANGE, "7000")]
    assert len(replica.renewal) == 0


async def test_deliveries_of_a_departed_client_are_returned() -> None:
    replica = Replica()
    second_client = make_client("c2", PEER)
    replica.add(5)
    replica.add(6)
    replica.add(7, second_client)
    replica.renewal.client_departed(replica.client)
    assert replica.sent == [(_CHANGE, "1000")] * 2
    assert len(replica.renewal) == 1
    replica.renewal.client_departed(replica.client)
    assert len(replica.sent) == 2


async def test_client_without_calls_departs() -> None:
    replica = Replica(client_expiry=30.0)
    replica.add()
    await replica.sleep(29, client_calls=False)
    assert len(replica.renewal) == 1
    await replica.sleep(3, client_calls=False)
    assert replica.sent == [(_CHANGE, "1000")]


async def test_closed_client_departs() -> None:
    replica = Replica()
    replica.add()
    replica.client.closed = True
    await replica.sleep(1)
    assert replica.sent == [(_CHANGE, "1000")]


async def test_client_without_calls_but_with_a_stream_stays() -> None:
    replica = Replica(client_expiry=30.0)
    replica.client.attach(object())  # type: ignore[arg-type]  # the stream is not used
    replica.add()
    await replica.sleep(50, client_calls=False)
    assert replica.sent == [(_CHANGE, "60000")]


async def test_delivery_is_returned_after_the_renewal_in_flight_of_a_departed_client() -> None:
    replica = Replica()
    replica.core.pending = []
    replica.add()
    await replica.sleep(46)
    replica.renewal.client_departed(replica.client)
    assert len(replica.sent) == 1
    replica.core.pending[0].set_result(renew(commands.request(_CHANGE, {"invisibleTime": "60000"})))
    await asyncio.sleep(0)
    assert replica.sent == [(_CHANGE, "60000"), (_CHANGE, "1000")]
    # The handle of the renewal.
    assert ReceiptHandle.parse(replica.core.fields[1]["extraInfo"]).revive_queue_id == 3


async def test_discarded_delivery_is_not_renewed() -> None:
    replica = Replica()
    handle = replica.add()
    replica.renewal.discard(handle)
    replica.renewal.discard(handle)
    await replica.sleep(60)
    assert replica.sent == []


async def test_number_of_deliveries_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_DELIVERIES", 2)
    replica = Replica()
    replica.add(1)
    first = replica.add(2)
    assert replica.renewal.new_renewal_id() == ""
    replica.renewal.discard(first)
    assert replica.renewal.new_renewal_id() != ""


async def test_number_of_renewals_in_flight_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_IN_FLIGHT", 2)
    replica = Replica()
    replica.core.pending = []
    for offset in range(5):
        replica.add(offset)
    await replica.sleep(50)
    assert len(replica.core.pending) == 2
    for reply in list(replica.core.pending):
        reply.set_result(renew(commands.request(_CHANGE, {"invisibleTime": "60000"})))
    await replica.sleep(3)
    assert len(replica.core.pending) == 4


# Exchange with other replicas.


def exchange(*replicas: Replica) -> None:
    """Deliver the messages of all replicas to all replicas, including their senders."""
    for body in [body for replica in replicas for body in replica.renewal.take_messages()]:
        for replica in replicas:
            replica.renewal.receive_message(body)


async def test_other_replicas_use_the_newest_handle() -> None:
    a, b = Replica("a"), Replica("b")
    handle = a.add()
    assert await b.renewal.claim("group", handle) is handle
    await a.sleep(46)
    exchange(a, b)
    newest = await a.renewal.claim("group", handle)
    assert await b.renewal.claim("group", handle) == newest
    assert await b.renewal.claim("other", handle) is handle
    # The handle is kept for two invisible durations.
    await b.sleep(119)
    assert await b.renewal.claim("group", handle) == newest
    await b.sleep(2)
    assert await b.renewal.claim("group", handle) is handle


async def test_delivery_acknowledged_by_another_replica_is_not_renewed() -> None:
    a, b = Replica("a"), Replica("b")
    handle = a.add()
    used = await b.renewal.claim("group", handle)
    b.renewal.settled("group", "orders", handle, used)
    exchange(a, b)
    assert len(a.renewal) == 0
    assert a.sent == []


@pytest.mark.parametrize("invisible", [None, 5_000])
async def test_settlement_with_an_old_handle_is_followed_by_an_acknowledgement(
    invisible: int | None,
) -> None:
    a, b = Replica("a"), Replica("b")
    handle = a.add()
    await a.sleep(46)
    # Replica b has not received the event of the renewal.
    b.renewal.settled("group", "orders", handle, handle, invisible)
    exchange(a, b)
    assert a.sent == [(_CHANGE, "60000"), (_ACK, "")]
    assert ReceiptHandle.parse(a.core.fields[1]["extraInfo"]).revive_queue_id == 3
    assert len(a.renewal) == 0


async def test_change_in_order_with_an_old_handle_is_repeated() -> None:
    a, b = Replica("a"), Replica("b")
    handle = receipt_handle(5, order=True, renewal_id=a.renewal.new_renewal_id())
    a.client.last_call_at = a.clock.now
    a.core.answer = lambda command: commands.success(
        {"popTime": str(handle.pop_time), "invisibleTime": "120000", "reviveQid": "999"}
    )
    a.renewal.add(a.client, "group", "orders", handle, 1)
    await a.sleep(46)
    b.renewal.settled("group", "orders", handle, handle, 5_000)
    exchange(a, b)
    assert a.sent == [(_CHANGE, "60000"), (_CHANGE, "5000")]


async def test_settlement_by_another_replica_is_applied_after_the_renewal_in_flight() -> None:
    a, b = Replica("a"), Replica("b")
    handle = a.add()
    a.core.pending = []
    await a.sleep(46)
    b.renewal.settled("group", "orders", handle, handle)
    exchange(a, b)
    assert len(a.sent) == 1
    a.core.pending[0].set_result(renew(commands.request(_CHANGE, {"invisibleTime": "60000"})))
    await asyncio.sleep(0)
    assert a.sent == [(_CHANGE, "60000"), (_ACK, "")]


async def test_settlement_of_another_group_by_another_replica_is_ignored() -> None:
    a, b = Replica("a"), Replica("b")
    handle = a.add()
    b.renewal.settled("other", "orders", handle, handle)
    exchange(a, b)
    assert len(a.renewal) == 1


async def test_replica_without_exchange_sends_no_events() -> None:
    replica = Replica("")
    handle = replica.add()
    await replica.sleep(46)
    replica.renewal.settled("group", "orders", receipt_handle(renewal_id="x-1"), handle)
    assert replica.renewal.take_messages() == []


async def test_settlements_of_own_deliveries_send_no_events() -> None:
    replica = Replica()
    for offset in range(3):
        handle = replica.add(offset)
        replica.renewal.settled("group", "orders", handle, await replica.renewal.claim("group", handle))
        # Acknowledged again.
        replica.renewal.settled("group", "orders", handle, handle)
    assert replica.renewal.take_messages() == []


async def test_message_that_cannot_be_decoded_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Replica().renewal.receive_message(b"garbage")
    assert "cannot decode renewal events" in caplog.text


async def test_number_of_recorded_handles_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal_peers, "_MAX_HANDLES", 2)
    a, b = Replica("a"), Replica("b")
    handles = [a.add(offset) for offset in range(3)]
    await a.sleep(46)
    exchange(a, b)
    claimed = [await b.renewal.claim("group", handle) for handle in handles]
    assert [newest is handle for newest, handle in zip(claimed, handles, strict=True)] == [True, False, False]


async def test_settlement_of_another_group_is_ignored() -> None:
    replica = Replica()
    handle = replica.add()
    for _ in range(2):
        assert await replica.renewal.claim("other", handle) == handle
        replica.renewal.unclaim("other", handle)
    replica.renewal.settled("other", "orders", handle, handle)
    assert replica.events() == []
    await replica.sleep(46)
    assert replica.sent == [(_CHANGE, "60000")]
