"""The listener on real sockets, without TLS."""

import asyncio
import gc
import os
import socket
from pathlib import Path

import pytest

from protocol_negotiation.advertised_address import Advertise, advertised
from protocol_negotiation.connection import Connection
from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.negotiation import Negotiation, Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.rejection import Http1Rejector
from protocol_negotiation.tls import TlsMode, TlsSource
from tests.protocol_negotiation.kit import (
    HTTP1_REQUEST,
    HTTP2_PREFACE,
    LOOPBACK,
    PROXY_V1,
    PROXY_V2,
    Recorder,
    Run,
    client_hello,
    encode_v2,
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


@pytest.mark.parametrize("step", [1, 3, 10_000])
@pytest.mark.parametrize("header", [b"", PROXY_V1, PROXY_V2])
@pytest.mark.parametrize(("data", "protocol"), PLAIN)
def test_hand_over(run: Run, data: bytes, protocol: Protocol, header: bytes, step: int) -> None:
    async def scene() -> None:
        async with listening(trusted_proxies=LOOPBACK, broker="broker-a", echo=True) as stage:
            reader, writer = await stage.connect()
            sent = header + data
            for start in range(0, len(sent), step):
                writer.write(sent[start : start + step])
                await asyncio.sleep(0)
            found, recorder = await stage.recorder()
            assert found is protocol
            await recorder.until(lambda r: len(r.received) == len(data))
            assert recorder.received == data
            assert await soon(reader.readexactly(len(data))) == data
            assert recorder.transport.get_protocol() is recorder

            outcome, peer, first_bytes = await stage.outcome()
            assert outcome.value == protocol.value
            assert peer is recorder.peer
            assert data.startswith(first_bytes)
            client = HostPort(*writer.get_extra_info("sockname"))
            assert (peer.listener, peer.broker, peer.tls) == ("main", "broker-a", None)
            if header:
                assert (peer.address, peer.via) == (HostPort("192.0.2.7", 51000), client)
                assert peer.local == HostPort("198.51.100.9", 8080)
                assert dict(peer.tlvs).get(0xEA) == (b"vpce-1" if header is PROXY_V2 else None)
            else:
                assert (peer.address, peer.via, peer.local) == (client, None, stage.address)
            assert advertised(peer, Advertise()) == peer.local
            assert stage.listener.connections == 0

            writer.write(b"more")
            assert await soon(reader.readexactly(4)) == b"more"
            await left(writer)
            await recorder.until(lambda r: r.calls == ["made", "eof", "lost"])
            assert stage.outcomes.empty(), "one outcome per connection"

    run(scene())


def test_the_socket_options(run: Run) -> None:
    async def scene() -> None:
        async with listening() as stage:
            _, writer = await stage.connect()
            writer.write(FRAME)
            _, recorder = await stage.recorder()
            accepted = recorder.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await left(writer)

    run(scene())


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", Outcome.UNKNOWN),
        (b"\xff" * 50_000, Outcome.UNKNOWN),
        (client_hello(), Outcome.TLS_REFUSED),
        (PROXY_V1 + FRAME, Outcome.PROXY_UNTRUSTED),
        (PROXY_V2 + FRAME, Outcome.PROXY_UNTRUSTED),
        (HTTP2_PREFACE, Outcome.UNKNOWN),
    ],
)
def test_refused(run: Run, data: bytes, outcome: Outcome, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with listening(protocols=(Protocol.REMOTING,)) as stage:
            reader, writer = await stage.connect()
            writer.write(data)
            told, peer, first_bytes = await stage.outcome()
            assert told is outcome
            assert first_bytes == data[:16]
            assert peer.address == HostPort(*writer.get_extra_info("sockname"))
            assert await rest(reader) == b""
            await left(writer)
            assert stage.recorders == []
            assert stage.listener.connections == 0

    run(scene())
    (message,) = caplog.messages
    assert outcome.value in message
    assert data[:16].hex(" ") in message


def test_an_invalid_proxy_header(run: Run) -> None:
    async def scene() -> None:
        async with listening(trusted_proxies=LOOPBACK) as stage:
            for header in (b"PROXY TCP4 nonsense\r\n", PROXY_V1 + PROXY_V1, encode_v2(0x41, bytes(36))):
                reader, writer = await stage.connect()
                writer.write(header)
                assert (await stage.outcome())[0] is Outcome.PROXY_INVALID
                assert await rest(reader) == b""
                await left(writer)

    run(scene())


def test_plaintext_where_tls_is_enforced(run: Run, shared_source: TlsSource) -> None:
    async def scene() -> None:
        async with listening(tls=shared_source, tls_mode=TlsMode.ENFORCING) as stage:
            for data, _ in PLAIN:
                reader, writer = await stage.connect()
                writer.write(data)
                assert (await stage.outcome())[0] is Outcome.PLAINTEXT_REFUSED
                assert await rest(reader) == b""
                await left(writer)

    run(scene())


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (b"", Outcome.SILENT),
        (FRAME[:5], Outcome.INCOMPLETE),
        (b"PRI * HTTP", Outcome.INCOMPLETE),
        (PROXY_V2, Outcome.INCOMPLETE),
        (PROXY_V2[:20], Outcome.INCOMPLETE),
    ],
)
def test_deadline(run: Run, data: bytes, outcome: Outcome) -> None:
    async def scene() -> None:
        async with listening(trusted_proxies=LOOPBACK, negotiation_timeout=0.5) as stage:
            reader, writer = await stage.connect()
            writer.write(data)
            assert (await stage.outcome())[0] is outcome
            assert await rest(reader) == b""
            await left(writer)

    run(scene())


def test_no_deadline_after_the_hand_over(run: Run) -> None:
    async def scene() -> None:
        async with listening(negotiation_timeout=1.0, echo=True) as stage:
            reader, writer = await stage.connect()
            writer.write(FRAME)
            assert await soon(reader.readexactly(len(FRAME))) == FRAME
            await asyncio.sleep(1.2)
            writer.write(b"still here")
            assert await soon(reader.readexactly(10)) == b"still here"
            assert (await stage.outcome())[0] is Outcome.REMOTING
            assert stage.outcomes.empty()
            await left(writer)

    run(scene())


@pytest.mark.parametrize("data", [b"", FRAME[:5], PROXY_V2[:20]])
@pytest.mark.parametrize("abruptly", [False, True])
def test_the_client_leaves_first(run: Run, data: bytes, abruptly: bool) -> None:
    async def scene() -> None:
        async with listening(trusted_proxies=LOOPBACK) as stage:
            _, writer = await stage.connect()
            writer.write(data)
            if abruptly:
                reset_at_close(writer)
            await left(writer)
            assert (await stage.outcome())[0] is Outcome.CLOSED
            assert stage.listener.connections == 0

    run(scene())


def test_a_client_that_sends_and_leaves_is_heard(run: Run) -> None:
    async def scene() -> None:
        async with listening() as stage:
            _, writer = await stage.connect()
            writer.write(FRAME)
            await left(writer)
            _, recorder = await stage.recorder()
            await recorder.until(lambda r: "lost" in r.calls)
            assert recorder.received == FRAME

    run(scene())


def test_a_large_first_write(run: Run) -> None:
    async def scene() -> None:
        async with listening() as stage:
            _, writer = await stage.connect()
            frame = remoting_frame(body=os.urandom(1 << 20))
            writer.write(frame)
            _, recorder = await stage.recorder()
            await recorder.until(lambda r: len(r.received) == len(frame))
            assert recorder.received == frame
            await left(writer)

    run(scene())


def test_a_buffered_protocol_can_be_a_handler(run: Run) -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(7)
            self.received = b""
            self.lost = asyncio.Event()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += self.buffer[:nbytes]

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    async def scene() -> None:
        protocol = Buffered()
        async with listening(handlers={Protocol.REMOTING: lambda _: protocol}) as stage:
            _, writer = await stage.connect()
            writer.write(FRAME)
            await stage.outcome()
            writer.write(b"and more than seven")
            await left(writer)
            await soon(protocol.lost.wait())
            assert protocol.received == FRAME + b"and more than seven"

    run(scene())


def test_a_handler_that_closes_at_once_gets_nothing(run: Run) -> None:
    class Closing(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transport.close()

    async def scene() -> None:
        made: list[Recorder] = []

        def handler(peer: Peer) -> Recorder:
            made.append(Closing(peer))
            return made[0]

        async with listening(handlers={Protocol.REMOTING: handler}) as stage:
            reader, writer = await stage.connect()
            writer.write(FRAME)
            assert await rest(reader) == b""
            await made[0].until(lambda r: "lost" in r.calls)
            assert made[0].received == b""
            await left(writer)

    run(scene())


def test_max_connections(run: Run) -> None:
    async def scene() -> None:
        async with listening(max_connections=2) as stage:
            _, negotiating = await stage.connect()
            _, established = await stage.connect()
            established.write(FRAME)
            _, recorder = await stage.recorder()
            assert (await stage.outcome())[0] is Outcome.REMOTING
            assert stage.listener.connections == 1
            assert stage.listener.open_connections == 2

            reader, refused = await stage.connect()
            assert (await stage.outcome())[0] is Outcome.OVERLOAD
            assert await rest(reader) == b""
            await left(refused)

            await left(established)
            await recorder.until(lambda r: "lost" in r.calls)
            assert stage.listener.open_connections == 1
            # Closed connections are looked for at intervals.
            await asyncio.sleep(0.12)
            _, again = await stage.connect()
            again.write(FRAME)
            await stage.recorder()
            assert (await stage.outcome())[0] is Outcome.REMOTING
            await left(again)
            await left(negotiating)

    run(scene())


def test_close_lets_connections_live(run: Run) -> None:
    async def scene() -> None:
        async with listening(echo=True) as stage:
            reader, writer = await stage.connect()
            writer.write(FRAME)
            await soon(reader.readexactly(len(FRAME)))
            late_reader, late = await stage.connect()
            await until(lambda: stage.listener.connections == 1)
            address = stage.address
            await stage.listener.close()
            await stage.listener.close()
            assert stage.listener.addresses == ()
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection(address.host, address.port)
            writer.write(b"on")
            assert await soon(reader.readexactly(2)) == b"on"
            late.write(FRAME)
            assert await soon(late_reader.readexactly(len(FRAME))) == FRAME
            await left(writer)
            await left(late)

    run(scene())


def test_abort_ends_negotiations(run: Run) -> None:
    async def scene() -> None:
        async with listening() as stage:
            reader, writer = await stage.connect()
            await until(lambda: stage.listener.connections == 1)
            await stage.listener.abort()
            assert (await stage.outcome())[0] is Outcome.CLOSED
            assert await rest(reader) == b""
            await left(writer)

    run(scene())


@pytest.mark.parametrize(
    ("address", "reached", "unreached"),
    [
        (":0", ("127.0.0.1", "::1"), ()),
        ("[::]:0", ("127.0.0.1", "::1"), ()),
        ("0.0.0.0:0", ("127.0.0.1",), ("::1",)),
        ("[::1]:0", ("::1",), ("127.0.0.1",)),
    ],
)
def test_address_families(run: Run, address: str, reached: tuple[str, ...], unreached: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with listening(address=address) as stage:
            assert stage.address.port > 0
            for host in reached:
                _, writer = await stage.connect(host=host)
                writer.write(FRAME)
                _, recorder = await stage.recorder()
                assert recorder.peer.address == HostPort(*writer.get_extra_info("sockname")[:2])
                assert recorder.peer.local == HostPort(host, stage.address.port)
                await left(writer)
            for host in unreached:
                with pytest.raises(OSError, match=r"."):
                    await stage.connect(host=host)

    run(scene())


def test_a_name(run: Run) -> None:
    async def scene() -> None:
        async with listening(address="localhost:0") as stage:
            assert {address.port for address in stage.listener.addresses} == {stage.address.port}
            for address in stage.listener.addresses:
                _, writer = await stage.connect(host=address.host)
                await left(writer)

    run(scene())


def test_a_taken_port(run: Run) -> None:
    async def scene() -> None:
        async with listening() as stage:
            with pytest.raises(OSError, match="in use"):
                async with listening(address=str(stage.address)):
                    pass

    run(scene())


def test_reuse_port(run: Run) -> None:
    async def scene() -> None:
        async with listening(reuse_port=True) as stage, listening(address=str(stage.address), reuse_port=True) as other:
            assert other.address == stage.address

    run(scene())


def test_unix_socket(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "gantry.sock"
        async with listening(address=f"unix:{path}") as stage:
            assert stage.address == HostPort(f"unix:{path}", 0)
            for header in (b"", PROXY_V2):
                _, writer = await asyncio.open_unix_connection(path)
                writer.write(header + FRAME)
                _, recorder = await stage.recorder()
                await recorder.until(lambda r: r.received == FRAME)
                peer = recorder.peer
                if header:
                    assert (peer.address, peer.via) == (HostPort("192.0.2.7", 51000), HostPort("unix:", 0))
                else:
                    assert (peer.address, peer.local, peer.via) == (HostPort("unix:", 0), stage.address, None)
                await left(writer)
            with pytest.raises(OSError, match="another process listens"):
                async with listening(address=f"unix:{path}"):
                    pass
            assert path.exists()
        assert not path.exists()

    run(scene())


def test_unix_socket_of_a_dead_process(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "gantry.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        async with listening(address=f"unix:{path}"):
            _, writer = await asyncio.open_unix_connection(path)
            await left(writer)
        path.write_text("precious")
        with pytest.raises(OSError, match="not a socket"):
            async with listening(address=f"unix:{path}"):
                pass
        assert path.read_text() == "precious"

    run(scene())


def test_a_successors_socket_file_stays(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "gantry.sock"
        async with listening(address=f"unix:{path}") as stage:
            path.unlink()
            async with listening(address=f"unix:{path}"):
                await stage.listener.close()
                assert path.exists()

    run(scene())


def test_restart(run: Run) -> None:
    async def scene() -> None:
        async with listening() as stage:
            with pytest.raises(RuntimeError, match="has been started already"):
                await stage.listener.start()
            await stage.listener.close()
            await stage.listener.start()
            _, writer = await stage.connect()
            writer.write(FRAME)
            await stage.recorder()
            await left(writer)

    run(scene())


def test_wrong_setups() -> None:
    options = ListenerOptions("main", HostPort("", 0))
    with pytest.raises(ValueError, match="needs a certificate"):
        Listener(options, {}, None, lambda *_: None)
    with pytest.raises(ValueError, match="handed over as tls"):
        Listener(options, {Protocol.TLS: Http1Rejector}, None, lambda *_: None)
    with pytest.raises(ValueError, match="negotiation_timeout"):
        ListenerOptions("main", HostPort("", 0), negotiation_timeout=0)
    with pytest.raises(ValueError, match="max_connections"):
        ListenerOptions("main", HostPort("", 0), max_connections=0)


def test_the_flood_of_refusals_is_counted_in_the_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with listening() as stage:
            for _ in range(30):
                reader, writer = await stage.connect()
                writer.write(b"SSH-")
                await rest(reader)
                await left(writer)
            await stage.listener.close()

    run(scene())
    lines = sum("first bytes" in message for message in caplog.messages)
    left_out = sum(int(message.split()[2]) for message in caplog.messages if "more connections" in message)
    assert lines + left_out == 30


def test_the_refusal_of_http(run: Run) -> None:
    async def scene() -> None:
        async with listening(handlers={Protocol.HTTP1: Http1Rejector}) as stage:
            reader, writer = await stage.connect()
            writer.write(HTTP1_REQUEST)
            answer = await rest(reader)
            assert answer.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
            await left(writer)

    run(scene())


def test_a_handler_that_cannot_be_made(run: Run) -> None:
    def broken(peer: Peer) -> Recorder:
        raise LookupError("no such broker")

    async def scene() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        async with listening(handlers={Protocol.REMOTING: broken}) as stage:
            reader, writer = await stage.connect()
            writer.write(FRAME)
            assert await rest(reader) == b""
            assert [str(complaint) for complaint in complaints] == ["no such broker"]
            await left(writer)

    run(scene())


def test_nothing_of_ours_remains(run: Run) -> None:
    """After the hand-over the negotiation is gone, without the garbage collector's help."""

    async def scene() -> None:
        async with listening() as stage:
            gc.collect()
            gc.disable()
            try:
                _, writer = await stage.connect()
                writer.write(FRAME)
                _, recorder = await stage.recorder()
                assert not [x for x in gc.get_objects() if isinstance(x, Connection | Negotiation)]
                assert not recorder.transport.is_closing()
                await left(writer)
                _, refused = await stage.connect()
                refused.write(b"SSH-")
                await until(lambda: stage.outcomes.qsize() == 2)
                await left(refused)
                await until(lambda: not [x for x in gc.get_objects() if isinstance(x, Connection | Negotiation)])
            finally:
                gc.enable()

    run(scene())
