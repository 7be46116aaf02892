"""Requests of remoting clients that cost the server more than the sender, with a good client beside them."""

import asyncio
import struct
import time
from pathlib import Path

import anyio
import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode
from remoting.frame import encode_prefix
from tests.attacks.good_client import memory_released, observed
from tests.benchmark.processes import rss_mb
from tests.cluster.client import Client, unique
from tests.cluster.servers import Gantry

pytestmark = pytest.mark.anyio

# Growth in MiB that any of these attacks may cause.
_GROWTH = 48.0
# Growth in MiB that may remain after an attack: pages that the allocator keeps.
_REMAINING = 24.0


def _multiplied_heartbeat(client_id: str, groups: int, entries: int, padding: int) -> bytes:
    """Return a heartbeat whose groups refer to one list of subscriptions, with names padded by `padding` characters."""
    shared = [{"topic": f"t{number}"} for number in range(entries)]
    first = {"groupName": "g0" + "x" * padding, "subscriptionDataSet": shared}
    others = [
        {
            "groupName": f"g{number}" + "x" * padding,
            "subscriptionDataSet": {"$ref": "$.consumerDataSet[0].subscriptionDataSet"},
        }
        for number in range(1, groups)
    ]
    return orjson.dumps({"clientID": client_id, "consumerDataSet": [first, *others], "producerDataSet": []})


async def test_references_do_not_multiply_a_heartbeat(replica: Gantry) -> None:
    body = _multiplied_heartbeat("attacker", 1000, 20_000, 240)
    async with (
        observed(replica.address, replica.pid, unique("orders")) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        reply = await attacker.ask(RequestCode.HEART_BEAT, {}, body, timeout=60)
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert "heartbeat" in str(reply.header["remark"])
    observation.check(growth=_GROWTH)


async def test_references_do_not_multiply_when_a_group_is_unregistered(replica: Gantry) -> None:
    before = rss_mb(replica.pid)
    body = _multiplied_heartbeat("attacker", 1000, 9_000, 0)
    assert len(body) < 256 * 1024
    async with (
        observed(replica.address, replica.pid, unique("orders")) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        assert (await attacker.ask(RequestCode.HEART_BEAT, {}, body, timeout=60)).code != ResponseCode.SUCCESS
        fields = {"clientID": "attacker", "consumerGroup": "g1"}
        await attacker.ask(RequestCode.UNREGISTER_CLIENT, fields, timeout=60)
    observation.check(growth=_GROWTH)
    await memory_released(replica.pid, before + _REMAINING)


async def test_a_client_is_in_a_bounded_number_of_groups(replica: Gantry) -> None:
    async with (
        observed(replica.address, replica.pid, unique("orders")) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        replies = []
        for beat in range(20):
            producers = [{"groupName": f"p{beat}-{number}"} for number in range(500)]
            body = orjson.dumps({"clientID": "attacker", "producerDataSet": producers, "consumerDataSet": []})
            replies.append(await attacker.ask(RequestCode.HEART_BEAT, {}, body, timeout=60))
    assert [reply.code for reply in replies[:2]] == [ResponseCode.SUCCESS] * 2
    assert {reply.code for reply in replies[2:]} == {ResponseCode.INVALID_PARAMETER}
    observation.check(growth=_GROWTH)


async def test_a_flood_of_the_fastjson_dialect_does_not_stall_others(replica: Gantry) -> None:
    """Bodies of 15 and 240 KB of unquoted keys, more than 4 MB in a second."""
    async with (
        observed(replica.address, replica.pid, unique("orders")) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        for size in (15_000, 240_000):
            body = b"{clientID:'attacker',odd:[" + b"{a:1}," * (size // 6) + b"]}"
            replies = [attacker.begin(RequestCode.HEART_BEAT, {}, body, 60) for _ in range(4_000_000 // size)]
            for reply in replies:
                await reply
    observation.check(growth=_GROWTH, stall=0.5)


async def test_thousands_of_ext_fields_are_refused(replica: Gantry) -> None:
    """Long polls with 28,000 ext fields each, which would otherwise be kept for their whole time."""
    before = rss_mb(replica.pid)
    fields = {f"f{number}": "" for number in range(15_000)} | {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": "60000",
        "subVersion": "0",
    }
    async with (
        observed(replica.address, replica.pid, unique("orders")) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        replies = [attacker.begin(RequestCode.PULL_MESSAGE, fields) for _ in range(50)]
        for reply in replies:
            refused = await reply
            assert refused.code != ResponseCode.SUCCESS
            assert "ext fields" in str(refused.header["remark"])
    observation.check(growth=_GROWTH)
    await memory_released(replica.pid, before + _REMAINING)


@pytest.mark.parametrize("depth", [300, 900])
async def test_unknown_keys_of_a_header_are_dropped(replica: Gantry, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    header = b'{"code":105,"opaque":0,"flag":0,"odd":%s,"language":%s,"extFields":{"topic":"t"}}' % (nested, nested)
    async with (
        observed(replica.address, replica.pid, unique("orders")) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        # The reply to opaque 0, which this request has too.
        reply = attacker.begin(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"})
        attacker.write(encode_prefix(0, len(header), 0) + header)
        assert "odd" not in (await reply).header
        assert (await attacker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"})).code is not None
    observation.check(growth=_GROWTH)


async def test_a_number_of_10000_digits_is_an_error(replica: Gantry) -> None:
    topic = unique("orders")
    fields = {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": "9" * 10_000,
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
    }
    async with (
        observed(replica.address, replica.pid, topic) as observation,
        Client(replica.address, unique("attacker")) as attacker,
    ):
        for digits in (20, 400, 4_000, 10_000):
            fields["queueId"] = "9" * digits
            reply = await attacker.ask(RequestCode.PULL_MESSAGE, fields)
            # Real brokers get the number, and quote it in their own error.
            quoted = digits if reply.code == ResponseCode.SYSTEM_ERROR else 0
            assert quoted or reply.code == ResponseCode.INVALID_PARAMETER, str(reply.header)
            assert len(str(reply.header["remark"])) < 200 + quoted
    observation.check(growth=_GROWTH)


@pytest.mark.complete
async def test_an_unfinished_frame_is_not_kept(tmp_path: Path) -> None:
    """100 connections send 256 KiB of a frame, then a byte per second."""
    config = f'drain_timeout = 0.5\n[limits]\nframe_timeout = 1\n[embedded]\ndirectory = "{tmp_path / "broker"}"\n'
    with Gantry(tmp_path, "", config + '[admin]\nlisten = "off"\n') as replica:
        before = rss_mb(replica.pid)
        async with observed(replica.address, replica.pid, unique("orders")) as observation:
            writers = []
            for _ in range(100):
                reader, writer = await asyncio.open_connection("127.0.0.1", replica.port)
                writer.write(struct.pack("!II", 15 << 20, 100) + bytes(1 << 18))
                writers.append((reader, writer))
            deadline = time.monotonic() + 60
            ended: set[int] = set()
            while len(ended) < len(writers):
                assert time.monotonic() < deadline, f"{len(ended)} of {len(writers)} connections were closed"
                for number, (reader, writer) in enumerate(writers):
                    if reader.at_eof() or writer.is_closing():
                        ended.add(number)
                        writer.close()
                    elif number not in ended:
                        writer.write(b"x")
                await anyio.sleep(1)
        observation.check(growth=_GROWTH)
        await memory_released(replica.pid, before + _REMAINING)
