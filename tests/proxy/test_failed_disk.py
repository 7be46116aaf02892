"""A replica whose embedded broker could not sync its log: nothing is stored until a restart, and health says so."""

import errno
import os
from pathlib import Path

import pytest

from proxy.embedded.store.files import Files
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import Client, create_topic, send_fields, v2
from tests.proxy.admin.http.replicas import Replica, replica

pytestmark = pytest.mark.anyio


async def _failed(on: Replica) -> str:
    lines = (await on.read.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith("gantry_embedded_failed ")]
    return line.partition(" ")[2]


async def _statuses(on: Replica) -> list[int]:
    return [(await on.read.get(path)).status_code for path in ("/livez", "/readyz")]


async def test_failed_sync_is_reported_until_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with replica(tmp_path) as on, Client(on.address) as client:
        topic = await create_topic(on.address, "orders")
        await client.send(topic, b"before")
        assert (await _statuses(on), await _failed(on)) == ([200, 200], "0.0")

        with monkeypatch.context() as patch:
            patch.setattr(Files, "sync", fail)
            refused = await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"lost")
        assert refused.code != ResponseCode.SUCCESS
        # The disk works again, but the lost pages do not come back.
        assert (await _statuses(on), await _failed(on)) == ([503, 503], "1.0")
        assert "nothing more is stored until a restart" in (await on.read.get("/livez")).text

    async with replica(tmp_path) as on, Client(on.address) as client:
        assert (await _statuses(on), await _failed(on)) == ([200, 200], "0.0")
        await client.send(topic, b"after")
