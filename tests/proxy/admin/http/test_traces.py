"""Trace records of gRPC clients' messages, written by the replica and read by the API."""

from pathlib import Path

import pytest

from grpc_gateway import message_trace
from remoting import messages
from remoting.compression import CompressionType
from remoting.message_trace import Publication, encode
from remoting.names import TRACE_TOPIC
from tests.cluster.client import Client, create_topic
from tests.cluster.grpc.consumer import Consumer
from tests.proxy.admin.http.replicas import replica

pytestmark = pytest.mark.anyio

_ON = {"message_trace": True, "min_polling": 0.1, "min_invisible": 1.0}


async def test_trace_names_publication_and_every_delivery(tmp_path: Path) -> None:
    async with replica(tmp_path, grpc=_ON) as own:
        topic = await create_topic(own.address, "traced")
        async with Consumer(own.address, "tracers", topic) as consumer:
            await consumer.receive(wait=0.1)
            await consumer.send(b"first", keys=["key-1"])
            (first,) = await consumer.receive_all(1, invisible=1)
            (again,) = await consumer.receive_all(1, invisible=30)
            await consumer.ack(again)
        await own.app.grpc._trace_writer.flush()  # type: ignore[union-attr]  # instead of waiting a second
        trace = await own.get(f"/v1/message-traces/{first.system_properties.message_id}")
        (sent,) = trace["sends"]
        assert (sent["topic"], sent["bytes"], sent["success"]) == (topic, 5, True)
        consumptions = [(one["group"], one["attempt"], one["success"]) for one in trace["consumptions"]]
        assert consumptions == [("tracers", 1, None), ("tracers", 2, True)]
        assert (await own.get("/v1/message-traces/unknown"))["sends"] == []
        metrics = (await own.read.get("/metrics")).text
        assert 'gantry_message_traces_total{outcome="written"} 4.0' in metrics


async def test_trace_messages_that_expand_much_are_passed_over(tmp_path: Path) -> None:
    """A few KB, stored by any client, would take gigabytes and seconds."""
    record = encode(Publication(1, "R", "shop", "orders", "ID1", "", "", "host", 3, 2, 0, "offset", True)).encode()
    async with replica(tmp_path) as own, Client(own.address) as client:
        for filler in (b"", b"x\x02" * 200_000):
            body, flags = messages.compress(record + filler, CompressionType.ZLIB)
            await client.send(TRACE_TOPIC, body, {"KEYS": "ID1"}, sysFlag=flags)
        assert len((await own.get("/v1/message-traces/ID1"))["sends"]) == 1


async def test_messages_of_the_trace_topic_are_not_traced(tmp_path: Path) -> None:
    async with replica(tmp_path, grpc={**_ON, "trace_topic": "audit"}) as own:
        await create_topic(own.address, "audit", exact=True)
        async with Consumer(own.address, "tracers", "audit") as consumer:
            await consumer.receive(wait=0.1)
            await consumer.send(b"first")
            await consumer.ack(*await consumer.receive_all(1))
        assert "gantry_message_traces_total{" not in (await own.read.get("/metrics")).text


async def test_records_beyond_the_limit_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_trace, "_MAX_WAITING", 2)
    monkeypatch.setattr("proxy.frontends.grpc_frontend._TRACE_INTERVAL", 3600)
    async with replica(tmp_path, grpc=_ON) as own:
        topic = await create_topic(own.address, "traced")
        async with Consumer(own.address, "tracers", topic) as producer:
            await producer.send(b"1", b"2", b"3", b"4")
        metrics = (await own.read.get("/metrics")).text
        assert 'gantry_message_traces_total{outcome="dropped"} 2.0' in metrics


async def test_messages_are_not_traced_by_default(tmp_path: Path) -> None:
    async with replica(tmp_path) as own:
        assert "gantry_message_traces" not in (await own.read.get("/metrics")).text
