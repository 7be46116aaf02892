"""Limits, through a whole replica and clients of both protocols."""

import asyncio
import time
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import pull_fields, send_fields, v2
from tests.cluster.grpc.kit import codes
from tests.proxy.traffic_rules.kit import grpc_send, replica, send

pytestmark = pytest.mark.anyio

# So slow that no test sees a second token, whatever the machine does.
_SLOW = 1e-6
SENDS = f"""
[[rule]]
name = "few-orders"
kind = "limit"
match.topics = ["orders"]
messages = {_SLOW}
"""


async def test_a_send_beyond_the_limit_is_told_by_flow_control(tmp_path: Path) -> None:
    async with replica(tmp_path, SENDS) as one, one.remoting() as client:
        assert (await send(client, "orders")).code == ResponseCode.SUCCESS
        refused = await send(client, "orders")
        assert refused.code == ResponseCode.FLOW_CONTROL
        assert refused.remark is not None
        assert "few-orders" in refused.remark
        assert (await send(client, "others")).code == ResponseCode.SUCCESS
        assert (one.counts("few-orders").matched, one.counts("few-orders").enforced) == (2, 1)
        assert one.metric("gantry_rule_enforced_total", rule="few-orders", kind="limit") == 1


async def test_each_message_of_a_grpc_send_is_told_for_itself(tmp_path: Path) -> None:
    async with replica(tmp_path, SENDS) as one, one.grpc("orders") as client:
        await one.create("orders", "others")
        several = await grpc_send(client, b"1", b"2", b"3")
        assert several.status.code == Code.MULTIPLE_RESULTS
        assert sorted(codes(several)[1:]) == [Code.OK, Code.TOO_MANY_REQUESTS, Code.TOO_MANY_REQUESTS]
        refused = await grpc_send(client, b"4")
        assert refused.status.code == Code.TOO_MANY_REQUESTS
        assert "few-orders" in refused.status.message
        assert (await grpc_send(client, b"5", topic="others")).status.code == Code.OK


@pytest.mark.parametrize(
    ("per", "second", "third"),
    [('["client"]', ResponseCode.SUCCESS, ResponseCode.SUCCESS), ("[]", 215, 215), ('["address"]', 215, 215)],
)
async def test_who_shares_a_count(tmp_path: Path, per: str, second: int, third: int) -> None:
    rules = f"{SENDS}per = {per}"
    async with replica(tmp_path, rules) as one, one.remoting() as a, one.remoting() as b, one.grpc("orders") as c:
        await one.create("orders")
        await a.heartbeat(producers=["p"])
        await b.heartbeat(producers=["p"])
        assert (await send(a, "orders")).code == ResponseCode.SUCCESS
        assert (await send(b, "orders")).code == second
        expected = Code.OK if third == ResponseCode.SUCCESS else Code.TOO_MANY_REQUESTS
        assert (await grpc_send(c, b"x")).status.code == expected


async def test_bytes_and_batches_count(tmp_path: Path) -> None:
    rules = """
        [[rule]]
        name = "small"
        kind = "limit"
        bytes = 1e-3
        burst = 100_000
        match.topics = ["orders"]
    """
    batch = messages.encode_batch([messages.BatchMessage(0, b"x" * 10, "")] * 3)
    async with replica(tmp_path, rules.replace("100_000", "3600")) as one, one.remoting() as client:
        # More than the bucket ever holds may go while it is full; after it there is nothing left.
        assert (await send(client, "orders", b"x" * 1000)).code == ResponseCode.SUCCESS
        assert (await send(client, "orders", b"x")).code == ResponseCode.FLOW_CONTROL
    rules = rules.replace("bytes = 1e-3", "messages = 0.001").replace("100_000", "3600")
    async with replica(tmp_path, rules) as one, one.remoting() as client:
        # 3.6 messages: a batch of three, and no further one.
        fields = v2(client.named(send_fields("orders", batch=True)))
        assert (await client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch)).code == ResponseCode.SUCCESS
        assert (await send(client, "orders")).code == ResponseCode.FLOW_CONTROL


RECEIVES = """
[[rule]]
name = "slow-consumers"
kind = "limit"
match.topics = ["orders"]
match.actions = ["Sub"]
match.requests = ["PULL_MESSAGE", "POP_MESSAGE"]
messages = 1
burst = 1
"""


async def test_a_pull_beyond_the_limit_waits_and_is_served(tmp_path: Path) -> None:
    async with replica(tmp_path, RECEIVES) as one, one.remoting() as client:
        for _ in range(3):
            await send(client, "orders")
        # Three messages of a bucket of one: two are owed, which takes 2 s, from here on or later.
        begun = time.monotonic()
        assert len(await client.pull("orders", "g")) == 3
        await send(client, "orders")
        assert len(await client.pull("orders", "g", 0, 3)) == 1
        assert time.monotonic() - begun > 1.9
        assert one.counts("slow-consumers").enforced == 1


async def test_a_pull_that_may_not_wait_that_long_finds_nothing(tmp_path: Path) -> None:
    rules = RECEIVES.replace("messages = 1", "messages = 0.001")
    async with replica(tmp_path, rules) as one, one.remoting() as client:
        await send(client, "orders")
        assert len(await client.pull("orders", "g")) == 1
        await send(client, "orders")
        begun = time.monotonic()
        reply = await client.ask(RequestCode.PULL_MESSAGE, client.named(pull_fields("orders", "g", 0, 1, 1200)))
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        # What Java's clients insist on.
        assert reply.fields["nextBeginOffset"] == "1"
        assert {"minOffset", "maxOffset", "suggestWhichBrokerId"} <= reply.fields.keys()
        assert "slow-consumers" in (reply.remark or "")
        assert time.monotonic() - begun > 1.1


async def test_a_pop_that_may_not_wait_that_long_finds_nothing(tmp_path: Path) -> None:
    rules = RECEIVES.replace("messages = 1", "messages = 0.001")
    async with replica(tmp_path, rules) as one, one.remoting() as client:
        await send(client, "orders")
        assert len(await client.pull("orders", "g")) == 1
        fields = {
            "consumerGroup": "g",
            "topic": "orders",
            "queueId": -1,
            "maxMsgNums": 1,
            "invisibleTime": 30_000,
            "pollTime": 100,
            "bornTime": int(time.time() * 1000),
            "initMode": 0,
        }
        reply = await client.ask(RequestCode.POP_MESSAGE, client.named(fields))
        assert reply.code == ResponseCode.POLLING_TIMEOUT
        assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= reply.fields.keys()


async def test_a_receive_waits_and_then_is_told(tmp_path: Path) -> None:
    settings = {"min_polling": 1.0}
    async with replica(tmp_path, RECEIVES, grpc=settings) as one, one.grpc("orders", "g") as client:
        await one.create("orders")
        await client.send(b"1", b"2", b"3")
        begun = time.monotonic()
        assert len(await client.all(3)) == 3
        await client.send(b"4")
        assert len(await client.all(1)) == 1
        assert time.monotonic() - begun > 1.9
        await one.apply(RECEIVES.replace("messages = 1", "messages = 0.001"))
        # A changed limit begins with a full bucket.
        await client.send(b"5")
        assert len(await client.all(1)) == 1
        (told,) = await client.responses(wait=1)
        assert told.status.code == Code.TOO_MANY_REQUESTS
        assert "slow-consumers" in told.status.message


async def test_whoever_drains_does_not_wait_for_what_is_held(tmp_path: Path) -> None:
    rules = RECEIVES.replace("messages = 1", "messages = 0.001")
    async with replica(tmp_path, rules) as one, one.remoting(version=500) as client:
        await send(client, "orders")
        assert len(await client.pull("orders", "g")) == 1
        held = client.begin(
            RequestCode.PULL_MESSAGE, client.named(pull_fields("orders", "g", 0, 1, 15_000)), timeout=20
        )
        await asyncio.sleep(0.1)
        assert not held.done()
        one.app.core.drain.start()
        assert (await held).code == ResponseCode.GO_AWAY
