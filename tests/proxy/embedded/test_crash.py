"""Recovery of acknowledged writes by a broker on a copy of a running store's files."""

import shutil
from pathlib import Path

import pytest

from proxy.embedded.backend import EmbeddedBackend
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store.durable import DurableStore
from remoting import command as commands
from remoting import messages, pop, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.ids import OffsetMessageId
from remoting.pop import PoppedMessage
from remoting.requests import REQUESTS
from tests.cluster.client import pull_fields, queue_fields, send_fields, strings, v2
from tests.proxy.embedded.broker_harness import START
from tests.proxy.fakes import FakeChannel

pytestmark = pytest.mark.anyio


class _Broker:
    """A broker over the durable store. `crashed` returns another one over a copy of its current files."""

    def __init__(self, directory: Path, now: int = START) -> None:
        self.directory = directory
        self.now = now
        self.store = DurableStore(directory, lambda: self.now)
        self.backend = EmbeddedBackend(BrokerSettings(), self.store, lambda channel, command: None, lambda: self.now)

    def crashed(self, target: Path) -> "_Broker":
        shutil.copytree(self.directory, target)
        return _Broker(target, self.now)

    def pass_time(self, milliseconds: int) -> None:
        for _ in range(milliseconds // 100):
            self.now += 100
            self.backend.broker.tick(self.now)

    async def ask(self, code: int, fields: dict[str, object], body: bytes = b"") -> RemotingCommand:
        command = commands.request(code, strings(fields), body)
        spec = REQUESTS.get(code, REQUESTS[RequestCode.HEART_BEAT])
        return await self.backend.request("broker-a", spec, command, 3, FakeChannel())

    async def send(
        self, topic: str, body: bytes, pairs: dict[str, str] | None = None, **changes: object
    ) -> RemotingCommand:
        fields = {**send_fields(topic, properties.encode(pairs or {}), bornTimestamp=self.now), **changes}
        reply = await self.ask(RequestCode.SEND_MESSAGE_V2, v2(fields), body)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        return reply

    async def pop(self, topic: str, **changes: object) -> list[PoppedMessage]:
        fields = queue_fields(topic, consumerGroup="g", maxMsgNums=32, invisibleTime=5000, pollTime=0, bornTime=0)
        reply = await self.ask(RequestCode.POP_MESSAGE, {**fields, "initMode": 0, "order": False, **changes})
        if reply.code != ResponseCode.SUCCESS:
            return []
        return pop.popped(messages.decode_messages(reply.body), topic, reply.fields, "broker-a")

    async def ack(self, topic: str, popped: PoppedMessage) -> None:
        handle = popped.extra_info
        fields = queue_fields(topic, consumerGroup="g", extraInfo=handle, offset=handle.queue_offset)
        assert (await self.ask(RequestCode.ACK_MESSAGE, fields)).code == ResponseCode.SUCCESS

    async def bodies(self, topic: str) -> list[bytes]:
        reply = await self.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, "reader"))
        return [message.body for message in messages.decode_messages(reply.body)]


async def test_all_acknowledged_writes_survive_a_crash(tmp_path: Path) -> None:
    before = _Broker(tmp_path / "before")
    for number in range(6):
        await before.send("t", b"%d" % number)
    popped = await before.pop("t", maxMsgNums=4)
    await before.ack("t", popped[1])
    ordered = await before.pop("t", order=True, consumerGroup="o", maxMsgNums=2)
    half = await before.send("x", b"half", {"TRAN_MSG": "true", "PGROUP": "p"}, sysFlag=4, producerGroup="p")
    await before.send("d", b"later", {"TIMER_DELAY_MS": "3000"})
    offset = queue_fields("t", consumerGroup="g2", commitOffset=3)
    before.backend.broker.groups.find("g2")
    assert (await before.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)).code == ResponseCode.SUCCESS

    after = before.crashed(tmp_path / "after")
    before.store.close()
    assert await after.bodies("t") == [b"%d" % number for number in range(6)]
    assert [one.message.body for one in await after.pop("t", invisibleTime=60_000)] == [b"4", b"5"]
    assert await after.pop("t", order=True, consumerGroup="o") == []
    assert len(ordered) == 2
    asked = await after.ask(RequestCode.QUERY_CONSUMER_OFFSET, queue_fields("t", consumerGroup="g2"))
    assert asked.fields["offset"] == "3"
    end = {
        "producerGroup": "p",
        "topic": "x",
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": OffsetMessageId.parse(half.fields["msgId"]).offset,
        "commitOrRollback": 8,
    }
    assert (await after.ask(RequestCode.END_TRANSACTION, end)).code == ResponseCode.SUCCESS
    after.pass_time(2900)
    assert await after.bodies("d") == []
    after.pass_time(2200)
    assert (await after.bodies("d"), await after.bodies("x")) == ([b"later"], [b"half"])
    again = await after.pop("t")
    assert [one.message.body for one in again] == [b"0", b"2", b"3"]

    last = after.crashed(tmp_path / "last")
    after.store.close()
    assert await last.pop("t") == []
    assert (await last.ask(RequestCode.END_TRANSACTION, end)).code == ResponseCode.SUCCESS
    assert await last.bodies("x") == [b"half"]
    last.pass_time(60_000)
    assert sorted(one.message.body for one in await last.pop("t")) == [b"0", b"2", b"3", b"4", b"5"]
    last.store.close()
