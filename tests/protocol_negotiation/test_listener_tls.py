"""The listener on real sockets, with TLS: the handshake begins with bytes that were read before it was known."""

import asyncio
import gc
import os
import ssl

import pytest

from protocol_negotiation.connection import Connection
from protocol_negotiation.detect import Protocol
from protocol_negotiation.negotiation import Negotiation, Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.rejection import Http1Rejector
from protocol_negotiation.tls import ClientAuth, Refresh, TlsMode, TlsSource
from tests.protocol_negotiation.kit import (
    HTTP1_REQUEST,
    HTTP2_PREFACE,
    LOOPBACK,
    PROXY_V1,
    PROXY_V2,
    Authority,
    Recorder,
    Run,
    client_hello,
    left,
    listening,
    remoting_frame,
    reset_at_close,
    rest,
    soon,
    until,
)

FRAME = remoting_frame(body=b"body")
PLAIN = [(FRAME, Protocol.REMOTING), (HTTP2_PREFACE, Protocol.GRPC), (HTTP1_REQUEST, Protocol.HTTP1)]


class Client:
    """A TLS client over a plain connection, which decides itself what goes out and when."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="rocketmq.test")
        self._reader, self._writer = reader, writer

    async def handshake(self, step: int = 1 << 20) -> None:
        """Leaves the client's last flight unsent, to go out with what comes next."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self.flush(step)
                self._incoming.write(await soon(self._reader.read(1 << 16)))

    async def flush(self, step: int = 1 << 20) -> None:
        data = self._outgoing.read()
        for start in range(0, len(data), step):
            self._writer.write(data[start : start + step])
            await asyncio.sleep(0)
        await self._writer.drain()

    async def read(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            try:
                received += self.tls.read(size - len(received))
            except ssl.SSLWantReadError:
                self._incoming.write(await soon(self._reader.read(1 << 16)))
        return received


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("header", [b"", PROXY_V1, PROXY_V2])
@pytest.mark.parametrize(("data", "protocol"), PLAIN)
def test_hand_over(
    run: Run,
    shared_authority: Authority,
    shared_source: TlsSource,
    data: bytes,
    protocol: Protocol,
    header: bytes,
    step: int,
) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, trusted_proxies=LOOPBACK, echo=True) as stage:
            reader, writer = await stage.connect()
            writer.write(header)
            client = Client(shared_authority.client_context("h2"), reader, writer)
            await client.handshake(step)
            for start in range(0, len(data), step):
                client.tls.write(data[start : start + step])
            await client.flush(step)
            found, recorder = await stage.recorder()
            assert found is protocol
            await recorder.until(lambda r: len(r.received) == len(data))
            assert recorder.received == data
            assert await client.read(len(data)) == data

            outcome, peer, first_bytes = await stage.outcome()
            assert (outcome.value, peer) == (protocol.value, recorder.peer)
            assert data.startswith(first_bytes)
            assert peer.tls is not None
            assert (peer.tls.alpn, peer.tls.server_name) == ("h2", "rocketmq.test")
            if header:
                assert (peer.address, peer.local) == (HostPort("192.0.2.7", 51000), HostPort("198.51.100.9", 8080))
            else:
                assert (peer.address, peer.via) == (HostPort(*writer.get_extra_info("sockname")), None)
            assert stage.listener.connections == 0
            assert stage.outcomes.empty()
            await left(writer)
            await recorder.until(lambda r: r.calls[-1] == "lost")

    run(scene())


@pytest.mark.parametrize(("offered", "agreed"), [((), None), (("h2",), "h2"), (("http/1.1",), None)])
@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_alpn(
    run: Run,
    shared_authority: Authority,
    shared_source: TlsSource,
    offered: tuple[str, ...],
    agreed: str | None,
    mode: TlsMode,
    version: ssl.TLSVersion,
) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, tls_mode=mode, echo=True) as stage:
            context = shared_authority.client_context(*offered)
            context.minimum_version = context.maximum_version = version
            reader, writer = await stage.connect(context)
            writer.write(FRAME)
            assert await soon(reader.readexactly(len(FRAME))) == FRAME
            _, recorder = await stage.recorder()
            assert recorder.peer.tls is not None
            assert recorder.peer.tls.alpn == agreed
            assert recorder.peer.tls.version == version.name.replace("_", ".")
            await left(writer)
            await recorder.until(lambda r: r.calls[-1] == "lost")

    run(scene())


def test_plain_and_tls_share_the_port(run: Run, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            _, writer = await stage.connect()
            writer.write(FRAME)
            _, recorder = await stage.recorder()
            assert recorder.peer.tls is None
            await left(writer)

    run(scene())


def test_the_transport(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    """Everything that a handler may do with it."""

    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            reader, writer = await stage.connect(shared_authority.client_context())
            writer.write(FRAME)
            _, recorder = await stage.recorder()
            await recorder.until(lambda r: r.received == FRAME)
            transport = recorder.transport
            assert transport.get_protocol() is recorder
            assert transport.get_extra_info("peername") == writer.get_extra_info("sockname")
            assert transport.get_extra_info("sockname") == writer.get_extra_info("peername")
            assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
            assert transport.get_extra_info("socket") is not None
            assert not transport.is_closing()

            transport.write(b"ab")
            transport.writelines([b"cd", bytearray(b"ef"), memoryview(b"gh")])
            assert await soon(reader.readexactly(8)) == b"abcdefgh"

            transport.pause_reading()
            assert not transport.is_reading()
            writer.write(b"waits")
            await writer.drain()
            await asyncio.sleep(0.05)
            assert recorder.received == FRAME
            transport.resume_reading()
            await recorder.until(lambda r: r.received == FRAME + b"waits")

            transport.set_write_buffer_limits(high=1000, low=10)
            big = os.urandom(5 << 20)
            # The first write goes to the outer transport whole; only what it does not take any more is counted here.
            for start in range(0, len(big), 1 << 20):
                transport.write(big[start : start + (1 << 20)])
            assert transport.get_write_buffer_size() > 1000
            await recorder.until(lambda r: "paused" in r.calls)
            assert await soon(reader.readexactly(len(big))) == big
            await recorder.until(lambda r: "resumed" in r.calls)
            assert transport.get_write_buffer_size() == 0

            transport.write(b"last words")
            transport.close()
            assert transport.is_closing()
            assert await rest(reader) == b"last words"
            await left(writer)
            await recorder.until(lambda r: r.calls[-1] == "lost")

    run(scene())


def test_abort(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            reader, writer = await stage.connect(shared_authority.client_context())
            writer.write(FRAME)
            _, recorder = await stage.recorder()
            recorder.transport.abort()
            assert recorder.transport.is_closing()
            await recorder.until(lambda r: r.calls[-1] == "lost")
            assert await rest(reader) == b""
            await left(writer)
            assert stage.listener.open_connections == 0

    run(scene())


def test_a_large_first_write(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            reader, writer = await stage.connect()
            client = Client(shared_authority.client_context(), reader, writer)
            await client.handshake()
            frame = remoting_frame(body=os.urandom(1 << 20))
            client.tls.write(frame)
            await client.flush()
            _, recorder = await stage.recorder()
            await recorder.until(lambda r: len(r.received) == len(frame))
            assert recorder.received == frame
            await left(writer)

    run(scene())


def test_a_client_that_sends_and_leaves_is_heard(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    """Its last handshake flight, a frame and close_notify arrive in one segment, and the connection ends."""

    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            for _ in range(5):
                reader, writer = await stage.connect()
                client = Client(shared_authority.client_context(), reader, writer)
                await client.handshake()
                client.tls.write(FRAME)
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.unwrap()
                await client.flush()
                await left(writer)
                assert (await stage.outcome())[0] is Outcome.REMOTING
                _, recorder = await stage.recorder()
                await recorder.until(lambda r: r.calls[-1] == "lost")
                assert recorder.received == FRAME
                assert recorder.calls.count("made") == recorder.calls.count("lost") == 1

    run(scene())


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", Outcome.UNKNOWN),
        (client_hello(), Outcome.UNKNOWN),
        (PROXY_V2 + FRAME, Outcome.PROXY_INVALID),
        (HTTP2_PREFACE, Outcome.UNKNOWN),
    ],
)
def test_refused_inside(
    run: Run, shared_authority: Authority, shared_source: TlsSource, data: bytes, outcome: Outcome
) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, protocols=(Protocol.REMOTING,), trusted_proxies=LOOPBACK) as stage:
            reader, writer = await stage.connect(shared_authority.client_context())
            writer.write(data)
            told, peer, first_bytes = await stage.outcome()
            assert (told, first_bytes) == (outcome, data[:16])
            assert peer.tls is not None
            assert await rest(reader) == b""
            await left(writer)
            assert stage.listener.connections == 0

    run(scene())


@pytest.mark.parametrize(("data", "outcome"), [(b"", Outcome.SILENT), (FRAME[:5], Outcome.INCOMPLETE)])
def test_deadline_inside(
    run: Run, shared_authority: Authority, shared_source: TlsSource, data: bytes, outcome: Outcome
) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, negotiation_timeout=1.0) as stage:
            reader, writer = await stage.connect(shared_authority.client_context())
            writer.write(data)
            assert (await stage.outcome())[0] is outcome
            assert await rest(reader) == b""
            await left(writer)

    run(scene())


@pytest.mark.parametrize("size", [6, 100, len(client_hello())])
def test_deadline_in_the_handshake(run: Run, shared_source: TlsSource, size: int) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, negotiation_timeout=0.5) as stage:
            reader, writer = await stage.connect()
            writer.write(client_hello()[:size])
            outcome, peer, _ = await stage.outcome()
            assert (outcome, peer.tls) == (Outcome.TLS_FAILED, None)
            await rest(reader)
            await left(writer)
            assert stage.listener.connections == 0

    run(scene())


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("size", [6, 100, len(client_hello())])
def test_the_client_leaves_in_the_handshake(run: Run, shared_source: TlsSource, size: int, abruptly: bool) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            _, writer = await stage.connect()
            writer.write(client_hello()[:size])
            await until(lambda: stage.listener.connections == 1)
            if abruptly:
                reset_at_close(writer)
            await left(writer)
            assert (await stage.outcome())[0] is Outcome.TLS_FAILED
            assert stage.listener.connections == 0

    run(scene())


def test_the_client_leaves_after_the_handshake(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            context = shared_authority.client_context()
            # In TLS 1.2 the server finishes first; in 1.3 the client may be gone before the server is done.
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            _, writer = await stage.connect(context)
            await left(writer)
            assert (await stage.outcome())[0] is Outcome.CLOSED
            assert stage.listener.connections == 0

    run(scene())


def test_a_handshake_that_fails(run: Run, shared_source: TlsSource, authority: Authority) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            with pytest.raises(ssl.SSLCertVerificationError):
                await stage.connect(authority.client_context())
            outcome, _, first_bytes = await stage.outcome()
            assert outcome is Outcome.TLS_FAILED
            assert first_bytes[:2] == b"\x16\x03"

            reader, writer = await stage.connect()
            writer.write(bytes.fromhex("160301000401000000") + bytes(50))
            assert (await stage.outcome())[0] is Outcome.TLS_FAILED
            await rest(reader)
            await left(writer)

    run(scene())


def test_abort_ends_handshakes(run: Run, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            reader, writer = await stage.connect()
            writer.write(client_hello())
            assert await soon(reader.read(10))
            await stage.listener.abort()
            assert (await stage.outcome())[0] is Outcome.CLOSED
            await rest(reader)
            await left(writer)

    run(scene())


def test_client_certificates(run: Run, authority: Authority) -> None:
    async def scene() -> None:
        source = TlsSource(authority.files(client_auth=ClientAuth.REQUIRED))
        certificate = authority.ca.issue_cert("orders@rocketmq.test", common_name="orders")
        async with listening(tls=source) as stage:
            _, writer = await stage.connect(authority.client_context(certificate=certificate))
            writer.write(FRAME)
            _, recorder = await stage.recorder()
            assert (await stage.outcome())[0] is Outcome.REMOTING
            assert recorder.peer.tls is not None
            assert "CN=orders" in (recorder.peer.tls.subject or "")
            await left(writer)

            context = authority.client_context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await stage.connect(context)
            assert (await stage.outcome())[0] is Outcome.TLS_FAILED

    run(scene())


def test_new_connections_get_the_new_certificate(run: Run, authority: Authority) -> None:
    async def scene() -> None:
        source = TlsSource(authority.files())
        async with listening(tls=source, echo=True) as stage:
            serials, clients = [], []
            for _ in range(2):
                reader, writer = await stage.connect(authority.client_context())
                serials.append(writer.get_extra_info("peercert")["serialNumber"])
                clients.append((reader, writer))
                authority.files()
                assert source.refresh() is Refresh.RELOADED
            assert serials[0] != serials[1]
            for reader, writer in clients:
                writer.write(FRAME)
                assert await soon(reader.readexactly(len(FRAME))) == FRAME
                await left(writer)

    run(scene())


def test_http_is_refused_politely(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, handlers={Protocol.HTTP1: Http1Rejector}) as stage:
            reader, writer = await stage.connect(shared_authority.client_context())
            writer.write(HTTP1_REQUEST)
            assert (await soon(reader.readline())) == b"HTTP/1.1 421 Misdirected Request\r\n"
            await left(writer)

    run(scene())


def test_a_handler_that_cannot_be_made(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    def broken(peer: Peer) -> Recorder:
        raise LookupError("no such broker")

    async def scene() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        async with listening(tls=shared_source, handlers={Protocol.REMOTING: broken}) as stage:
            reader, writer = await stage.connect()
            client = Client(shared_authority.client_context(), reader, writer)
            await client.handshake()
            client.tls.write(FRAME)
            await client.flush()
            await rest(reader)
            assert [str(complaint) for complaint in complaints] == ["no such broker"]
            await left(writer)

    run(scene())


def test_nothing_of_ours_remains(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source) as stage:
            gc.collect()
            gc.disable()
            try:
                _, writer = await stage.connect(shared_authority.client_context())
                writer.write(FRAME)
                await stage.recorder()
                await until(lambda: not [x for x in gc.get_objects() if isinstance(x, Connection | Negotiation)])
                await left(writer)
            finally:
                gc.enable()

    run(scene())
