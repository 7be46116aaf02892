"""A listener with recording handlers, and clients of it."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from protocol_negotiation.connection import Handler, Rejectors
from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.tls import TlsMode, TlsSource

_T = TypeVar("_T")
Run = Callable[[Coroutine[Any, Any, None]], None]


@dataclass
class Recorder(asyncio.Protocol):
    """A handler that records its callbacks and received bytes."""

    peer: Peer
    echo: bool = False
    received: bytearray = field(default_factory=bytearray)
    chunks: int = 0
    calls: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    transport: asyncio.Transport = field(init=False)

    def _record(self, call: str) -> None:
        self.calls.append(call)
        self.changed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._record("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.chunks += 1
        self.changed.set()
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self._record("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self._record("lost")

    def pause_writing(self) -> None:
        self._record("paused")

    def resume_writing(self) -> None:
        self._record("resumed")

    async def until(self, condition: Callable[["Recorder"], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


@dataclass
class RunningListener:
    """A running listener, with its outcomes and the handlers of its connections."""

    listener: Listener
    accepted: "asyncio.Queue[tuple[Protocol, Recorder]]"
    outcomes: "asyncio.Queue[tuple[Outcome, Peer, bytes]]"
    recorders: list[Recorder]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def address(self) -> HostPort:
        return self.listener.addresses[0]

    async def connect(
        self, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls_options = {} if context is None else {"server_hostname": "rocketmq.test"}
        async with asyncio.timeout(30):
            streams = await asyncio.open_connection(host, self.address.port, ssl=context, **cast(Any, tls_options))
        self.writers.append(streams[1])
        return streams

    async def recorder(self) -> tuple[Protocol, Recorder]:
        return await with_timeout(self.accepted.get())

    async def outcome(self) -> tuple[Outcome, Peer, bytes]:
        return await with_timeout(self.outcomes.get())


async def with_timeout(awaitable: Awaitable[_T]) -> _T:
    async with asyncio.timeout(30):
        return await awaitable


@asynccontextmanager
async def listening(
    *,
    tls: TlsSource | None = None,
    echo: bool = False,
    handlers: Mapping[Protocol, Handler] | None = None,
    protocols: tuple[Protocol, ...] = (Protocol.REMOTING, Protocol.GRPC, Protocol.HTTP1),
    address: str = "127.0.0.1:0",
    rejectors: Rejectors | None = None,
    **options: Any,
) -> AsyncIterator[RunningListener]:
    """Run a listener with recorders for `protocols`; close all connections at the end."""
    accepted: asyncio.Queue[tuple[Protocol, Recorder]] = asyncio.Queue()
    outcomes: asyncio.Queue[tuple[Outcome, Peer, bytes]] = asyncio.Queue()
    recorders: list[Recorder] = []

    def recording(protocol: Protocol) -> Handler:
        def handler(peer: Peer) -> Recorder:
            recorder = Recorder(peer, echo)
            recorders.append(recorder)
            accepted.put_nowait((protocol, recorder))
            return recorder

        return handler

    options.setdefault("tls_mode", TlsMode.DISABLED if tls is None else TlsMode.PERMISSIVE)
    listener = Listener(
        ListenerOptions(name="main", address=HostPort.parse(address), **options),
        handlers if handlers is not None else {protocol: recording(protocol) for protocol in protocols},
        tls,
        lambda outcome, peer, first_bytes: outcomes.put_nowait((outcome, peer, first_bytes)),
        rejectors,
    )
    await listener.start()
    stage = RunningListener(listener, accepted, outcomes, recorders)
    try:
        yield stage
    finally:
        await listener.abort()
        for writer in stage.writers:
            writer.transport.abort()
        for recorder in recorders:
            if "lost" not in recorder.calls:
                recorder.transport.abort()
                await recorder.until(lambda r: "lost" in r.calls)


async def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


async def close_client(writer: asyncio.StreamWriter) -> None:
    """Close the client's side and ignore connection errors."""
    writer.close()
    with suppress(OSError, ssl.SSLError):
        await with_timeout(writer.wait_closed())


def reset_at_close(writer: asyncio.StreamWriter) -> None:
    """Make the client's close a TCP reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes until the connection ends; b"" after a reset."""
    try:
        return await with_timeout(reader.read())
    except (ConnectionError, ssl.SSLError):
        return b""
