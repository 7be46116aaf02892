"""Commands whose replica goes away or restarts, and membership of `gantry receive --follow`."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import httpx
import orjson
import pytest

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.frame import FrameDecoder
from tests.cluster.client import Client, wait_until
from tests.cluster.servers import TIMEOUT, Gantry
from tests.ports import HOST, free_port
from tests.proxy.tools.cli.shell import Shell, embedded
from tests.proxy.tools.doctor.servers import server

_ROUTE = {
    "queueDatas": [{"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}],
    "brokerDatas": [{"brokerName": "b", "cluster": "c", "brokerAddrs": {0: "127.0.0.1:1"}}],
}


class _Replicas:
    """An access point whose first `leaving` connections are led to a replica that goes away."""

    def __init__(self, leaving: int) -> None:
        self._leaving = leaving
        self.connections = 0
        self.sent = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        leaves = self.connections <= self._leaving
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            for frame in decoder.feed(data):
                command = commands.decode(frame)
                reply = commands.response(ResponseCode.GO_AWAY) if leaves else self._answer(command)
                answer = commands.answer(reply, command.opaque, 0)
                writer.write(answer.encode() + answer.body)

    def _answer(self, command: RemotingCommand) -> RemotingCommand:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return commands.success(body=orjson.dumps(_ROUTE, option=orjson.OPT_NON_STR_KEYS))
        self.sent += 1
        return commands.success({"msgId": "1", "queueId": "0", "queueOffset": "7"})


@pytest.mark.anyio
async def test_commands_follow_go_away_to_another_replica() -> None:
    replicas = _Replicas(2)
    async with server(replicas.serve) as address:
        done = await asyncio.to_thread(lambda: Shell(str(address)).ok("send", "orders", "x", "--json"))
    assert (done.object["offset"], replicas.connections, replicas.sent) == (7, 3, 1)


@pytest.fixture
def replica(tmp_path: Path) -> Gantry:
    config = embedded(tmp_path / "data")
    return Gantry(tmp_path, "", config)


def test_followers_continue_after_a_restart(replica: Gantry) -> None:
    shell = Shell(replica.address)
    with replica:
        topic = shell.topic("restarted", queues=1)
        with (
            shell.following("receive", topic, "--group", "followers", "--follow") as receiving,
            shell.following("tail", topic, "--follow") as tailing,
        ):
            shell.ok("send", topic, "before")
            assert receiving.line().rstrip().endswith("before")
            assert tailing.line().rstrip().endswith("before")
            replica.stop()
            replica.start()
            shell.ok("send", topic, "after")
            assert receiving.line().rstrip().endswith("after")
            assert tailing.line().rstrip().endswith("after")
            assert receiving.interrupt().status == 0


@pytest.mark.anyio
async def test_follower_is_a_member_of_its_group(tmp_path: Path) -> None:
    admin = free_port()
    config = f'{embedded(tmp_path / "data")}[admin]\nlisten = "{HOST}:{admin}"\n'
    with Gantry(tmp_path, "", config) as gantry:
        shell = Shell(gantry.address)
        topic = await asyncio.to_thread(lambda: shell.topic("member", queues=1))
        with shell.following("receive", topic, "--group", "watched", "--follow", "--filter", "a || b") as receiving:
            await asyncio.to_thread(lambda: shell.ok("send", topic, "--tag", "a", "x"))
            assert (await asyncio.to_thread(receiving.line)).rstrip().endswith("x")
            async with httpx.AsyncClient(base_url=f"http://{HOST}:{admin}", timeout=TIMEOUT) as http:
                [member] = (await http.get("/v1/consumer-groups/watched")).json()["members"]
                path = f"/v1/clients/{quote(member['client_id'])}/running-info"
                info = (await http.get(path, params={"group": "watched"})).json()
                assert (member["language"], info["subscriptions"]) == ("PYTHON", [topic])
                assert [row["topic"] for row in info["rates"]] == [topic]
            refusal = await asyncio.to_thread(lambda: shell.refused("receive", topic, "--group", "watched", "--follow"))
            assert refusal.startswith(f"the members of watched consume {topic} (a || b): another subscription")
            await asyncio.to_thread(receiving.interrupt)
        async with Client(gantry.address) as client:

            async def left() -> bool:
                return await client.consumers("watched") == []

            await wait_until(left, "the member's end")
