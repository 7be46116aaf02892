"""Rate limits, through a replica and clients of both protocols."""

import asyncio
import time
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import pull_fields, send_fields, v2
from tests.cluster.grpc.consumer import codes
from tests.proxy.traffic_rules.replica import grpc_send, run_replica, send

pytestmark = pytest.mark.anyio

# Slow enough that no test gets a second token, even on a slow machine.
_SLOW = 1e-6
SENDS = f"""
[[rule]]
name = "few-orders"
kind = "limit"
match.topics = ["orders"]
messages = {_SLOW}
"""


async def test_a_send_over_the_limit_is_rejected_with_flow_control(tmp_path: Path) -> None:
    async with run_replica(tmp_path, SENDS) as replica, replica.remoting() as client:
        assert (await send(client, "orders")).code == ResponseCode.SUCCESS
        refused = await send(client, "orders")
        assert refused.code == ResponseCode.FLOW_CONTROL
        assert refused.remark is not None
        assert "few-orders" in refused.remark
        assert (await send(client, "others")).code == ResponseCode.SUCCESS
        assert (replica.counts("few-orders").matched, replica.counts("few-orders").enforced) == (2, 1)
        assert replica.metric("gantry_rule_enforced_total", rule="few-orders", kind="limit") == 1


async def test_a_grpc_send_of_several_messages_has_a_result_for_each(tmp_path: Path) -> None:
    async with run_replica(tmp_path, SENDS) as replica, replica.grpc("orders") as client:
        await replica.create("orders", "others")
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
async def test_per_selects_the_requests_that_share_a_count(tmp_path: Path, per: str, second: int, third: int) -> None:
    rules = f"{SENDS}per = {per}"
    async with (
        run_replica(tmp_path, rules) as replica,
        replica.remoting() as a,
        replica.remoting() as b,
        replica.grpc("orders") as c,
    ):
        await replica.create("orders")
        await a.heartbeat(producers=["p"])
        await b.heartbeat(producers=["p"])
        assert (await send(a, "orders")).code == ResponseCode.SUCCESS
        assert (await send(b, "orders")).code == second
        expected = Code.OK if third == ResponseCode.SUCCESS else Code.TOO_MANY_REQUESTS
        assert (await grpc_send(c, b"x")).status.code == expected


async def test_clients_of_one_connection_share_its_count(tmp_path: Path) -> None:
    rules = f'{SENDS}per = ["connection"]'
    # The gRPC clients of one process share a connection to each address.
    listen = [{"address": "127.0.0.1:0", "name": name} for name in ("one", "two")]
    async with run_replica(tmp_path, rules, listen=listen) as replica, replica.remoting() as a, replica.remoting() as b:
        await replica.create("orders")
        assert [(await send(client, "orders")).code for client in (a, a, b)] == [0, ResponseCode.FLOW_CONTROL, 0]
        async with replica.grpc("orders") as c, replica.grpc("orders", number=1) as d:
            assert (await grpc_send(c, b"x")).status.code == Code.OK
            _, *others = c.metadata
            c.metadata = (("x-mq-client-id", "another"), *others)
            assert (await grpc_send(c, b"x")).status.code == Code.TOO_MANY_REQUESTS
            assert (await grpc_send(d, b"x")).status.code == Code.OK


async def test_bytes_and_messages_of_batches_are_counted(tmp_path: Path) -> None:
    rules = """
        [[rule]]
        name = "small"
        kind = "limit"
        bytes = 1e-3
        burst = 100_000
        match.topics = ["orders"]
    """
    batch = messages.encode_batch([messages.BatchMessage(0, b"x" * 10, "")] * 3)
    async with run_replica(tmp_path, rules.replace("100_000", "3600")) as replica, replica.remoting() as client:
        # A full bucket permits any amount; afterwards it is empty.
        assert (await send(client, "orders", b"x" * 1000)).code == ResponseCode.SUCCESS
        assert (await send(client, "orders", b"x")).code == ResponseCode.FLOW_CONTROL
    rules = rules.replace("bytes = 1e-3", "messages = 0.001").replace("100_000", "3600")
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        # A bucket of 3.6 messages permits a batch of three and no further message.
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


async def test_a_pull_over_the_limit_waits_and_is_served(tmp_path: Path) -> None:
    async with run_replica(tmp_path, RECEIVES) as replica, replica.remoting() as client:
        for _ in range(3):
            await send(client, "orders")
        # Three messages from a bucket of one: two tokens are owed, which takes at least 2 s from here.
        begun = time.monotonic()
        assert len(await client.pull("orders", "g")) == 3
        await send(client, "orders")
        assert len(await client.pull("orders", "g", 0, 3)) == 1
        assert time.monotonic() - begun > 1.9
        assert replica.counts("slow-consumers").enforced == 1


async def test_a_pull_with_a_shorter_poll_time_than_the_wait_finds_no_message(tmp_path: Path) -> None:
    rules = RECEIVES.replace("messages = 1", "messages = 0.001")
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        await send(client, "orders")
        assert len(await client.pull("orders", "g")) == 1
        await send(client, "orders")
        begun = time.monotonic()
        reply = await client.ask(RequestCode.PULL_MESSAGE, client.named(pull_fields("orders", "g", 0, 1, 1200)))
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        # Java clients require these fields.
        assert reply.fields["nextBeginOffset"] == "1"
        assert {"minOffset", "maxOffset", "suggestWhichBrokerId"} <= reply.fields.keys()
        assert "slow-consumers" in (reply.remark or "")
        assert time.monotonic() - begun > 1.1


async def test_a_pop_with_a_shorter_poll_time_than_the_wait_finds_no_message(tmp_path: Path) -> None:
    rules = RECEIVES.replace("messages = 1", "messages = 0.001")
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
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


async def test_a_grpc_receive_waits_and_then_reports_too_many_requests(tmp_path: Path) -> None:
    settings = {"min_polling": 1.0}
    async with run_replica(tmp_path, RECEIVES, grpc=settings) as replica, replica.grpc("orders", "g") as client:
        await replica.create("orders")
        await client.send(b"1", b"2", b"3")
        begun = time.monotonic()
        assert len(await client.receive_all(3)) == 3
        await client.send(b"4")
        assert len(await client.receive_all(1)) == 1
        assert time.monotonic() - begun > 1.9
        await replica.apply(RECEIVES.replace("messages = 1", "messages = 0.001"))
        # A changed limit starts with a full bucket.
        await client.send(b"5")
        assert len(await client.receive_all(1)) == 1
        (response,) = await client.responses(wait=1)
        assert response.status.code == Code.TOO_MANY_REQUESTS
        assert "slow-consumers" in response.status.message


async def test_a_drain_completes_receives_that_wait_for_a_limit(tmp_path: Path) -> None:
    rules = RECEIVES.replace("messages = 1", "messages = 0.001")
    async with run_replica(tmp_path, rules) as replica, replica.remoting(version=500) as client:
        await send(client, "orders")
        assert len(await client.pull("orders", "g")) == 1
        waiting = client.begin(
            RequestCode.PULL_MESSAGE, client.named(pull_fields("orders", "g", 0, 1, 15_000)), timeout=20
        )
        await asyncio.sleep(0.1)
        assert not waiting.done()
        replica.app.core.drain.start()
        assert (await waiting).code == ResponseCode.GO_AWAY
