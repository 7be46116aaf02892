"""Effects of all rules but rate limits and name rules, through a replica and clients of both protocols."""

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.traffic_rules.mirroring import MIRRORED
from remoting import messages, pop, properties
from remoting.batch_ack import BatchAckBody, batch_acks
from remoting.codes import RequestCode, ResponseCode
from remoting.pop_offset_info import Retry
from tests.cluster.client import pull_fields, send_fields, v2
from tests.cluster.grpc.consumer import bodies
from tests.proxy.traffic_rules.replica import grpc_send, run_replica, send, until

pytestmark = pytest.mark.anyio

# Denying and allowing.

DENY = """
[[rule]]
name = "but-audit"
kind = "allow"
match.groups = ["audit"]

[[rule]]
name = "no-secrets"
kind = "deny"
match.topics = ["secret-*"]
"""


async def test_denied_requests_are_rejected_in_both_protocols(tmp_path: Path) -> None:
    async with (
        run_replica(tmp_path, DENY) as replica,
        replica.remoting() as client,
        replica.grpc("secret-a") as grpc_client,
    ):
        await replica.create("secret-a", "open")
        refused = await send(client, "secret-a")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "no-secrets" in (refused.remark or "")
        assert (await send(client, "open")).code == ResponseCode.SUCCESS
        pull = await client.ask(RequestCode.PULL_MESSAGE, client.named(pull_fields("secret-a", "g")))
        assert pull.code == ResponseCode.NO_PERMISSION
        assert (await grpc_send(grpc_client, b"x")).status.code == Code.FORBIDDEN
        (response,) = await grpc_client.responses(wait=5)
        assert response.status.code == Code.FORBIDDEN
        # Heartbeats and route queries are not denied.
        await client.heartbeat(consumers={"g": ["secret-a"]})
        assert (await client.route("secret-a"))["queueDatas"]


async def test_an_earlier_allow_rule_exempts_from_deny_rules(tmp_path: Path) -> None:
    async with run_replica(tmp_path, DENY) as replica, replica.remoting() as client:
        await replica.create("secret-a")
        pull = await client.ask(RequestCode.PULL_MESSAGE, client.named(pull_fields("secret-a", "audit")))
        assert pull.code == ResponseCode.PULL_NOT_FOUND
        assert (replica.counts("but-audit").enforced, replica.counts("no-secrets").enforced) == (1, 0)


async def test_deny_rules_match_topics_in_request_bodies(tmp_path: Path) -> None:
    async with run_replica(tmp_path, DENY) as replica, replica.remoting() as client:
        await replica.create("secret-a")
        body = (
            b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"secret-a","brokerName":"broker-a","queueId":0}]}'
        )
        assert (await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body)).code == ResponseCode.NO_PERMISSION
        handle = pop.ExtraInfo(0, 1, 1, 0, Retry.NORMAL, "broker-a", 0, 0)
        acks = BatchAckBody("broker-a", batch_acks("secret-a", "g", [handle]))
        reply = await client.ask(RequestCode.BATCH_ACK_MESSAGE, {"bname": "broker-a"}, acks.encode())
        assert reply.code == ResponseCode.NO_PERMISSION


# Maintenance.

MAINTENANCE = """
[[rule]]
name = "moving-orders"
kind = "maintenance"
message = "orders move to another cluster until noon"
match.topics = ["orders"]
"""


async def test_maintenance_rejects_sends_but_not_receives(tmp_path: Path) -> None:
    async with (
        run_replica(tmp_path, "") as replica,
        replica.remoting() as client,
        replica.grpc("orders") as grpc_client,
    ):
        await replica.create("orders")
        await send(client, "orders", b"before")
        await replica.apply(MAINTENANCE)
        refused = await send(client, "orders")
        # Producers retry after this code.
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "until noon" in (refused.remark or "")
        answer = await grpc_send(grpc_client, b"x")
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        assert "moving-orders" in answer.status.message
        assert [message.body for message in await client.pull("orders", "g")] == [b"before"]
        assert replica.app.rules.gate.maintenance_failures == 2
        assert replica.metric("gantry_envoy_maintenance_failure_total") == 2
        await replica.apply("")
        assert (await send(client, "orders")).code == ResponseCode.SUCCESS


# Mirrors.

MIRROR = """
[[rule]]
name = "shadow"
kind = "mirror"
to = "orders-shadow"
match.topics = ["orders", "plain"]
"""


async def test_stored_messages_are_mirrored_with_their_properties(tmp_path: Path) -> None:
    async with (
        run_replica(tmp_path, MIRROR) as replica,
        replica.remoting() as client,
        replica.grpc("orders") as grpc_client,
    ):
        await replica.create("orders", "orders-shadow")
        await send(client, "orders", b"remoting", {properties.KEYS: "k"})
        await grpc_client.send(b"grpc")
        copies = await client.pull_all(2, "orders-shadow", "g")
        assert [copy.body for copy in copies] == [b"remoting", b"grpc"]
        assert copies[0].get(properties.KEYS) == "k"
        assert all(copy.get(MIRRORED) == "shadow" for copy in copies)
        originals = await client.pull_all(2, "orders", "g")
        assert all(original.get(MIRRORED) is None for original in originals)
        # The broker answers the copy's send shortly after the copy can be pulled.
        await until(lambda: replica.metric("gantry_rule_mirrored_total", rule="shadow", outcome="stored") == 2)
        assert replica.counts("shadow").enforced == 2


async def test_batches_are_mirrored_but_copies_are_not(tmp_path: Path) -> None:
    async with run_replica(tmp_path, MIRROR) as replica, replica.remoting() as client:
        await replica.create("orders", "orders-shadow")
        batch = messages.encode_batch([messages.BatchMessage(0, body, "") for body in (b"1", b"2")])
        fields = v2(client.named(send_fields("orders", batch=True)))
        await client.get(RequestCode.SEND_BATCH_MESSAGE, fields, batch)
        copies = await client.pull_all(2, "orders-shadow", "g")
        assert [copy.get(MIRRORED) for copy in copies] == ["shadow", "shadow"]
        # A copy that is sent back to the mirrored topic.
        await send(client, "orders", b"back", {MIRRORED: "shadow"})
        await until(lambda: replica.app.rules.mirrors.counts["shadow", "skipped"] == 1)
        assert len(await client.pull("orders-shadow", "g", 0, 2, wait=0)) == 0


async def test_a_failing_mirror_does_not_affect_producers(tmp_path: Path) -> None:
    # A system topic, to which sends are rejected.
    rules = MIRROR.replace("orders-shadow", "SCHEDULE_TOPIC_XXXX")
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        for _ in range(3):
            assert (await send(client, "orders")).code == ResponseCode.SUCCESS
        await until(lambda: replica.app.rules.mirrors.counts["shadow", "failed"] == 3)
        assert not replica.app.rules.mirrors.in_flight["shadow"]


async def test_rejected_sends_and_half_messages_are_not_mirrored(tmp_path: Path) -> None:
    async with (
        run_replica(tmp_path, MIRROR + DENY.replace("secret-*", "orders")) as replica,
        replica.remoting() as client,
    ):
        await replica.create("orders-shadow")
        assert (await send(client, "orders")).code == ResponseCode.NO_PERMISSION
        half = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: "p"}
        await client.send("plain", b"half", half, sysFlag=int(messages.SysFlag.TRANSACTION_PREPARED))
        await until(lambda: replica.app.rules.mirrors.counts["shadow", "skipped"] == 1)
        assert replica.counts("shadow").enforced == 0


# Faults.


@pytest.mark.parametrize(
    ("error", "code", "v2_code"),
    [('"SYSTEM_BUSY"', ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS), ("1", 1, Code.INTERNAL_SERVER_ERROR)],
)
async def test_a_fault_is_reported_like_a_broker_error(tmp_path: Path, error: str, code: int, v2_code: int) -> None:
    rules = f"""
        [[rule]]
        name = "broken"
        kind = "fault"
        error = {error}
        match.requests = ["SEND_MESSAGE_V2"]
    """
    async with (
        run_replica(tmp_path, rules) as replica,
        replica.remoting() as client,
        replica.grpc("orders") as grpc_client,
    ):
        await replica.create("orders")
        reply = await send(client, "orders")
        assert (reply.code, reply.remark) == (code, "injected fault (rule broken)")
        answer = await grpc_send(grpc_client, b"x")
        assert (answer.status.code, answer.status.message) == (v2_code, "injected fault (rule broken)")
        assert await client.pull("orders", "g", wait=0) == []


async def test_a_delay_fault_serves_requests_after_the_delay(tmp_path: Path) -> None:
    rules = """
        [[rule]]
        name = "slow"
        kind = "fault"
        delay = 0.3
        match.topics = ["orders"]
        match.actions = ["Pub"]
    """
    async with (
        run_replica(tmp_path, rules) as replica,
        replica.remoting() as client,
        replica.grpc("orders") as grpc_client,
    ):
        await replica.create("orders")
        for work in (send(client, "orders"), grpc_client.send(b"x")):
            begun = time.monotonic()
            await work
            assert time.monotonic() - begun > 0.29
        begun = time.monotonic()
        client.send_oneway(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields("orders"))), b"oneway")
        assert len(await client.pull_all(3, "orders", "g")) == 3


# Connections.

CONNECTIONS = """
[[rule]]
name = "two-each"
kind = "connections"
most = 2
per = ["address"]
"""


async def test_connections_over_the_limit_are_rejected_with_the_reason(tmp_path: Path) -> None:
    async with run_replica(tmp_path, CONNECTIONS) as replica, replica.remoting() as first, replica.remoting() as second:
        await first.heartbeat()
        await second.heartbeat()
        async with replica.remoting() as third:
            reply = await third.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
            assert reply.code == ResponseCode.FLOW_CONTROL
            assert "two-each" in (reply.remark or "")
            await until(lambda: third.closed)
        async with replica.grpc("orders") as client:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await grpc_send(client, b"x")
            assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "two-each" in str(failed.value.details())
        assert replica.counts("two-each").enforced >= 2
        second.abort()
        await until(lambda: replica.app.metrics.connections.open.total() == 1)
        async with replica.remoting() as again:
            await again.heartbeat()


async def test_open_connections_count_towards_a_new_limit(tmp_path: Path) -> None:
    async with run_replica(tmp_path, "") as replica, replica.remoting() as first, replica.remoting() as second:
        await first.heartbeat()
        await second.heartbeat()
        await replica.apply(CONNECTIONS)
        async with replica.remoting() as third:
            reply = await third.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
            assert reply.code == ResponseCode.FLOW_CONTROL


# Dry runs.

EVERYTHING = f"""
{{}}
[[rule]]
name = "limit"
kind = "limit"
messages = 1e-6
match.topics = ["orders"]

[[rule]]
name = "connections"
kind = "connections"
most = 1

[[rule]]
name = "namespace"
kind = "namespace"
namespace = "acme"

[[rule]]
name = "alias"
kind = "alias"
topic = "orders"
real = "other"
{MAINTENANCE}
{MIRROR}
[[rule]]
name = "fault"
kind = "fault"
error = 1

[[rule]]
name = "deny"
kind = "deny"
"""


@pytest.mark.parametrize("rules", [EVERYTHING.format("dry_run = true"), None])
async def test_a_dry_run_counts_effects_without_carrying_them_out(tmp_path: Path, rules: str | None) -> None:
    # dry_run of the whole file, or of each rule.
    rules = rules or EVERYTHING.format("").replace("[[rule]]", "[[rule]]\ndry_run = true")
    async with (
        run_replica(tmp_path, rules) as replica,
        replica.remoting() as client,
        replica.grpc("orders") as grpc_client,
    ):
        await replica.create("orders", "orders-shadow")
        for _ in range(3):
            assert (await send(client, "orders")).code == ResponseCode.SUCCESS
        assert (await grpc_send(grpc_client, b"x")).status.code == Code.OK
        assert len(await client.pull_all(4, "orders", "g")) == 4
        counts = {active.name: active.counts for active in replica.app.rules.active}
        assert {name: count.enforced for name, count in counts.items()} == dict.fromkeys(counts, 0)
        # The first send is within the limit, the pulls are not.
        dry_run_counts = {name: count.dry_run for name, count in counts.items()}
        pulls = counts["limit"].matched - 4
        assert pulls >= 1
        assert dry_run_counts == {
            "limit": 3 + pulls,
            "connections": 1,
            "namespace": 2,
            "alias": 2,
            "moving-orders": 4,
            "shadow": 4,
            "fault": 4 + pulls,
            "deny": 4 + pulls,
        }
        assert replica.metric("gantry_rule_dry_run_total", rule="deny", kind="deny") == 4 + pulls


async def test_a_delayed_receive_is_cancelled_when_its_client_disconnects(tmp_path: Path) -> None:
    rules = """
        [[rule]]
        name = "slow"
        kind = "fault"
        delay = 0.5
        match.requests = ["POP_MESSAGE"]
    """
    async with (
        run_replica(tmp_path, rules) as replica,
        replica.remoting() as sender,
        replica.grpc("orders", "g") as client,
    ):
        await replica.create("orders")
        call: Any = client.stream()
        waiting = asyncio.ensure_future(call.read())
        await until(lambda: replica.counts("slow").enforced == 1)
        call.cancel()
        await asyncio.wait((waiting,))
        await send(sender, "orders", b"for the next")
        assert bodies(await client.receive_all(1)) == [b"for the next"]
