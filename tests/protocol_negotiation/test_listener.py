"""The listener on real sockets, without TLS."""

import asyncio
import gc
import os

import pytest

from protocol_negotiation.advertised_address import Advertise, advertised
from protocol_negotiation.connection import Connection
from protocol_negotiation.detect import Protocol
from protocol_negotiation.negotiation import Negotiation, Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.rejection import Http1Rejector
from protocol_negotiation.tls import TlsMode, TlsSource
from tests.protocol_negotiation.samples import (
    FRAME,
    HTTP1_REQUEST,
    HTTP2_PREFACE,
    LOOPBACK,
    PLAIN,
    PROXY_V1,
    PROXY_V2,
    client_hello,
    encode_v2,
    remoting_frame,
)
from tests.protocol_negotiation.servers import (
    Recorder,
    Run,
    close_client,
    listening,
    read_to_end,
    reset_at_close,
    wait_until,
    with_timeout,
)


@pytest.mark.parametrize("step", [1, 3, 10_000])
@pytest.mark.parametrize("header", [b"", PROXY_V1, PROXY_V2])
@pytest.mark.parametrize(("data", "protocol"), PLAIN)
def test_a_connection_is_handed_over_to_the_handler_of_its_protocol(
    run: Run, data: bytes, protocol: Protocol, header: bytes, step: int
) -> None:
    async def scenario() -> None:
        async with listening(trusted_proxies=LOOPBACK, broker="broker-a", echo=True) as running:
            reader, writer = await running.connect()
            sent = header + data
            for start in range(0, len(sent), step):
                writer.write(sent[start : start + step])
                await asyncio.sleep(0)
            detected, recorder = await running.recorder()
            assert detected is protocol
            await recorder.until(lambda r: len(r.received) == len(data))
            assert recorder.received == data
            assert await with_timeout(reader.readexactly(len(data))) == data
            assert recorder.transport.get_protocol() is recorder

            outcome, peer, first_bytes = await running.outcome()
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
                assert (peer.address, peer.via, peer.local) == (client, None, running.address)
            assert advertised(peer, Advertise()) == peer.local
            assert running.listener.connections == 0

            writer.write(b"more")
            assert await with_timeout(reader.readexactly(4)) == b"more"
            await close_client(writer)
            await recorder.until(lambda r: r.calls == ["made", "eof", "lost"])
            assert running.outcomes.empty(), "one outcome per connection"

    run(scenario())


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
def test_an_unserved_protocol_is_refused_and_logged(
    run: Run, data: bytes, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening(protocols=(Protocol.REMOTING,)) as running:
            reader, writer = await running.connect()
            writer.write(data)
            actual, peer, first_bytes = await running.outcome()
            assert actual is outcome
            assert first_bytes == data[:16]
            assert peer.address == HostPort(*writer.get_extra_info("sockname"))
            assert await read_to_end(reader) == b""
            await close_client(writer)
            assert running.recorders == []
            assert running.listener.connections == 0

    run(scenario())
    (message,) = caplog.messages
    assert outcome.value in message
    assert data[:16].hex(" ") in message


def test_an_invalid_proxy_header_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with listening(trusted_proxies=LOOPBACK) as running:
            for header in (b"PROXY TCP4 nonsense\r\n", PROXY_V1 + PROXY_V1, encode_v2(0x41, bytes(36))):
                reader, writer = await running.connect()
                writer.write(header)
                assert (await running.outcome())[0] is Outcome.PROXY_INVALID
                assert await read_to_end(reader) == b""
                await close_client(writer)

    run(scenario())


def test_plaintext_is_refused_if_tls_is_enforced(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, tls_mode=TlsMode.ENFORCING) as running:
            for data, _ in PLAIN:
                reader, writer = await running.connect()
                writer.write(data)
                assert (await running.outcome())[0] is Outcome.PLAINTEXT_REFUSED
                assert await read_to_end(reader) == b""
                await close_client(writer)

    run(scenario())


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
def test_an_incomplete_negotiation_times_out(run: Run, data: bytes, outcome: Outcome) -> None:
    async def scenario() -> None:
        async with listening(trusted_proxies=LOOPBACK, negotiation_timeout=0.5) as running:
            reader, writer = await running.connect()
            writer.write(data)
            assert (await running.outcome())[0] is outcome
            assert await read_to_end(reader) == b""
            await close_client(writer)

    run(scenario())


def test_the_timeout_does_not_apply_after_the_hand_over(run: Run) -> None:
    async def scenario() -> None:
        async with listening(negotiation_timeout=1.0, echo=True) as running:
            reader, writer = await running.connect()
            writer.write(FRAME)
            assert await with_timeout(reader.readexactly(len(FRAME))) == FRAME
            await asyncio.sleep(1.2)
            writer.write(b"still here")
            assert await with_timeout(reader.readexactly(10)) == b"still here"
            assert (await running.outcome())[0] is Outcome.REMOTING
            assert running.outcomes.empty()
            await close_client(writer)

    run(scenario())


@pytest.mark.parametrize("data", [b"", FRAME[:5], PROXY_V2[:20]])
@pytest.mark.parametrize("abruptly", [False, True])
def test_a_client_that_closes_during_negotiation_is_counted_as_closed(run: Run, data: bytes, abruptly: bool) -> None:
    async def scenario() -> None:
        async with listening(trusted_proxies=LOOPBACK) as running:
            _, writer = await running.connect()
            writer.write(data)
            if abruptly:
                reset_at_close(writer)
            await close_client(writer)
            assert (await running.outcome())[0] is Outcome.CLOSED
            assert running.listener.connections == 0

    run(scenario())


def test_the_bytes_of_a_client_that_sends_and_closes_are_delivered(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as running:
            _, writer = await running.connect()
            writer.write(FRAME)
            await close_client(writer)
            _, recorder = await running.recorder()
            await recorder.until(lambda r: "lost" in r.calls)
            assert recorder.received == FRAME

    run(scenario())


def test_a_large_first_write_is_delivered_completely(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as running:
            _, writer = await running.connect()
            frame = remoting_frame(body=os.urandom(1 << 20))
            writer.write(frame)
            _, recorder = await running.recorder()
            await recorder.until(lambda r: len(r.received) == len(frame))
            assert recorder.received == frame
            await close_client(writer)

    run(scenario())


def test_a_handler_may_be_a_buffered_protocol(run: Run) -> None:
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

    async def scenario() -> None:
        protocol = Buffered()
        async with listening(handlers={Protocol.REMOTING: lambda _: protocol}) as running:
            _, writer = await running.connect()
            writer.write(FRAME)
            await running.outcome()
            writer.write(b"and more than seven")
            await close_client(writer)
            await with_timeout(protocol.lost.wait())
            assert protocol.received == FRAME + b"and more than seven"

    run(scenario())


def test_a_handler_that_closes_at_once_receives_nothing(run: Run) -> None:
    class Closing(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transport.close()

    async def scenario() -> None:
        made: list[Recorder] = []

        def handler(peer: Peer) -> Recorder:
            made.append(Closing(peer))
            return made[0]

        async with listening(handlers={Protocol.REMOTING: handler}) as running:
            reader, writer = await running.connect()
            writer.write(FRAME)
            assert await read_to_end(reader) == b""
            await made[0].until(lambda r: "lost" in r.calls)
            assert made[0].received == b""
            await close_client(writer)

    run(scenario())


def test_connections_over_the_limit_are_refused(run: Run) -> None:
    async def scenario() -> None:
        async with listening(max_connections=2) as running:
            _, negotiating = await running.connect()
            _, established = await running.connect()
            established.write(FRAME)
            _, recorder = await running.recorder()
            assert (await running.outcome())[0] is Outcome.REMOTING
            assert running.listener.connections == 1
            assert running.listener.open_connections == 2

            reader, refused = await running.connect()
            assert (await running.outcome())[0] is Outcome.OVERLOAD
            assert await read_to_end(reader) == b""
            await close_client(refused)

            await close_client(established)
            await recorder.until(lambda r: "lost" in r.calls)
            assert running.listener.open_connections == 1
            # Closed connections are swept at intervals.
            await asyncio.sleep(0.12)
            _, again = await running.connect()
            again.write(FRAME)
            await running.recorder()
            assert (await running.outcome())[0] is Outcome.REMOTING
            await close_client(again)
            await close_client(negotiating)

    run(scenario())


def test_close_keeps_open_connections(run: Run) -> None:
    async def scenario() -> None:
        async with listening(echo=True) as running:
            reader, writer = await running.connect()
            writer.write(FRAME)
            await with_timeout(reader.readexactly(len(FRAME)))
            late_reader, late = await running.connect()
            await wait_until(lambda: running.listener.connections == 1)
            address = running.address
            await running.listener.close()
            await running.listener.close()
            assert running.listener.addresses == ()
            with pytest.raises(OSError, match=r"."):
                await asyncio.open_connection(address.host, address.port)
            writer.write(b"on")
            assert await with_timeout(reader.readexactly(2)) == b"on"
            late.write(FRAME)
            assert await with_timeout(late_reader.readexactly(len(FRAME))) == FRAME
            await close_client(writer)
            await close_client(late)

    run(scenario())


def test_abort_closes_connections_in_negotiation(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as running:
            reader, writer = await running.connect()
            await wait_until(lambda: running.listener.connections == 1)
            await running.listener.abort()
            assert (await running.outcome())[0] is Outcome.CLOSED
            assert await read_to_end(reader) == b""
            await close_client(writer)

    run(scenario())


def test_all_refusals_of_a_flood_are_counted_in_the_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening() as running:
            for _ in range(30):
                reader, writer = await running.connect()
                writer.write(b"SSH-")
                await read_to_end(reader)
                await close_client(writer)
            await running.listener.close()

    run(scenario())
    lines = sum("first bytes" in message for message in caplog.messages)
    left_out = sum(int(message.split()[2]) for message in caplog.messages if "more connections" in message)
    assert lines + left_out == 30


def test_http1_is_answered_with_misdirected_request(run: Run) -> None:
    async def scenario() -> None:
        async with listening(handlers={Protocol.HTTP1: Http1Rejector}) as running:
            reader, writer = await running.connect()
            writer.write(HTTP1_REQUEST)
            answer = await read_to_end(reader)
            assert answer.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
            await close_client(writer)

    run(scenario())


def test_an_exception_of_the_handler_closes_the_connection(run: Run) -> None:
    def broken(peer: Peer) -> Recorder:
        raise LookupError("no such broker")

    async def scenario() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        async with listening(handlers={Protocol.REMOTING: broken}) as running:
            reader, writer = await running.connect()
            writer.write(FRAME)
            assert await read_to_end(reader) == b""
            assert [str(error) for error in errors] == ["no such broker"]
            await close_client(writer)

    run(scenario())


def test_no_negotiation_objects_remain_after_the_hand_over(run: Run) -> None:
    """Reference counting alone frees the objects of a negotiation."""

    async def scenario() -> None:
        async with listening() as running:
            gc.collect()
            gc.disable()
            try:
                _, writer = await running.connect()
                writer.write(FRAME)
                _, recorder = await running.recorder()
                assert not [x for x in gc.get_objects() if isinstance(x, Connection | Negotiation)]
                assert not recorder.transport.is_closing()
                await close_client(writer)
                _, refused = await running.connect()
                refused.write(b"SSH-")
                await wait_until(lambda: running.outcomes.qsize() == 2)
                await close_client(refused)
                await wait_until(lambda: not [x for x in gc.get_objects() if isinstance(x, Connection | Negotiation)])
            finally:
                gc.enable()

    run(scenario())
