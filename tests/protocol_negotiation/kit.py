"""What the tests share: samples of every protocol, PROXY headers, a recording handler, a listener to talk to."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import trustme

from protocol_negotiation.connection import Handler
from protocol_negotiation.detect import PROXY_V2_SIGNATURE, Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.networks import parse_network
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.proxy_protocol import TLV_CRC32C, crc32c
from protocol_negotiation.tls import ClientAuth, TlsFiles, TlsMode, TlsSource

LOOPBACK = (parse_network("127.0.0.0/8"), parse_network("::1"))
_T = TypeVar("_T")
Run = Callable[[Coroutine[Any, Any, None]], None]


def remoting_frame(header: bytes = b'{"code":34}', body: bytes = b"", serialize_type: int = 0) -> bytes:
    return struct.pack("!IB", 4 + len(header) + len(body), serialize_type) + len(header).to_bytes(3) + header + body


def client_hello() -> bytes:
    """A real one, as the installed OpenSSL sends it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="rocketmq.test")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs two")


HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
HTTP1_REQUEST = b"GET /health HTTP/1.1\r\nHost: rocketmq.test\r\n\r\n"
PROXY_V1 = b"PROXY TCP4 192.0.2.7 198.51.100.9 51000 8080\r\n"


def encode_v2(
    family: int, addresses: bytes, tlvs: tuple[tuple[int, bytes], ...] = (), *, command: int = 1, checksum: bool = False
) -> bytes:
    """A PROXY v2 header; `family` is the whole 14th byte, e.g. 0x11 for TCP over IPv4."""
    if checksum:
        tlvs = (*tlvs, (TLV_CRC32C, bytes(4)))
    block = addresses + b"".join(struct.pack("!BH", kind, len(value)) + value for kind, value in tlvs)
    header = PROXY_V2_SIGNATURE + struct.pack("!BBH", 0x20 | command, family, len(block)) + block
    return header[:-4] + struct.pack("!I", crc32c(header)) if checksum else header


def tcp4(source: str, destination: str, source_port: int, destination_port: int) -> bytes:
    ports = struct.pack("!HH", source_port, destination_port)
    return socket.inet_aton(source) + socket.inet_aton(destination) + ports


PROXY_V2 = encode_v2(0x11, tcp4("192.0.2.7", "198.51.100.9", 51000, 8080), ((0xEA, b"vpce-1"),), checksum=True)


@dataclass
class Recorder(asyncio.Protocol):
    """A handler that keeps what it is told."""

    peer: Peer
    echo: bool = False
    received: bytearray = field(default_factory=bytearray)
    chunks: int = 0
    calls: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    transport: asyncio.Transport = field(init=False)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.changed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.chunks += 1
        self.changed.set()
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self._note("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self._note("lost")

    def pause_writing(self) -> None:
        self._note("paused")

    def resume_writing(self) -> None:
        self._note("resumed")

    async def until(self, condition: Callable[["Recorder"], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


@dataclass
class Stage:
    """A running listener and everything that came out of it."""

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
        names = {} if context is None else {"server_hostname": "rocketmq.test"}
        async with asyncio.timeout(30):
            ends = await asyncio.open_connection(host, self.address.port, ssl=context, **cast(Any, names))
        self.writers.append(ends[1])
        return ends

    async def recorder(self) -> tuple[Protocol, Recorder]:
        return await soon(self.accepted.get())

    async def outcome(self) -> tuple[Outcome, Peer, bytes]:
        return await soon(self.outcomes.get())


async def soon(awaitable: Awaitable[_T]) -> _T:
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
    **options: Any,
) -> AsyncIterator[Stage]:
    """A listener with recorders for `protocols`; what is open at the end is closed."""
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
    )
    await listener.start()
    stage = Stage(listener, accepted, outcomes, recorders)
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


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


async def left(writer: asyncio.StreamWriter) -> None:
    """Closes the client's side, however the server took it."""
    writer.close()
    with suppress(OSError, ssl.SSLError):
        await soon(writer.wait_closed())


def reset_at_close(writer: asyncio.StreamWriter) -> None:
    """Makes the client's close a TCP reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Everything until the connection ends; a reset is an end."""
    try:
        return await soon(reader.read())
    except (ConnectionError, ssl.SSLError):
        return b""


class Authority:
    """A certificate authority with files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.ca_file))

    def files(self, name: str = "server", client_auth: ClientAuth = ClientAuth.NONE) -> TlsFiles:
        """Issues a certificate for rocketmq.test into ``<name>.pem`` and ``<name>.key``, over an older one."""
        issued = self.ca.issue_cert("rocketmq.test")
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        client_ca = self.ca_file if client_auth is not ClientAuth.NONE else None
        return TlsFiles(certificate, key, None, client_ca, client_auth)

    def client_context(self, *alpn: str, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if certificate is not None:
            certificate.configure_cert(context)
        return context
