"""Requests that official clients never send and that must neither bypass the rules nor break the proxy."""

import asyncio
from pathlib import Path

import orjson
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.context import Context
from proxy.traffic_rules.batches import count_messages
from proxy.traffic_rules.delayed_receives import max_wait
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.parsing import RulesError, parse
from proxy.traffic_rules.rate_limits import ActiveLimit
from proxy.traffic_rules.rejection import GrpcRejector
from remoting import json_names as json_bodies
from remoting import messages, properties
from remoting.batch_flag import is_batch, may_be_batch
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.json_names import NameReplacer
from remoting.messages import BatchMessage
from remoting.requests import REQUESTS
from tests.cluster.client import send_fields, v2
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import complete
from tests.proxy.traffic_rules.fake_attributes import FakeAttributes
from tests.proxy.traffic_rules.replica import grpc_send, run_replica, send

pytestmark = pytest.mark.anyio

DEEP = b"[" * 600 + b"]" * 600
ACME = """
[[rule]]
name = "tenant-acme"
kind = "namespace"
namespace = "acme"
match.listeners = ["acme"]
"""
LISTEN = [{"address": "127.0.0.1:0", "name": name} for name in ("main", "acme")]


# Bodies.


@pytest.mark.parametrize("key", ["groupName", "group_name", "GroupName", "GROUP-NAME", "_groupname"])
def test_names_are_found_under_every_spelling_of_a_key_that_brokers_accept(key: str) -> None:
    body = orjson.dumps({"consumerDataSet": [{key: "g"}]})
    replaced = json_bodies.replace_names(body, NameReplacer(lambda topic: f"ns%{topic}", lambda group: f"ns%{group}"))
    assert orjson.loads(replaced) == {"consumerDataSet": [{key: "ns%g"}]}


@pytest.mark.parametrize("body", [DEEP, b'{"a":' * 600 + b"1" + b"}" * 600, b'{"topic":{"\\u0024ref":"$.x"}}'])
def test_unreadable_bodies_are_rejected(body: bytes) -> None:
    with pytest.raises(BodyError):
        json_bodies.collect_names(body)
    with pytest.raises(BodyError):
        json_bodies.replace_names(body, NameReplacer(str, str))


@pytest.mark.parametrize(
    ("code", "fields", "batch"),
    [
        (RequestCode.SEND_BATCH_MESSAGE, {}, True),
        (RequestCode.SEND_MESSAGE_V2, {"m": "TRUE"}, True),
        (RequestCode.SEND_MESSAGE_V2, {"m": "false", "batch": "true"}, False),
        (RequestCode.SEND_MESSAGE, {"batch": "true"}, True),
        (RequestCode.SEND_MESSAGE, {}, False),
        (RequestCode.PULL_MESSAGE, {"m": "true"}, False),
    ],
)
def test_is_batch_follows_the_brokers_flag(code: int, fields: dict[str, str], batch: bool) -> None:
    assert is_batch(code, fields) is batch


@pytest.mark.parametrize(
    ("fields", "may"), [({"m": "true "}, True), ({"m": "true"}, True), ({"m": "false"}, False), ({}, False)]
)
def test_a_server_might_read_an_unclear_flag_as_set(fields: dict[str, str], may: bool) -> None:
    assert may_be_batch(RequestCode.SEND_MESSAGE_V2, fields) is may


def test_counting_a_batch_ignores_the_sizes_of_its_entries() -> None:
    body = messages.encode_batch([BatchMessage(0, b"x", "")] * 5)
    assert count_messages(body) == 5
    assert count_messages((2**31 - 1).to_bytes(4, "big") + body[4:]) == 5
    # Incomplete: the largest possible number.
    assert count_messages(body[:-1]) >= 5


# The file.


@pytest.mark.parametrize("code", ["32768", "65536", "99999999999999999999"])
def test_a_fault_code_must_fit_the_binary_header(code: str) -> None:
    # Cut to two bytes, 65536 would be SUCCESS.
    with pytest.raises(RulesError, match="32767"):
        parse(f'[[rule]]\nname = "f"\nkind = "fault"\nerror = {code}')


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_documents_beyond_the_parsers_limits_raise_rules_error(text: str) -> None:
    with pytest.raises(RulesError):
        parse(text)


def test_a_limit_must_be_finite() -> None:
    with pytest.raises(RulesError, match="finite"):
        parse('[[rule]]\nname = "l"\nkind = "limit"\nmessages = inf')


# Counts.


def test_bucket_keys_of_long_names_are_shortened() -> None:
    limit = parse('[[rule]]\nname = "l"\nkind = "limit"\nmessages = 1\nper = ["topic", "group", "client"]')
    evaluator = Evaluator(limit)
    long = "x" * 100_000
    evaluator.evaluate(
        FakeAttributes(RequestCode.SEND_MESSAGE_V2, client_id=long, topics=(long,), groups=(long,), messages=1), 0
    )
    (active,) = evaluator.rules
    assert isinstance(active, ActiveLimit)
    (key,) = active._buckets["messages"]._buckets
    assert isinstance(key, tuple)
    assert all(len(str(part)) <= 255 for part in key)


async def test_a_batch_flag_on_a_plain_send_does_not_bypass_a_limit(tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "few"\nkind = "limit"\nmessages = 1e-6\nmatch.topics = ["orders"]\n'
    body = messages.encode_batch([BatchMessage(0, b"x", "")] * 5)
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        fields = {**v2(client.named(send_fields("orders", ""))), "m": "true"}
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)).code == ResponseCode.SUCCESS
        (limit,) = replica.app.rules.gate.evaluator.rules
        assert isinstance(limit, ActiveLimit)
        (bucket,) = limit._buckets["messages"]._buckets.values()
        # Five tokens were taken from a bucket of one.
        assert bucket.tokens(0) < -3


async def test_a_peek_waits_for_a_limit_like_other_receives(tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "few"\nkind = "limit"\nmessages = 1e-6\nmatch.actions = ["Sub"]\n'
    async with run_replica(tmp_path, rules) as replica, replica.remoting() as client:
        await send(client, "orders")
        peek = {"topic": "orders", "queueId": "0", "maxMsgNums": "32", "consumerGroup": "g", "bname": "broker-a"}
        codes = [(await client.ask(RequestCode.PEEK_MESSAGE, peek)).code for _ in range(2)]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [({"pollTime": "1"}, 1), ({"pollTime": "15000"}, 15), ({"pollTime": "9" * 15}, 60), ({"pollTime": "-9"}, 1)],
)
async def test_the_wait_for_a_limit_is_bounded(fields: dict[str, str], seconds: float) -> None:
    command = complete(REQUESTS[RequestCode.POP_MESSAGE])
    command.fields.update(fields)
    assert max_wait(Context(FakeChannel(), command, REQUESTS[command.code], 0.0)) == seconds


# Denying.

DENY = '[[rule]]\nname = "no-secrets"\nkind = "deny"\nmatch.topics = ["secret"]\n'


async def test_messages_of_a_denied_topic_cannot_be_queried(tmp_path: Path) -> None:
    async with run_replica(tmp_path, DENY) as replica, replica.remoting() as client:
        await replica.create("secret")
        times = {"beginTimestamp": "0", "endTimestamp": "9999999999999"}
        query = {"topic": "secret", "key": "k", "maxNum": "3", "bname": "broker-a", **times}
        assert (await client.ask(RequestCode.QUERY_MESSAGE, query)).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"topic":"secret","consumerGroup":"g"}', ResponseCode.NO_PERMISSION),
        (b'{"Topic":"secret","consumerGroup":"g"}', ResponseCode.NO_PERMISSION),
        (b'{"topic":"secret","consumerGroup":"g","x":' + DEEP + b"}", 29),
    ],
)
async def test_an_unreadable_body_does_not_bypass_a_deny_rule(tmp_path: Path, body: bytes, code: int) -> None:
    async with run_replica(tmp_path, DENY) as replica, replica.remoting() as client:
        reply = await client.ask(RequestCode.QUERY_ASSIGNMENT, {"bname": "broker-a"}, body)
        assert reply.code == code


# Tenants.


async def test_a_tenant_cannot_dispatch_to_foreign_queues_by_a_batch_flag(tmp_path: Path) -> None:
    async with run_replica(tmp_path, ACME, listen=LISTEN) as replica, replica.remoting(1) as client:
        pairs = properties.encode({properties.INNER_MULTI_DISPATCH: "%LMQ%other"})
        body = messages.encode_batch([BatchMessage(0, b"x", pairs)])
        fields = {**v2(client.named(send_fields("orders", ""))), "m": "true"}
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)).code == ResponseCode.NO_PERMISSION


async def test_a_deeply_nested_heartbeat_is_rejected_without_closing_the_connection(tmp_path: Path) -> None:
    async with run_replica(tmp_path, ACME, listen=LISTEN) as replica, replica.remoting(1) as client:
        reply = await client.ask(RequestCode.HEART_BEAT, {}, b'{"clientID":"c","x":' + DEEP + b"}")
        assert reply.code == 29
        assert not client.closed


async def test_a_foreign_origin_property_does_not_block_delivery_to_a_tenant(tmp_path: Path) -> None:
    async with run_replica(tmp_path, ACME, listen=LISTEN) as replica, replica.remoting() as outsider:
        await replica.create("acme%orders")
        pairs = {properties.DLQ_ORIGIN_TOPIC: "foreign", properties.DLQ_ORIGIN_MESSAGE_ID: "1"}
        await send(outsider, "acme%orders", b"poison", {**pairs, properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        async with replica.grpc("orders", "g", 1) as consumer:
            responses = await consumer.responses(wait=5)
            (message,) = [response.message for response in responses if response.HasField("message")]
            assert message.body == b"poison"
            assert message.system_properties.dead_letter_queue.topic == ""


async def test_a_grpc_tenant_cannot_read_a_shared_topic(tmp_path: Path) -> None:
    async with run_replica(tmp_path, ACME, listen=LISTEN) as replica, replica.remoting() as outsider:
        await replica.create("c_REPLY_TOPIC")
        await send(outsider, "c_REPLY_TOPIC", b"another's", {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        async with replica.grpc("c_REPLY_TOPIC", "g", 1) as tenant:
            responses = await tenant.responses(wait=2)
            assert [response.status.code for response in responses] == [Code.FORBIDDEN]
            assert (await grpc_send(tenant, b"may be sent")).status.code == Code.OK
        # A remoting tenant cannot look its messages up either.
        stored, _ = await outsider.pull("c_REPLY_TOPIC", "g")
        async with replica.remoting(1) as client:
            fields = {"offset": str(stored.commit_log_offset), "bname": "broker-a"}
            assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, fields)).code == ResponseCode.SYSTEM_ERROR


# Connections.


async def test_a_rejected_connection_buffers_no_further_data() -> None:
    class Transport(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            pass

        def close(self) -> None:
            pass

    rejector = GrpcRejector("too many")
    rejector.connection_made(Transport())
    # The preface and the first bytes of a call's HEADERS frame.
    rejector.data_received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 1, 1, 5, 0, 0, 0, 1)) + b"x")
    for _ in range(100):
        rejector.data_received(b"x" * 1000)
    assert len(rejector._buffer) == 0
    rejector.connection_lost(None)
