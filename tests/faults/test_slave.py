"""A killed master with a slave."""

import time
from collections.abc import Iterator
from pathlib import Path

import anyio.to_thread
import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.messages import StoredMessage
from tests.cluster.client import Client, described, pull_fields, queue_fields, send_fields, unique, v2, wait_until
from tests.cluster.grpc.consumer import Consumer
from tests.cluster.reports import figure
from tests.cluster.servers import Cluster, Gantry, serving, started
from tests.cpu_use import counting_waits
from tests.faults.relay import relaying

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]

# Seconds; a wait for a dead broker takes at least three.
_AT_ONCE = 2.5


@pytest.fixture(scope="module")
def slave(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory, "slave", "--quick", "--slave") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory, "acting", "--quick", "--slave", "--acting-master", "--second-broker") as cluster:
        yield cluster


async def _timed(
    gantry: Gantry, client: Client, code: int, fields: dict[str, object], body: bytes = b""
) -> tuple[RemotingCommand, float]:
    """Return the response and its seconds, without those for which Gantry or the test waited for a processor."""
    async with counting_waits(gantry.pid) as waits:
        begin = time.monotonic()
        reply = await client.ask(code, fields, body)
        return reply, time.monotonic() - begin - waits.elapsed()


async def _prepare(cluster: Cluster, client: Client, topic: str, group: str) -> StoredMessage:
    """Send five messages, wait until the slave has them, and return the first."""
    await client.heartbeat({group: [topic]})
    for number in range(5):
        await client.send(topic, b"%d" % number)
    async with Client(cluster.addresses["slave"]) as direct:

        async def copied() -> bool:
            fields = direct.named(pull_fields(topic, group))
            return len((await direct.ask(RequestCode.PULL_MESSAGE, fields)).body) > 5 * 80

        await wait_until(copied, "the copy at the slave")
    return (await client.pull(topic, group))[0]


async def _works(client: Client, topic: str, message: StoredMessage, group: str) -> bool:
    """Return whether the topic's broker accepts a new message and one that is sent back."""
    sent = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"x")
    back = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, _back(client, message, group))
    return sent.code == back.code == ResponseCode.SUCCESS


async def _grpc_send(address: str, topic: str) -> str:
    """Return the code of a SendMessage."""
    system = d.SystemProperties(message_id=unique("01"))
    message = d.Message(topic=d.Resource(name=topic), body=b"x", system_properties=system)
    async with Consumer(address, unique("group"), topic) as client:
        response = await client.call("SendMessage", pb.SendMessageRequest(messages=[message]))
    return d.Code.Name(response.status.code)


def _back(client: Client, message: StoredMessage, group: str) -> dict[str, object]:
    return client.named(
        {"offset": message.commit_log_offset, "group": group, "delayLevel": 1, "originTopic": message.topic}
    )


async def test_slave_serves_reads_without_lost_messages(slave: Cluster, tmp_path: Path) -> None:
    """Weakness guarded against: without a master every request went to a name server, which refused it as unknown,
    and no slave was ever read (8.7)."""
    topic, group = unique("slave"), unique("group")
    await anyio.to_thread.run_sync(slave.topic, topic, 1)
    async with relaying(lambda: [slave.namesrv]) as watched:
        async with serving(Gantry(tmp_path, watched.address)) as gantry, Client(gantry.address) as client:
            message = await _prepare(slave, client, topic, group)
            await anyio.to_thread.run_sync(slave.kill, "broker")
            try:
                for _ in range(2):
                    found = await client.pull(topic, group)
                    assert [m.body for m in found] == [b"0", b"1", b"2", b"3", b"4"]
                    for code, fields, body in (
                        (RequestCode.CONSUMER_SEND_MSG_BACK, _back(client, message, group), b""),
                        (RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"x"),
                        (RequestCode.SEND_MESSAGE, client.named(send_fields(topic)), b"x"),
                    ):
                        reply, seconds = await _timed(gantry, client, code, fields, body)
                        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE, described(reply)
                        assert "broker-a" in (reply.remark or ""), reply.remark
                        assert seconds < _AT_ONCE
                    newest, seconds = await _timed(gantry, client, RequestCode.GET_MAX_OFFSET, queue_fields(topic))
                    assert (newest.code, newest.fields.get("offset")) == (0, "5")
                    assert seconds < _AT_ONCE
                    await client.heartbeat({group: [topic]})
                    assert await client.consumers(group) == [client.client_id]
                    # The second round follows after the name server stopped listing the master.
                    await anyio.sleep(1.5)
            finally:
                begin = time.monotonic()
                await anyio.to_thread.run_sync(slave.restart, "broker")

            seconds = await wait_until(lambda: _works(client, topic, message, group), "everything working again")
            figure(f"all works {seconds:.2f} s after the master is ready ({time.monotonic() - begin:.1f} s in all)")
        assert set(watched.codes) <= {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
        assert watched.codes


async def test_acting_master_serves_its_requests(acting: Cluster, tmp_path: Path) -> None:
    topic, group = unique("acting"), unique("group")
    await anyio.to_thread.run_sync(acting.topic, topic, 1)
    async with relaying(lambda: [acting.namesrv]) as watched:
        async with serving(Gantry(tmp_path, watched.address)) as gantry, Client(gantry.address) as client:
            message = await _prepare(acting, client, topic, group)
            await anyio.to_thread.run_sync(acting.kill, "broker")
            try:
                for _ in range(2):
                    found = await client.pull(topic, group)
                    assert [m.body for m in found] == [b"0", b"1", b"2", b"3", b"4"]
                    sent, seconds = await _timed(
                        gantry, client, RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"x"
                    )
                    assert sent.code in _RETRYABLE, described(sent)
                    assert seconds < _AT_ONCE
                    back, seconds = await _timed(
                        gantry, client, RequestCode.CONSUMER_SEND_MSG_BACK, _back(client, message, group)
                    )
                    figure(f"send: {described(sent)}; send back: {described(back)}")
                    # The slave's own rule: it accepts sent-back messages only for a master in its process.
                    assert back.code in {*_RETRYABLE, ResponseCode.SYSTEM_ERROR}, described(back)
                    assert back.remark
                    assert seconds < _AT_ONCE
                    grpc_code = await _grpc_send(gantry.address, topic)
                    figure(f"gRPC send: {grpc_code}")
                    assert grpc_code in _RETRIED_BY_GRPC_CLIENTS, grpc_code
                    # Clients then send the message to the group's retry topic on another broker.
                    retry = send_fields(f"%RETRY%{group}", reconsumeTimes=1, maxReconsumeTimes=16, bname="broker-b")
                    sent_again = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(retry), message.body)
                    assert sent_again.code == ResponseCode.SUCCESS, described(sent_again)
                    await anyio.sleep(3)
            finally:
                await anyio.to_thread.run_sync(acting.restart, "broker")

            await wait_until(lambda: _works(client, topic, message, group), "everything working again")
        assert set(watched.codes) <= {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}


_RETRIED_BY_GRPC_CLIENTS = {"HA_NOT_AVAILABLE", "INTERNAL_SERVER_ERROR", "OK"}
# A Java producer tries another broker after these.
_RETRYABLE = {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_BUSY}
