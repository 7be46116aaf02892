"""A broker that floods its connections with responses to no request, with a good client at another broker."""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from remoting import command as commands
from remoting.codes import RequestCode
from tests.attacks.good_client import observed
from tests.cluster.client import Client, heartbeat, unique
from tests.cluster.servers import HOST, Gantry
from tests.proxy.backends.cluster.servers import running

pytestmark = pytest.mark.anyio

_MEMBERS = 6


class _Flooder(threading.Thread):
    """A broker that answers the first request of each connection with responses without end. sent: their bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        self.sent = 0
        frames = [commands.answer(commands.success(), 1_000_000 + number, 0).encode() for number in range(4_000)]
        self._chunk = b"".join(frames)

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._flood, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _flood(self, connection: socket.socket) -> None:
        try:
            connection.recv(4096)
            while True:
                connection.sendall(self._chunk)
                self.sent += len(self._chunk)
        except OSError:
            connection.close()


async def test_responses_without_end_do_not_stall_other_clients(tmp_path: Path) -> None:
    """Six members of a group at the flooding broker, each over a connection of its own."""
    topic, flooded, group = unique("good"), unique("flooded"), unique("group")
    flooder = _Flooder()
    flooder.start()
    async with running() as cluster:
        stored = {"msgId": "id", "queueId": "0", "queueOffset": "0"}
        await cluster.broker("broker-a", 0, lambda _: commands.success(dict(stored)))
        cluster.table["broker-b"] = {"0": flooder.address}
        cluster.topics |= {topic: ["broker-a"], flooded: ["broker-b"]}
        namesrv = (await cluster.name_server()).address
        gantry = Gantry(tmp_path, namesrv, 'drain_timeout = 0.5\n[admin]\nlisten = "off"\n')
        # The name server answers meanwhile.
        await asyncio.to_thread(gantry.__enter__)
        try:
            async with observed(gantry.address, gantry.pid, topic) as observation:
                members = [await Client(gantry.address).__aenter__() for _ in range(_MEMBERS)]
                replies = [
                    member.begin(RequestCode.HEART_BEAT, {}, heartbeat(member.client_id, {group: [flooded]}, []))
                    for member in members
                ]
                await asyncio.gather(*replies)
                await asyncio.sleep(3)
                for member in members:
                    await member.__aexit__(None, None, None)
            observation.check(growth=48, stall=0.25)
        finally:
            await asyncio.to_thread(gantry.__exit__, None, None, None)
            flooder.close()
    assert flooder.sent > 2**20
