"""What clients send that would get by the rules, or break something, if rules only expected what official ones send."""

import asyncio
from pathlib import Path

import orjson
import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.core.context import Context
from proxy.traffic_rules import json_bodies
from proxy.traffic_rules.batches import count, is_batch
from proxy.traffic_rules.engine import _patience
from proxy.traffic_rules.evaluator import Evaluator
from proxy.traffic_rules.json_bodies import Walk
from proxy.traffic_rules.limits import ActiveLimit
from proxy.traffic_rules.model import RulesError, parse
from proxy.traffic_rules.rejection import GrpcFarewell
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.messages import BatchMessage
from remoting.requests import REQUESTS
from tests.cluster.client import send_fields, v2
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import complete
from tests.proxy.traffic_rules.kit import grpc_send, replica, send
from tests.proxy.traffic_rules.request import Request

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
def test_a_name_is_found_under_every_key_that_brokers_take_for_it(key: str) -> None:
    body = orjson.dumps({"consumerDataSet": [{key: "g"}]})
    renamed = json_bodies.renamed(body, Walk(lambda topic: f"ns%{topic}", lambda group: f"ns%{group}"))
    assert orjson.loads(renamed) == {"consumerDataSet": [{key: "ns%g"}]}


@pytest.mark.parametrize("body", [DEEP, b'{"a":' * 600 + b"1" + b"}" * 600, b'{"topic":{"\\u0024ref":"$.x"}}'])
def test_what_cannot_be_looked_through_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        json_bodies.names(body)
    with pytest.raises(BodyError):
        json_bodies.renamed(body, Walk(str, str))


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
def test_what_brokers_take_for_a_batch(code: int, fields: dict[str, str], batch: bool) -> None:
    assert is_batch(code, fields) is batch


def test_a_batch_is_counted_whatever_sizes_its_entries_give_themselves() -> None:
    body = messages.encode_batch([BatchMessage(0, b"x", "")] * 5)
    assert count(body) == 5
    assert count((2**31 - 1).to_bytes(4, "big") + body[4:]) == 5
    # As many as there could be.
    assert count(body[:-1]) >= 5


# The file.


@pytest.mark.parametrize("code", ["32768", "65536", "99999999999999999999"])
def test_a_fault_has_a_code_that_every_header_holds(code: str) -> None:
    # 65536 was SUCCESS to clients with binary headers.
    with pytest.raises(RulesError, match="32767"):
        parse(f'[[rule]]\nname = "f"\nkind = "fault"\nerror = {code}')


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_what_no_parser_takes_is_a_mistake_in_the_file(text: str) -> None:
    with pytest.raises(RulesError):
        parse(text)


def test_a_limit_is_a_number() -> None:
    with pytest.raises(RulesError, match="finite"):
        parse('[[rule]]\nname = "l"\nkind = "limit"\nmessages = inf')


# Counts.


def test_names_of_any_length_cost_no_memory_of_that_length() -> None:
    limit = parse('[[rule]]\nname = "l"\nkind = "limit"\nmessages = 1\nper = ["topic", "group", "client"]')
    judge = Evaluator(limit)
    long = "x" * 100_000
    judge.judge(Request(RequestCode.SEND_MESSAGE_V2, client_id=long, topics=(long,), groups=(long,), messages=1), 0)
    (active,) = judge.rules
    assert isinstance(active, ActiveLimit)
    (key,) = active._buckets["messages"]._buckets
    assert isinstance(key, tuple)
    assert all(len(str(part)) <= 255 for part in key)


async def test_the_flag_of_a_batch_gets_nobody_by_a_limit(tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "few"\nkind = "limit"\nmessages = 1e-6\nmatch.topics = ["orders"]\n'
    body = messages.encode_batch([BatchMessage(0, b"x", "")] * 5)
    async with replica(tmp_path, rules) as one, one.remoting() as client:
        fields = {**v2(client.named(send_fields("orders", ""))), "m": "true"}
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)).code == ResponseCode.SUCCESS
        (limit,) = one.app.rules._judge.rules
        assert isinstance(limit, ActiveLimit)
        (bucket,) = limit._buckets["messages"]._buckets.values()
        # Five were taken, of one that was there.
        assert bucket.tokens(0) < -3


async def test_a_peek_waits_for_its_limit_as_other_receives_do(tmp_path: Path) -> None:
    rules = '[[rule]]\nname = "few"\nkind = "limit"\nmessages = 1e-6\nmatch.actions = ["Sub"]\n'
    async with replica(tmp_path, rules) as one, one.remoting() as client:
        await send(client, "orders")
        peek = {"topic": "orders", "queueId": "0", "maxMsgNums": "32", "consumerGroup": "g", "bname": "broker-a"}
        codes = [(await client.ask(RequestCode.PEEK_MESSAGE, peek)).code for _ in range(2)]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [({"pollTime": "1"}, 1), ({"pollTime": "15000"}, 15), ({"pollTime": "9" * 15}, 60), ({"pollTime": "-9"}, 1)],
)
async def test_nobody_is_held_for_ever(fields: dict[str, str], seconds: float) -> None:
    command = complete(REQUESTS[RequestCode.POP_MESSAGE])
    command.fields.update(fields)
    assert _patience(Context(FakeChannel(), command, REQUESTS[command.code], 0.0)) == seconds


# Denying.

DENY = '[[rule]]\nname = "no-secrets"\nkind = "deny"\nmatch.topics = ["secret"]\n'


async def test_what_is_denied_cannot_be_looked_up(tmp_path: Path) -> None:
    async with replica(tmp_path, DENY) as one, one.remoting() as client:
        await one.create("secret")
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
async def test_a_body_that_we_cannot_read_gets_nobody_by_a_rule(tmp_path: Path, body: bytes, code: int) -> None:
    async with replica(tmp_path, DENY) as one, one.remoting() as client:
        reply = await client.ask(RequestCode.QUERY_ASSIGNMENT, {"bname": "broker-a"}, body)
        assert reply.code == code


# Tenants.


async def test_a_tenant_cannot_reach_other_queues_by_the_flag_of_a_batch(tmp_path: Path) -> None:
    async with replica(tmp_path, ACME, listen=LISTEN) as one, one.remoting(1) as client:
        pairs = properties.encode({properties.INNER_MULTI_DISPATCH: "%LMQ%other"})
        body = messages.encode_batch([BatchMessage(0, b"x", pairs)])
        fields = {**v2(client.named(send_fields("orders", ""))), "m": "true"}
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)).code == ResponseCode.NO_PERMISSION


async def test_a_heartbeat_that_is_too_deep_is_refused_and_no_connection_lost(tmp_path: Path) -> None:
    async with replica(tmp_path, ACME, listen=LISTEN) as one, one.remoting(1) as client:
        reply = await client.ask(RequestCode.HEART_BEAT, {}, b'{"clientID":"c","x":' + DEEP + b"}")
        assert reply.code == 29
        assert not client.closed


async def test_nothing_that_a_message_says_of_its_origin_keeps_it_from_a_tenant(tmp_path: Path) -> None:
    async with replica(tmp_path, ACME, listen=LISTEN) as one, one.remoting() as outsider:
        await one.create("acme%orders")
        pairs = {properties.DLQ_ORIGIN_TOPIC: "foreign", properties.DLQ_ORIGIN_MESSAGE_ID: "1"}
        await send(outsider, "acme%orders", b"poison", {**pairs, properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        async with one.grpc("orders", "g", 1) as consumer:
            responses = await consumer.responses(wait=5)
            (message,) = [response.message for response in responses if response.HasField("message")]
            assert message.body == b"poison"
            assert message.system_properties.dead_letter_queue.topic == ""


async def test_a_topic_that_is_everybodys_is_read_by_no_grpc_tenant(tmp_path: Path) -> None:
    async with replica(tmp_path, ACME, listen=LISTEN) as one, one.remoting() as outsider:
        await one.create("c_REPLY_TOPIC")
        await send(outsider, "c_REPLY_TOPIC", b"another's", {properties.UNIQ_CLIENT_MESSAGE_ID: "0" * 32})
        async with one.grpc("c_REPLY_TOPIC", "g", 1) as tenant:
            told = await tenant.responses(wait=2)
            assert [response.status.code for response in told] == [Code.FORBIDDEN]
            assert (await grpc_send(tenant, b"may be sent")).status.code == Code.OK
        # Nor looked up.
        stored, _ = await outsider.pull("c_REPLY_TOPIC", "g")
        async with one.remoting(1) as client:
            fields = {"offset": str(stored.commit_log_offset), "bname": "broker-a"}
            assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, fields)).code == ResponseCode.NO_PERMISSION


# Connections.


async def test_a_connection_that_was_turned_away_fills_no_memory() -> None:
    class Transport(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            pass

        def close(self) -> None:
            pass

    farewell = GrpcFarewell("too many")
    farewell.connection_made(Transport())
    # The preface, and the first frame of a call.
    farewell.data_received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 1, 1, 5, 0, 0, 0, 1)) + b"x")
    for _ in range(100):
        farewell.data_received(b"x" * 1000)
    assert len(farewell._buffer) == 0
    farewell.connection_lost(None)
