"""Contents that are nested deeply or parsed at a high cost, with a good client beside them."""

import asyncio

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting.codes import RequestCode
from tests.attacks.cases import cases
from tests.attacks.good_client import observed, send_fields
from tests.attacks.raw_client import Client as RawClient
from tests.cluster.client import Client, unique
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

_METADATA = (("x-mq-client-id", "attacker"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.0"))
_BODIES = {
    "arrays": b'{"clientID":"c","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects of the dialect": b"{a:" * 5_000 + b"1" + b"}" * 5_000,
    "a number of 15,000 digits": b"{clientID:'c',a:" + b"9" * 15_000 + b"}",
    "an exponent": b"{clientID:'c',a:1e" + b"9" * 15_000 + b"}",
    "escapes": b"{clientID:'c',a:'" + b"\\u0041" * 2_500 + b"'}",
    "references in a circle": b'{"clientID":"c","a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
    "references to long paths": b'{"clientID":"c","a":[%s]}' % b",".join([b'{"$ref":"$%s"}' % (b".a[0]" * 2_000)] * 16),
    "equal keys": b'{"clientID":"c",' + b",".join([b'"a":1'] * 40_000) + b"}",
}


@pytest.mark.parametrize("name", cases(_BODIES, "arrays"))
async def test_deep_and_long_json_bodies_do_not_stall(replica: Gantry, name: str) -> None:
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        codes = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.BATCH_ACK_MESSAGE)
        replies = [attacker.begin(code, {"bname": "broker-a"}, _BODIES[name], 60) for code in codes for _ in range(5)]
        await asyncio.gather(*replies)
    observation.check(growth=48)


async def test_properties_of_many_separators_do_not_stall(replica: Gantry) -> None:
    """Property strings of 32 KiB: 16,000 pairs, a key that nearly matches everywhere, and separators alone."""
    topic = unique("topic")
    texts = ["a\x01b\x02" * 8_000, "UNIQ_KE\x01" * 3_600, "\x02" * 32_000, "\x01" * 32_000, "TAGS\x01\x02" * 5_000]
    async with (
        observed(replica.address, replica.pid, unique("good")) as observation,
        Client(replica.address) as attacker,
    ):
        for text in texts:
            fields = send_fields(topic) | {"i": text}
            replies = [attacker.begin(RequestCode.SEND_MESSAGE_V2, fields, b"x", 60) for _ in range(20)]
            await asyncio.gather(*replies)
    observation.check(growth=48)


async def test_protobuf_messages_of_many_small_parts_do_not_stall(replica: Gantry) -> None:
    """Unknown groups that are nested 10,000 deep, a million unknown fields, and 100,000 empty entries."""
    service = "/apache.rocketmq.v2.MessagingService/"
    entries = pb.AckMessageRequest(group=d.Resource(name="g"), topic=d.Resource(name="t"))
    entries.entries.extend([pb.AckMessageEntry()] * 100_000)
    empty = pb.SendMessageRequest()
    empty.messages.extend([d.Message()] * 100_000)
    attacks = [
        ("SendMessage", b"\xa3\x06" * 10_000 + b"\xa4\x06" * 10_000),
        ("QueryRoute", b"\xa0\x06\x01" * 300_000),
        ("AckMessage", entries.SerializeToString()),
        ("SendMessage", empty.SerializeToString()),
        ("Heartbeat", b"\x0a\x80\x80\x40" + b"x" * (1 << 20)),
    ]

    def attack() -> None:
        with RawClient(replica.port) as client:
            for number, (method, body) in enumerate(attacks * 2):
                stream = 2 * number + 1
                client.send(client.headers(stream, client.request(service + method, *_METADATA)))
                client.upload(stream, b"\0" + len(body).to_bytes(4) + body)
                client.response(stream)

    async with observed(replica.address, replica.pid, unique("good")) as observation:
        await asyncio.to_thread(attack)
    observation.check(growth=96)
