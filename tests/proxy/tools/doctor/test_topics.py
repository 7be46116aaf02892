"""A topic and a group, the clocks, and idle connections."""

import asyncio
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from protocol_negotiation.peer import HostPort
from proxy.app import App
from proxy.tools.doctor import wire
from proxy.tools.doctor.clock import check_clock
from proxy.tools.doctor.connection import Target
from proxy.tools.doctor.protocols import NAME_SERVER
from proxy.tools.doctor.session import Diagnosis, Options
from proxy.tools.doctor.topics import check_topic_and_group
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.replica import serving
from tests.proxy.tools.doctor.servers import codes, create_topic, only, replica, run_doctor, server

pytestmark = pytest.mark.anyio


async def test_usable_topic_is_ok(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app, topic="orders", group="workers")
        assert only(found, "topic.usable").text == "topic orders: 4 queues to write, 4 to read, on broker-a"
        assert {"topic.types", "group.fresh", "clock.agrees"} <= codes(found)
        # Nothing was left behind.
        assert stored(app) == 0


async def test_written_message_is_read_back(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app, topic="orders", group="workers", write=True)
        assert [item.text.partition(" (")[0] for item in found if item.code == "topic.sent"] == [
            "a message was sent to orders over remoting",
            "a message was sent to orders over gRPC",
        ]
        assert {"topic.received", "clock.agrees"} <= codes(found)
        assert stored(app) == 2
        # Reading created the group, and did not move it.
        again = await run_doctor(app, topic="orders", group="workers")
    assert "group.fresh" in codes(again)


def stored(app: App) -> int:
    """Return the messages that the embedded broker has stored."""
    return app.backend.broker.statistics.counts["put"]  # type: ignore[union-attr]


async def test_group_with_offsets_is_known(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        made = commands.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"workers"}')
        app.backend.handle(None, made)  # type: ignore[union-attr]
        fields = {"consumerGroup": "workers", "topic": "orders", "queueId": "0", "commitOffset": "0"}
        answer = await wire.ask(Target(app.addresses[0], "", 5.0), RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert answer.code == 0, answer.remark
        found = await run_doctor(app, topic="orders", group="workers")
    assert only(found, "group.known").text == "group workers exists, at offset 0 of queue 0 of broker-a"


async def test_unknown_group_without_auto_creation_is_a_warning(tmp_path: Path) -> None:
    async with replica(tmp_path, embedded={"auto_create_groups": False}) as app:
        found = await run_doctor(app, topic="orders", group="nobody", write=True)
        assert {
            f"create it (gantry groups create nobody --endpoint {app.addresses[0]}" in item.remedy
            for item in found
            if item.code == "group.unknown"
        } == {True}


async def test_missing_topic_is_created_by_gantry(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(app, topic="payments")
        remedy = only(found, "topic.unknown").remedy
        assert f"(gantry topics create payments --endpoint {app.addresses[0]};" in remedy
        assert "mqadmin" not in remedy


async def test_missing_topic_at_another_server_is_created_by_mqadmin(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        endpoint = app.addresses[0]
        diagnosis = Diagnosis(Options(endpoint, topic="payments"), address=endpoint, plain=True, remoting=True)
        diagnosis.kind = NAME_SERVER
        found = [item async for item in check_topic_and_group(diagnosis)]
    assert "(mqadmin updateTopic -n NAMESRV -c CLUSTER -t payments)" in only(found, "topic.unknown").remedy


@pytest.mark.parametrize(("permission", "verb"), [(4, "written"), (2, "read")])
async def test_closed_topic_fails(tmp_path: Path, permission: int, verb: str) -> None:
    async with replica(tmp_path) as app:
        create_topic(app, "half", permission)
        found = await run_doctor(app, topic="half")
    assert verb in only(found, "topic.closed").text


async def test_write_only_topic_fails(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        create_topic(app, "half", 2)
        found = await run_doctor(app, topic="half", group="workers", write=True)
    assert "topic.sent" in codes(found)
    assert "code 16" in only(found, "topic.not_received").text


@pytest.mark.parametrize("code", [16, 1])
async def test_errors_of_brokers_fail(cluster: Cluster, code: int) -> None:
    def refuse(command: RemotingCommand) -> RemotingCommand:
        return commands.response(code, remark="user nobody may not")

    await cluster.broker("broker-a", answer=refuse)
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        # A route without queues leaves nothing to try.
        name_server = cluster.names[0]
        tell = name_server.answer
        name_server.answer = lambda command: with_queues(tell(command))
        found = await run_doctor(app, topic="orders", group="workers", write=True)
    if code == 1:
        assert "user nobody may not" in only(found, "group.denied").text
        assert all("code 1:" in item.text or "gRPC" in item.text for item in found if item.code == "topic.denied")
        assert "topic.denied" in codes(found)
        return
    assert "user nobody may not" in only(found, "group.forbidden").text
    denied = [item for item in found if item.code == "topic.forbidden"]
    assert any("a message is denied: user nobody may not" in item.text for item in denied)
    assert all("acl grant anonymous Pub Topic:orders" in item.remedy for item in denied)


def with_queues(reply: RemotingCommand | None) -> RemotingCommand | None:
    if reply is None or b'"brokerDatas"' not in reply.body:
        return reply
    queues = b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}],"brokerDatas"'
    return commands.success(body=reply.body.replace(b'"brokerDatas"', queues))


@pytest.mark.parametrize(
    ("ahead", "code"), [(0.0, "clock.agrees"), (9.0, "clock.skewed"), (-9.0, "clock.skewed"), (3600.0, "clock.wrong")]
)
async def test_clock_skew_is_measured_by_http(ahead: float, code: str) -> None:
    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        date = formatdate(time.time() + ahead, usegmt=True)
        writer.write(f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode())

    async with server(tell) as address:
        seen = Diagnosis(Options(address), addresses=[address], address=address, plain=True)
        (found,) = [item async for item in check_clock(seen)]
    assert found.code == code


async def test_kept_idle_connection_is_ok(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        assert "idle.kept" in codes(await run_doctor(app, idle=0.1))


async def test_cut_idle_connection_fails(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        target = app.addresses[0]

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Relay connections, and close those that are idle for a moment."""
            to_reader, to_writer = await asyncio.open_connection(target.host, target.port)
            back = asyncio.ensure_future(copy(to_reader, writer))
            try:
                async with asyncio.timeout(30) as check_idle_timeout:
                    while data := await reader.read(1 << 16):
                        to_writer.write(data)
                        check_idle_timeout.reschedule(asyncio.get_running_loop().time() + 2.0)
            except TimeoutError:
                pass
            finally:
                back.cancel()
                to_writer.close()
                writer.close()

        async with server(relay) as address:
            found = await run_doctor(HostPort("127.0.0.1", address.port), idle=4.0)
    assert "idle.cut" in codes(found)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
