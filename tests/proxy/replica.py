"""A whole replica in this process, in front of an in-process cluster, with remoting clients."""

import asyncio
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trustme

from proxy.app import App
from proxy.settings.model import Settings
from remoting.close_cause import CloseCause
from remoting.codes import STANDARD_JSON_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.outcomes import Reply
from remoting.timeout_wheel import TimeoutWheel
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.messages import java, request

# By app, the event that ends it early.
stops: weakref.WeakKeyDictionary[App, asyncio.Event] = weakref.WeakKeyDictionary()


@asynccontextmanager
async def serving(cluster: Cluster, **more: Any) -> AsyncIterator[App]:
    """Serve the whole proxy in front of the cluster on a free port; drain at the end."""
    listen = {"address": "127.0.0.1:0", "trusted_proxies": ["127.0.0.0/8"], **more.pop("listen", {})}
    name_server = await cluster.name_server()
    more.setdefault("drain_timeout", 0.2)
    more.setdefault("admin", {"listen": "off"})
    settings = Settings(listen=[listen], cluster={"namesrv": name_server.address}, sync={"enabled": False}, **more)
    async with running(settings) as app:
        yield app


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[App]:
    """Serve the whole proxy with these settings; drain at the end. Raises the error of a start that fails."""
    app = App(settings)
    ready, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(ready.set, stop.wait))
    serving.add_done_callback(lambda _: ready.set())
    try:
        await soon(ready.wait())
        assert not serving.done()
        stops[app] = stop
        yield app
    finally:
        stop.set()
        await soon(serving)


def on_free_port(**settings: Any) -> Settings:
    """Return settings of a replica on a free port that drains quickly."""
    return Settings(listen=["127.0.0.1:0"], drain_timeout=0.2, **settings)


async def soon(work: Any) -> Any:
    async with asyncio.timeout(30):
        return await work


class Client:
    """A remoting client; `pushed` has the requests that it received."""

    def __init__(self, connection: RemotingConnection, pushed: list[RemotingCommand], gone: asyncio.Event) -> None:
        self.connection = connection
        self.pushed = pushed
        self.gone = gone

    @classmethod
    async def connect(cls, app: App, context: ssl.SSLContext | None = None) -> "Client":
        loop = asyncio.get_running_loop()
        pushed: list[RemotingCommand] = []
        gone = asyncio.Event()

        def push(_: RemotingConnection, command: RemotingCommand) -> Reply | None:
            pushed.append(command)
            return None

        _, connection = await loop.create_connection(
            lambda: RemotingConnection(TimeoutWheel(loop.time), push, lambda _: gone.set(), name="proxy"),
            "127.0.0.1",
            app.addresses[0].port,
            ssl=context,
            server_hostname=None if context is None else "rocketmq.test",
        )
        return cls(connection, pushed, gone)

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        reply: RemotingCommand = await soon(self.connection.request(command, 5.0))
        return reply

    async def close(self) -> None:
        self.connection.close(CloseCause.LOCAL)
        await soon(self.gone.wait())


def ask_route(topic: str = "orders") -> RemotingCommand:
    return java(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic), STANDARD_JSON_VERSION)


def certify(folder: Path) -> tuple[dict[str, Path], ssl.SSLContext]:
    """Return the settings of a new certificate for rocketmq.test, and a client context that trusts it."""
    authority = trustme.CA()
    issued = authority.issue_cert("rocketmq.test")
    files = {"certificate": folder / "server.pem", "key": folder / "server.key"}
    files["certificate"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / "authority.pem").write_bytes(authority.cert_pem.bytes())
    files["key"].write_bytes(issued.private_key_pem.bytes())
    files["key"].chmod(0o600)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return files, context
