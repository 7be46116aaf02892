"""Replicas on an embedded broker, servers that misbehave, and a run of the doctor."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from protocol_negotiation.peer import HostPort
from proxy.app import App
from proxy.embedded.backend import EmbeddedBackend
from proxy.settings.model import Settings
from proxy.tools.doctor.diagnosis import diagnose
from proxy.tools.doctor.findings import Finding
from proxy.tools.doctor.session import Options
from remoting import command as commands
from remoting.codes import RequestCode
from tests.proxy.replica import running

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def replica(directory: Path, **more: Any) -> AsyncIterator[App]:
    """Run a replica on an embedded broker, with the topic `orders` of 4 queues."""
    listen = more.pop("listen", [{"address": "127.0.0.1:0"}])
    embedded = {"directory": directory, "sync": "os", **more.pop("embedded", {})}
    settings = Settings(listen=listen, embedded=embedded, drain_timeout=0.1, admin={"listen": "off"}, **more)
    async with running(settings) as app:
        create_topic(app, "orders")
        yield app


def create_topic(app: App, name: str, permission: int = 6) -> None:
    """Create a topic. permission: 4 to read, 2 to write, 6 both."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": str(permission),
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    assert isinstance(app.backend, EmbeddedBackend)
    app.backend.handle(None, commands.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))


@asynccontextmanager
async def server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[HostPort]:
    """Run a server of another kind."""
    open_writers: set[asyncio.StreamWriter] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        with suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield HostPort("127.0.0.1", listening.sockets[0].getsockname()[1])
    finally:
        listening.close()
        for writer in open_writers:
            writer.transport.abort()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


async def run_doctor(endpoint: HostPort | App, **options: Any) -> list[Finding]:
    """Return all findings of the doctor."""
    address = endpoint.addresses[0] if isinstance(endpoint, App) else endpoint
    options.setdefault("timeout", 10.0)
    return [found async for found in diagnose(Options(address, **options))]


def codes(findings: list[Finding]) -> set[str]:
    return {found.code for found in findings}


def only(findings: list[Finding], code: str) -> Finding:
    """Return the only finding with this code."""
    (found,) = (item for item in findings if item.code == code)
    return found
