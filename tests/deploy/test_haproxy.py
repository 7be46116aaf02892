"""HAProxy before two replicas, with the shipped configuration: clients do not notice the drain of a replica."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.tools.doctor import rpc
from remoting.codes import GO_AWAY_VERSION, RequestCode, ResponseCode
from remoting.errors import ConnectionLost
from tests.cluster.client import Client, send_fields, v2
from tests.cluster.servers import Gantry, accepts, eventually
from tests.deploy.files import DEPLOY, run
from tests.ports import free_port
from tests.proxy.embedded.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.anyio

FILE = DEPLOY / "haproxy.cfg"
TOPIC = "orders"
# Longer than the two checks, a second apart, after which HAProxy marks a draining replica.
CONFIG = """
drain_delay = 5.0
drain_timeout = 10.0
admin.listen = "off"
[[listen]]
address = "127.0.0.1:{port}"
trusted_proxies = ["127.0.0.0/8"]
"""


def test_haproxy_accepts_the_configuration() -> None:
    run("haproxy", "-c", "-q", "-f", FILE, GANTRY_1="127.0.0.1:1", GANTRY_2="127.0.0.1:2")


class HAProxy:
    """A process with the shipped configuration."""

    def __init__(self, *replicas: Gantry) -> None:
        self.port, self._status = free_port(), free_port()
        one, two = (replica.address for replica in replicas)
        places = {"ACCESS_POINT": f"127.0.0.1:{self.port}", "STATUS": f"127.0.0.1:{self._status}"}
        self.environment = {**places, "GANTRY_1": one, "GANTRY_2": two, "PATH": "/usr/sbin:/usr/bin:/bin"}

    @contextmanager
    def running(self) -> Iterator[None]:
        process = subprocess.Popen(["haproxy", "-db", "-f", str(FILE)], env=self.environment, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def states(self) -> list[str]:
        """Return HAProxy's states of the replicas."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._status}/;json", timeout=30) as answer:
            rows = json.load(answer)
        found = []
        for row in rows:
            fields = {field["field"]["name"]: field["value"]["value"] for field in row}
            if fields.get("svname", "").startswith("gantry-"):
                found.append(str(fields["status"]))
        return found

    def ready(self) -> bool:
        """Wait until HAProxy listens and both replicas have passed a check: it assumes them healthy before its first
        one.
        """
        return accepts(self.port) and accepts(self._status) and self.states() == ["UP", "UP"]


class Sender:
    """Sends without a pause; `failures` are those that an application would see."""

    def __init__(self) -> None:
        self.sent = 0
        self.failures: list[str] = []
        self.moves = 0


async def send_remoting(address: str, sender: Sender) -> None:
    """Send as clients from 5.3.2 on do: after GO_AWAY they reconnect and repeat the request."""
    while True:
        async with Client(address, version=GO_AWAY_VERSION + 2) as client:
            answered = 0
            while answered == ResponseCode.SUCCESS:
                fields = client.named(v2(send_fields(TOPIC)))
                try:
                    answered = (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"m", timeout=60)).code
                except ConnectionLost:
                    sender.failures.append("the connection was lost")
                    break
                if answered == ResponseCode.SUCCESS:
                    sender.sent += 1
                elif answered != ResponseCode.GO_AWAY:
                    sender.failures.append(f"code {answered}")
                await asyncio.sleep(0.01)
        sender.moves += 1


async def send_grpc(address: str, sender: Sender) -> None:
    where = HostPort.parse(address)
    async with rpc.calling(where, where, None, 60.0) as rpcs:
        while True:
            try:
                answer = await rpcs.send(TOPIC, b"m")
            except rpc.Refused as error:
                sender.failures.append(str(error))
            else:
                if answer.status.code == Code.OK:
                    sender.sent += 1
                else:
                    sender.failures.append(answer.status.message)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def sending(address: str) -> AsyncIterator[tuple[Sender, Sender]]:
    remoting, grpc = Sender(), Sender()
    tasks = [asyncio.create_task(send_remoting(address, remoting)), asyncio.create_task(send_grpc(address, grpc))]
    try:
        yield remoting, grpc
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended


@pytest.mark.timeout(600)
async def test_a_drain_of_either_replica_fails_no_send(tmp_path: Path) -> None:
    def replica(broker: EmbeddedCluster) -> Gantry:
        port = free_port()
        return Gantry(tmp_path, broker.namesrv, CONFIG.format(port=port), port, listen=False)

    with EmbeddedCluster(tmp_path) as broker:
        async with Client(broker.broker) as tool:
            await tool.get(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
        one, two = replica(broker), replica(broker)
        with one, two:
            haproxy = HAProxy(one, two)
            address = f"127.0.0.1:{haproxy.port}"
            with haproxy.running():
                await eventually(haproxy.ready, "HAProxy", 60)
                async with sending(address) as (remoting, grpc):
                    for going in (one, two):
                        await progress(remoting, grpc)
                        status = await anyio.to_thread.run_sync(going.stop)
                        assert status == 0
                        await progress(remoting, grpc)
                        going.start()
                        await eventually(haproxy.ready, "the replica's return", 60)
                assert (remoting.failures, grpc.failures) == ([], [])
                assert remoting.moves
                # HAProxy has noticed the drain.
                one.kill()
                two.kill()


CREATE = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": False,
}


async def progress(*senders: Sender) -> None:
    """Wait until every sender has sent more messages without a failure."""
    before = [sender.sent for sender in senders]

    def moved() -> bool:
        assert [sender.failures for sender in senders] == [[], []]
        return all(sender.sent >= then + 20 for sender, then in zip(senders, before, strict=True))

    await eventually(moved, "sends", 60)
