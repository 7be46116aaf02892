"""Invalid requests: each is rejected clearly, and its connection and others continue."""

import json as stdlib_json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from remoting.codes import RequestCode, ResponseCode
from remoting.requests import REQUESTS, Direction
from tests.cluster.client import Client, create_topic, described, pull_fields, queue_fields, send_fields, unique, v2
from tests.cluster.servers import HOST, TIMEOUT, Cluster, Gantry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]

_NO_FIELDS = [code for code, spec in REQUESTS.items() if spec.required and spec.direction is not Direction.BROKER]
_INWARDS = [code for code, spec in REQUESTS.items() if spec.direction is Direction.BROKER]


@asynccontextmanager
async def _unaffected_poll(cluster: Cluster, gantry: Gantry) -> AsyncIterator[None]:
    """Run a long poll on another connection, which must not be affected inside the context."""
    topic = await create_topic(cluster.broker, "neighbour")
    async with Client(gantry.address) as neighbour:
        fields = neighbour.named(pull_fields(topic, unique("group"), wait=60_000))
        waiting = neighbour.begin(RequestCode.PULL_MESSAGE, fields, timeout=90)
        await anyio.sleep(0.1)
        yield
        assert not waiting.done()
        # Opened late: a connection that sends nothing for ten seconds is closed.
        async with Client(cluster.broker) as direct:
            await direct.send(topic, b"x")
        assert (await waiting).code == ResponseCode.SUCCESS


async def _check_alive(client: Client) -> None:
    await client.route("TBW102")


@pytest.mark.parametrize("code", _NO_FIELDS, ids=lambda code: RequestCode(code).name)
async def test_a_request_without_required_fields_is_rejected_by_their_names(gantry: Gantry, code: int) -> None:
    async with Client(gantry.address) as client:
        reply = await client.ask(code, {})
        assert reply.code == ResponseCode.INVALID_PARAMETER, described(reply)
        assert any(field in (reply.remark or "") for field in REQUESTS[code].required), reply.remark
        await _check_alive(client)


@pytest.mark.parametrize("code", [*_INWARDS, 4711, 0, -1, 2**31 - 1])
async def test_codes_that_clients_cannot_send_are_rejected(gantry: Gantry, code: int) -> None:
    async with Client(gantry.address) as client:
        reply = await client.ask(code, {"topic": "t", "group": "g"})
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert str(code) in (reply.remark or "")
        await _check_alive(client)


async def test_invalid_values_are_rejected_without_effect_on_other_requests(cluster: Cluster, gantry: Gantry) -> None:
    topic = await create_topic(cluster.broker, "values")
    poll = pull_fields(topic, unique("group"))
    wrong: list[tuple[int, Mapping[str, object], bytes]] = [
        (RequestCode.PULL_MESSAGE, {**poll, "bname": "broker-a", "suspendTimeoutMillis": "soon"}, b""),
        (RequestCode.PULL_MESSAGE, {**poll, "bname": "broker-a", "queueId": "first"}, b""),
        (RequestCode.PULL_MESSAGE, {**poll, "bname": "broker-a", "queueId": 99}, b""),
        (RequestCode.GET_MAX_OFFSET, {**queue_fields(topic), "queueId": "x"}, b""),
        (RequestCode.ACK_MESSAGE, {**queue_fields(topic), "consumerGroup": "g", "extraInfo": "?", "offset": 1}, b""),
        (
            RequestCode.ACK_MESSAGE,
            {"topic": "t", "queueId": 0, "consumerGroup": "g", "extraInfo": "?", "offset": 1},
            b"",
        ),
        (RequestCode.BATCH_ACK_MESSAGE, {}, b"[]"),
        (RequestCode.BATCH_ACK_MESSAGE, {}, b'{"brokerName": 5}'),
        (RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": "!"}, b""),
        (RequestCode.HEART_BEAT, {}, b"not json"),
        (RequestCode.HEART_BEAT, {}, b"{}"),
        (RequestCode.HEART_BEAT, {}, b'{"clientID": "c", "consumerDataSet": [{}]}'),
        (RequestCode.HEART_BEAT, {}, b'{"clientID": "c", "consumerDataSet": 7}'),
        (RequestCode.LOCK_BATCH_MQ, {}, b'{"mqSet": [{"topic": "t"}]}'),
        (RequestCode.LOCK_BATCH_MQ, {}, b'{"mqSet": "all"}'),
        (RequestCode.LOCK_BATCH_MQ, {}, b"\xff\xfe"),
        (RequestCode.UNLOCK_BATCH_MQ, {}, b"nope"),
        (RequestCode.CHECK_CLIENT_CONFIG, {}, b"nope"),
        (RequestCode.CHECK_CLIENT_CONFIG, {}, b'{"subscriptionData": "x"}'),
        (RequestCode.QUERY_ASSIGNMENT, {}, b"nope"),
        (RequestCode.QUERY_ASSIGNMENT, {}, b"[1]"),
        (RequestCode.SEND_MESSAGE_V2, {**v2(send_fields(topic)), "n": "broker-a", "e": "x"}, b"x"),
    ]
    async with _unaffected_poll(cluster, gantry), Client(gantry.address) as client:
        for code, fields, body in wrong:
            reply = await client.ask(code, fields, body)
            assert reply.code != ResponseCode.SUCCESS, (RequestCode(code).name, fields, body)
            assert reply.remark, (RequestCode(code).name, fields, body)
            assert reply.remark != "internal error", (RequestCode(code).name, fields, body)
        await _check_alive(client)


async def test_an_unknown_broker_is_rejected_without_effect_on_other_requests(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against failures that are answered under another request's opaque (8.1), and against an empty error for a
    broker without a route (8.7)."""
    topic = await create_topic(cluster.broker, "unknown")
    async with _unaffected_poll(cluster, gantry), Client(gantry.address) as client:
        poll = client.begin(
            RequestCode.PULL_MESSAGE, client.named(pull_fields(topic, unique("group"), wait=60_000)), timeout=90
        )
        failed = [
            client.begin(RequestCode.GET_MAX_OFFSET, {**queue_fields(topic), "bname": "nowhere"}) for _ in range(9)
        ]
        good = [client.begin(RequestCode.GET_MAX_OFFSET, queue_fields(topic)) for _ in range(9)]
        for reply in [await future for future in failed]:
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "nowhere" in (reply.remark or "")
        assert [(await future).fields for future in good] == [{"offset": "0"}] * 9
        assert not poll.done()
        await client.send(topic, b"x")
        assert (await poll).code == ResponseCode.SUCCESS


# Raw frames.


def _frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    raw = stdlib_json.dumps(header).encode()
    return struct.pack(">II", 4 + len(raw) + len(body), len(raw)) + raw + body


async def _read(stream: SocketStream) -> dict[str, Any]:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += await stream.receive()
    header: dict[str, Any] = stdlib_json.loads(data[8 : 8 + int.from_bytes(data[5:8], "big")])
    return header


_ROUTE = {"code": 105, "language": "JAVA", "version": 481, "flag": 0, "extFields": {"topic": "TBW102"}}


@pytest.mark.parametrize(
    "header",
    [
        {"code": "x", "opaque": 7, "flag": 0},
        {"code": None, "opaque": 7, "flag": 0},
        {"code": 105, "opaque": 7, "flag": 0, "extFields": []},
        {"code": 105, "opaque": 7, "flag": 0, "extFields": {"topic": {"a": 1}}},
        {"code": 34, "opaque": 7, "flag": 0},
    ],
)
async def test_an_invalid_header_is_rejected_and_the_connection_continues(
    gantry: Gantry, header: dict[str, Any]
) -> None:
    async with await anyio.connect_tcp(HOST, gantry.port) as stream:
        await stream.send(_frame(header))
        with anyio.fail_after(TIMEOUT):
            reply = await _read(stream)
            assert (reply["opaque"], reply["flag"] & 1) == (7, 1)
            assert reply["code"] != 0
            assert reply["remark"]
            await stream.send(_frame({**_ROUTE, "opaque": 8}))
            reply = await _read(stream)
        assert (reply["opaque"], reply["code"]) == (8, 0)


_UNREADABLE: list[dict[str, Any]] = [
    {"version": 2**31},
    {"version": -(2**40)},
    {"version": "x"},
    {"language": 99},
    {"language": {"a": "b"}},
    {"serializeTypeCurrentRPC": 99},
    {"remark": ["x"]},
    {"flag": 2**40},
    {"reference": "$ref"},
    {"reference": "@type"},
]


@pytest.mark.parametrize("change", _UNREADABLE, ids=str)
async def test_a_header_that_brokers_cannot_decode_ends_no_request_of_others(
    cluster: Cluster, gantry: Gantry, change: dict[str, Any]
) -> None:
    """Brokers close a connection on such a header, and clients share the connections to brokers."""
    topic = await create_topic(cluster.broker, "unreadable")
    header = {"code": 30, "language": "JAVA", "version": 481, "flag": 0, "opaque": 7, **change}
    name = header.pop("reference", None)
    header["extFields"] = ({} if name is None else {name: "$.topic"}) | queue_fields(topic)
    async with Client(gantry.address) as neighbour:
        await neighbour.send(topic, b"x")
        # Clients are spread over the connections by their numbers.
        for _ in range(4):
            sends = [
                neighbour.begin(RequestCode.SEND_MESSAGE_V2, v2(neighbour.named(send_fields(topic))), b"x")
                for _ in range(16)
            ]
            async with await anyio.connect_tcp(HOST, gantry.port) as stream:
                await stream.send(_frame(header))
                with anyio.fail_after(TIMEOUT), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    assert (await _read(stream))["opaque"] == 7
            assert {(await send).code for send in sends} == {ResponseCode.SUCCESS}


@pytest.mark.parametrize(
    "data",
    [
        bytes(64),
        b"\xff" * 64,
        struct.pack(">II", 2**31 - 1, 100) + bytes(100),
        struct.pack(">II", 100, 200) + bytes(200),
        struct.pack(">II", 20, 16) + b"{not json at all",
        struct.pack(">II", 20, 7 << 24 | 16) + bytes(16),
        struct.pack(">II", 12, 1 << 24 | 8) + bytes(8),
        b"GET nonsense\r\n\r\n",
    ],
    ids=["zeros", "ones", "huge", "header too long", "no json", "unknown encoding", "short binary", "text"],
)
async def test_garbage_closes_only_its_own_connection(cluster: Cluster, gantry: Gantry, data: bytes) -> None:
    async with _unaffected_poll(cluster, gantry):
        for prefix in (b"", _frame({**_ROUTE, "opaque": 1})):
            async with await anyio.connect_tcp(HOST, gantry.port) as stream:
                with anyio.fail_after(TIMEOUT):
                    if prefix:
                        await stream.send(prefix)
                        assert (await _read(stream))["opaque"] == 1
                    await stream.send(data)
                    try:
                        while True:
                            await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        pass


async def test_oneway_requests_are_never_answered(gantry: Gantry) -> None:
    """Guards against responses to oneway requests that waited too long (8.18)."""
    bad: list[dict[str, Any]] = [
        {"code": 4711},
        {"code": 34, "extFields": {}},
        {"code": 310, "extFields": {}},
        {"code": 15, "extFields": {**queue_fields("t"), "consumerGroup": "g", "commitOffset": "1", "bname": "nowhere"}},
        {
            "code": 15,
            "extFields": {**queue_fields("t"), "consumerGroup": "g", "commitOffset": "?", "bname": "broker-a"},
        },
        {"code": 42, "extFields": {}},
        {"code": 105, "extFields": {"topic": "TBW102"}},
        {"code": 38, "extFields": {"consumerGroup": "nobody"}},
    ]
    async with await anyio.connect_tcp(HOST, gantry.port) as stream:
        for number, header in enumerate(bad):
            await stream.send(_frame({"language": "JAVA", "version": 481, "flag": 2, "opaque": number, **header}))
        await anyio.sleep(0.5)
        await stream.send(_frame({**_ROUTE, "opaque": 100}))
        with anyio.fail_after(TIMEOUT):
            assert (await _read(stream))["opaque"] == 100
