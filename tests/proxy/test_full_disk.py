"""A replica whose embedded broker has no room on its disk: not ready, sends refused, and ready again with room."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.embedded.store.files import Files
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import Client, create_topic, send_fields, v2
from tests.cluster.grpc.consumer import Consumer
from tests.proxy.admin.http.replicas import Replica, replica
from tests.proxy.tools.cli.shell import Shell

pytestmark = pytest.mark.anyio

_REASON = "the embedded broker's disk is full: sends are refused until there is room"


class _Disk:
    """Fails all writes while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        for name in ("write", "allocate"):
            monkeypatch.setattr(Files, name, self._guarded(getattr(Files, name)))

    def _guarded(self, call: Callable[..., object]) -> Callable[..., object]:
        def guarded(*arguments: object) -> object:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments)

        return guarded


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> _Disk:
    return _Disk(monkeypatch)


async def _ready(on: Replica) -> int:
    return (await on.read.get("/readyz")).status_code


async def _until(on: Replica, status: int) -> None:
    async with asyncio.timeout(30):
        while await _ready(on) != status:
            await asyncio.sleep(0.05)


async def _full(on: Replica) -> str:
    lines = (await on.read.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith("gantry_embedded_full ")]
    return line.partition(" ")[2]


async def test_full_disk_is_reported_refused_and_left(
    tmp_path: Path, disk: _Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(tmp_path, grpc={"min_polling": 0.1}) as on, Client(on.address) as client:
        topic = await create_topic(on.address, "orders")
        await client.send(topic, b"before")
        assert (await _ready(on), await _full(on)) == (200, "0.0")

        disk.full = True
        with caplog.at_level(logging.ERROR):
            refused = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"lost")
            again = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"lost")
        # Clients send such a message again.
        assert refused.code == again.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no room for messages in" in (refused.remark or "")
        [logged] = [record.getMessage() for record in caplog.records if "no room" in record.getMessage()]
        assert "sends are refused until there is" in logged
        assert (await _ready(on), await _full(on)) == (503, "1.0")
        assert _REASON in (await on.read.get("/readyz")).text
        # Reading continues.
        assert [message.body for message in await client.pull(topic, "readers")] == [b"before"]
        said = await asyncio.to_thread(lambda: Shell(on.address).refused("send", topic, "x"))
        assert "no room for messages" in said
        async with Consumer(on.address, "senders", topic) as sender:
            message = d.Message(topic=sender.topic, body=b"x")
            message.system_properties.message_id = "01"
            answer = await sender.call("SendMessage", pb.SendMessageRequest(messages=[message]))
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR, answer
        assert "no room for messages" in answer.status.message

        disk.full = False
        with caplog.at_level(logging.INFO):
            await _until(on, 200)
        assert [record for record in caplog.records if "there is room for messages" in record.getMessage()]
        assert await _full(on) == "0.0"
        await client.send(topic, b"after")


async def test_full_disk_does_not_hinder_the_end(tmp_path: Path, disk: _Disk) -> None:
    async with replica(tmp_path) as on, Client(on.address) as client:
        topic = await create_topic(on.address, "orders")
        await client.send(topic, b"before")
        disk.full = True
        await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"lost")
        await _until(on, 503)
    disk.full = False
    async with replica(tmp_path) as on, Client(on.address) as client:
        assert [message.body for message in await client.pull(topic, "readers")] == [b"before"]
