"""The listener on real sockets, with TLS, whose handshake begins with bytes that were read for detection."""

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
from protocol_negotiation.tls import TlsMode, TlsSource
from tests.protocol_negotiation.authority import (
    Authority,
)
from tests.protocol_negotiation.samples import (
    FRAME,
    HTTP1_REQUEST,
    HTTP2_PREFACE,
    LOOPBACK,
    PLAIN,
    PROXY_V1,
    PROXY_V2,
    client_hello,
    remoting_frame,
)
from tests.protocol_negotiation.servers import (
    Recorder,
    Run,
    close_client,
    listening,
    read_to_end,
    wait_until,
    with_timeout,
)


class Client:
    """A TLS client over a plain connection, so that tests control the segments that are sent."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="rocketmq.test")
        self._reader, self._writer = reader, writer

    async def handshake(self, step: int = 1 << 20) -> None:
        """Shake hands, but leave the client's last flight for the next `flush`."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self.flush(step)
                self._incoming.write(await with_timeout(self._reader.read(1 << 16)))

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
                self._incoming.write(await with_timeout(self._reader.read(1 << 16)))
        return received


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize("header", [b"", PROXY_V1, PROXY_V2])
@pytest.mark.parametrize(("data", "protocol"), PLAIN)
def test_a_connection_is_handed_over_after_the_handshake(
    run: Run,
    shared_authority: Authority,
    shared_source: TlsSource,
    data: bytes,
    protocol: Protocol,
    header: bytes,
    step: int,
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, trusted_proxies=LOOPBACK, echo=True) as running:
            reader, writer = await running.connect()
            writer.write(header)
            client = Client(shared_authority.client_context("h2"), reader, writer)
            await client.handshake(step)
            for start in range(0, len(data), step):
                client.tls.write(data[start : start + step])
            await client.flush(step)
            detected, recorder = await running.recorder()
            assert detected is protocol
            await recorder.until(lambda r: len(r.received) == len(data))
            assert recorder.received == data
            assert await client.read(len(data)) == data

            outcome, peer, first_bytes = await running.outcome()
            assert (outcome.value, peer) == (protocol.value, recorder.peer)
            assert data.startswith(first_bytes)
            assert peer.tls is not None
            assert (client.tls.selected_alpn_protocol(), peer.tls.server_name) == ("h2", "rocketmq.test")
            if header:
                assert (peer.address, peer.local) == (HostPort("192.0.2.7", 51000), HostPort("198.51.100.9", 8080))
            else:
                assert (peer.address, peer.via) == (HostPort(*writer.get_extra_info("sockname")), None)
            assert running.listener.connections == 0
            assert running.outcomes.empty()
            await close_client(writer)
            await recorder.until(lambda r: r.calls[-1] == "lost")

    run(scenario())


@pytest.mark.parametrize(("offered", "agreed"), [((), None), (("h2",), "h2"), (("http/1.1",), None)])
@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_alpn_is_negotiated_if_offered(
    run: Run,
    shared_authority: Authority,
    shared_source: TlsSource,
    offered: tuple[str, ...],
    agreed: str | None,
    mode: TlsMode,
    version: ssl.TLSVersion,
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, tls_mode=mode, echo=True) as running:
            context = shared_authority.client_context(*offered)
            context.minimum_version = context.maximum_version = version
            reader, writer = await running.connect(context)
            writer.write(FRAME)
            assert await with_timeout(reader.readexactly(len(FRAME))) == FRAME
            _, recorder = await running.recorder()
            assert recorder.peer.tls is not None
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
            assert recorder.peer.tls.version == version.name.replace("_", ".")
            await close_client(writer)
            await recorder.until(lambda r: r.calls[-1] == "lost")

    run(scenario())


def test_plaintext_and_tls_share_the_port(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            _, writer = await running.connect()
            writer.write(FRAME)
            _, recorder = await running.recorder()
            assert recorder.peer.tls is None
            await close_client(writer)

    run(scenario())


def test_the_tls_transport_supports_all_operations(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    """Use all operations that a handler may use."""

    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            reader, writer = await running.connect(shared_authority.client_context())
            writer.write(FRAME)
            _, recorder = await running.recorder()
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
            assert await with_timeout(reader.readexactly(8)) == b"abcdefgh"

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
            # The outer transport takes the first write completely; the buffer size counts only later writes.
            for start in range(0, len(big), 1 << 20):
                transport.write(big[start : start + (1 << 20)])
            assert transport.get_write_buffer_size() > 1000
            await recorder.until(lambda r: "paused" in r.calls)
            assert await with_timeout(reader.readexactly(len(big))) == big
            await recorder.until(lambda r: "resumed" in r.calls)
            assert transport.get_write_buffer_size() == 0

            transport.write(b"last words")
            transport.close()
            assert transport.is_closing()
            assert await read_to_end(reader) == b"last words"
            await close_client(writer)
            await recorder.until(lambda r: r.calls[-1] == "lost")

    run(scenario())


def test_abort_of_the_tls_transport_closes_the_connection(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            reader, writer = await running.connect(shared_authority.client_context())
            writer.write(FRAME)
            _, recorder = await running.recorder()
            recorder.transport.abort()
            assert recorder.transport.is_closing()
            await recorder.until(lambda r: r.calls[-1] == "lost")
            assert await read_to_end(reader) == b""
            await close_client(writer)
            assert running.listener.open_connections == 0

    run(scenario())


def test_a_large_first_write_is_delivered_completely(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            reader, writer = await running.connect()
            client = Client(shared_authority.client_context(), reader, writer)
            await client.handshake()
            frame = remoting_frame(body=os.urandom(1 << 20))
            client.tls.write(frame)
            await client.flush()
            _, recorder = await running.recorder()
            await recorder.until(lambda r: len(r.received) == len(frame))
            assert recorder.received == frame
            await close_client(writer)

    run(scenario())


def test_the_bytes_of_a_client_that_sends_and_closes_are_delivered(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    """The client's last handshake flight, a frame and close_notify arrive in one segment before the connection ends."""

    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            for _ in range(5):
                reader, writer = await running.connect()
                client = Client(shared_authority.client_context(), reader, writer)
                await client.handshake()
                client.tls.write(FRAME)
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.unwrap()
                await client.flush()
                await close_client(writer)
                assert (await running.outcome())[0] is Outcome.REMOTING
                _, recorder = await running.recorder()
                await recorder.until(lambda r: r.calls[-1] == "lost")
                assert recorder.received == FRAME
                assert recorder.calls.count("made") == recorder.calls.count("lost") == 1

    run(scenario())


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", Outcome.UNKNOWN),
        (client_hello(), Outcome.UNKNOWN),
        (PROXY_V2 + FRAME, Outcome.PROXY_INVALID),
        (HTTP2_PREFACE, Outcome.UNKNOWN),
    ],
)
def test_an_unserved_protocol_inside_tls_is_refused(
    run: Run, shared_authority: Authority, shared_source: TlsSource, data: bytes, outcome: Outcome
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, protocols=(Protocol.REMOTING,), trusted_proxies=LOOPBACK) as running:
            reader, writer = await running.connect(shared_authority.client_context())
            writer.write(data)
            actual, peer, first_bytes = await running.outcome()
            assert (actual, first_bytes) == (outcome, data[:16])
            assert peer.tls is not None
            assert await read_to_end(reader) == b""
            await close_client(writer)
            assert running.listener.connections == 0

    run(scenario())


@pytest.mark.parametrize(("data", "outcome"), [(b"", Outcome.SILENT), (FRAME[:5], Outcome.INCOMPLETE)])
def test_an_incomplete_negotiation_inside_tls_times_out(
    run: Run, shared_authority: Authority, shared_source: TlsSource, data: bytes, outcome: Outcome
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, negotiation_timeout=1.0) as running:
            reader, writer = await running.connect(shared_authority.client_context())
            writer.write(data)
            assert (await running.outcome())[0] is outcome
            assert await read_to_end(reader) == b""
            await close_client(writer)

    run(scenario())


def test_http1_inside_tls_is_answered_with_misdirected_request(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, handlers={Protocol.HTTP1: Http1Rejector}) as running:
            reader, writer = await running.connect(shared_authority.client_context())
            writer.write(HTTP1_REQUEST)
            assert (await with_timeout(reader.readline())) == b"HTTP/1.1 421 Misdirected Request\r\n"
            await close_client(writer)

    run(scenario())


def test_an_exception_of_the_handler_closes_the_connection(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    def broken(peer: Peer) -> Recorder:
        raise LookupError("no such broker")

    async def scenario() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        async with listening(tls=shared_source, handlers={Protocol.REMOTING: broken}) as running:
            reader, writer = await running.connect()
            client = Client(shared_authority.client_context(), reader, writer)
            await client.handshake()
            client.tls.write(FRAME)
            await client.flush()
            await read_to_end(reader)
            assert [str(error) for error in errors] == ["no such broker"]
            await close_client(writer)

    run(scenario())


def test_no_negotiation_objects_remain_after_the_hand_over(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            gc.collect()
            gc.disable()
            try:
                _, writer = await running.connect(shared_authority.client_context())
                writer.write(FRAME)
                await running.recorder()
                await wait_until(lambda: not [x for x in gc.get_objects() if isinstance(x, Connection | Negotiation)])
                await close_client(writer)
            finally:
                gc.enable()

    run(scenario())
