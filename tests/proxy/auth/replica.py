"""A replica with an embedded broker, authentication, and the topic orders."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from proxy.app import App
from proxy.settings.model import Settings
from remoting.codes import RequestCode, ResponseCode
from tests.proxy.auth.users import OWN_FILE, PLAIN_ACL, ROOT, signed, undelayed, write
from tests.proxy.messages import request
from tests.proxy.replica import Client, running

CREATE = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}
NO_PERMISSION = int(ResponseCode.NO_PERMISSION)


@asynccontextmanager
async def replica(folder: Path, source: str = "users", **more: Any) -> AsyncIterator[App]:
    """A replica with an embedded broker, authentication from one source, and the topic orders."""
    files = {"users": OWN_FILE, "plain_acl": PLAIN_ACL}
    settings = Settings(
        listen=["127.0.0.1:0"],
        embedded=more.pop("embedded", {"directory": folder / "data"}),
        admin={"listen": "off"},
        auth={source: write(folder / f"{source}.txt", files[source]), "reload_interval": 0.05, **more.pop("auth", {})},
        drain_timeout=0.2,
        **more,
    )
    async with running(settings) as app:
        assert app.authority is not None
        undelayed(app.authority)
        client = await Client.connect(app, more.get("context"))
        created = await client.ask(signed(request(RequestCode.UPDATE_AND_CREATE_TOPIC, **CREATE), ROOT))
        assert created.code == 0, created.remark
        await client.close()
        yield app


@asynccontextmanager
async def dialled(app: App, certified: Path | None = None) -> AsyncIterator[grpc.aio.Channel]:
    address = f"127.0.0.1:{app.addresses[0].port}"
    if certified is None:
        channel = grpc.aio.insecure_channel(address)
    else:
        trust = grpc.ssl_channel_credentials((certified / "authority.pem").read_bytes())
        channel = grpc.aio.secure_channel(address, trust, (("grpc.ssl_target_name_override", "rocketmq.test"),))
    async with channel:
        yield channel
