"""Limits of the listener: connections per source address, negotiations, TLS handshakes."""

import asyncio
import resource
import socket
import ssl
from contextlib import ExitStack

import pytest

from protocol_negotiation import handshake_queue
from protocol_negotiation.descriptor_share import first_reserved_descriptor
from protocol_negotiation.detect import Protocol
from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.rejection import Rejector
from protocol_negotiation.tls import TlsSource
from tests.protocol_negotiation.authority import Authority
from tests.protocol_negotiation.samples import FRAME, LOOPBACK, PROXY_V1, client_hello
from tests.protocol_negotiation.servers import (
    Run,
    RunningListener,
    close_client,
    listening,
    read_to_end,
    wait_until,
    with_timeout,
)

OTHER_CLIENT = PROXY_V1.replace(b"192.0.2.7", b"192.0.2.8")


def test_connections_leave_a_share_of_the_descriptors_to_the_process(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files and connections to brokers need them, and clients are served only together with these."""

    async def scenario() -> None:
        with socket.socket() as lowest:
            first_free = lowest.fileno()
        # The listener has two descriptors or more, and each connection one at either end.
        monkeypatch.setattr(resource, "getrlimit", lambda _: (8 * (first_free + 20), 0))
        assert first_reserved_descriptor() == 7 * (first_free + 20)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (round((first_free + 20) * 8 / 7), 0))
        async with listening(leave_descriptors=True) as running:
            writers = []
            for _ in range(12):
                _, writer = await running.connect()
                writers.append(writer)
                writer.write(FRAME)
            outcomes = [(await running.outcome())[0] for _ in writers]
            assert outcomes.count(Outcome.REMOTING) in range(4, 12)
            assert set(outcomes) == {Outcome.REMOTING, Outcome.OVERLOAD}
            for writer in writers:
                await close_client(writer)
            await asyncio.sleep(0.1)
            await close_client(await served(running))
        # As for the connections of other workers and of operators.
        monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 0))
        async with listening() as running:
            await close_client(await served(running))

    run(scenario())
    assert "share of the process's descriptors" in caplog.text


class EchoingRejector(Rejector):
    """A rejector whose response is the error text and the bytes received."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def response(self, data: bytes) -> bytes:
        return self._text.encode() + data


async def served(running: RunningListener, data: bytes = FRAME) -> asyncio.StreamWriter:
    """Open a connection that is handed over."""
    _, writer = await running.connect()
    writer.write(data)
    await running.recorder()
    assert (await running.outcome())[0] is Outcome.REMOTING
    return writer


def test_connections_over_the_limit_of_their_address_are_rejected_in_their_protocol(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        rejectors = {Protocol.REMOTING: EchoingRejector}
        async with listening(max_connections_per_address=2, rejectors=rejectors) as running:
            first = await served(running)
            second = await served(running)
            reader, rejected = await running.connect()
            for byte in FRAME:
                rejected.write(bytes((byte,)))
                await asyncio.sleep(0)
            response = await read_to_end(reader)
            assert response.startswith(b"connection limit of 2 per address reached")
            outcome, _, first_bytes = await running.outcome()
            assert (outcome, FRAME.startswith(first_bytes)) == (Outcome.ADDRESS_LIMIT, True)
            assert len(running.recorders) == 2
            await close_client(rejected)

            await close_client(first)
            await running.recorders[0].until(lambda recorder: "lost" in recorder.calls)
            await asyncio.sleep(0.12)
            third = await served(running)
            await close_client(second)
            await close_client(third)
            assert running.outcomes.empty()

    run(scenario())
    (message,) = [message for message in caplog.messages if "address_limit" in message]
    assert "2 connections from 127.0.0.1 are open" in message


@pytest.mark.parametrize("data", [client_hello(), b"GET / HTTP/1.1\r\n\r\n"], ids=["TLS", "HTTP/1.1"])
def test_connections_over_the_limit_without_a_rejector_are_closed(
    run: Run, shared_source: TlsSource, data: bytes
) -> None:
    async def scenario() -> None:
        rejectors = {Protocol.REMOTING: EchoingRejector}
        async with listening(tls=shared_source, max_connections_per_address=1, rejectors=rejectors) as running:
            first = await served(running)
            reader, writer = await running.connect()
            writer.write(data)
            assert await read_to_end(reader) == b""
            assert (await running.outcome())[0] is Outcome.ADDRESS_LIMIT
            await close_client(first)
            await close_client(writer)

    run(scenario())


def test_silent_connections_over_the_limit_of_their_address_end_early(run: Run) -> None:
    async def scenario() -> None:
        async with listening(max_connections_per_address=1, negotiation_timeout=30.0) as running:
            first = await served(running)
            reader, writer = await running.connect()
            async with asyncio.timeout(10):
                assert await read_to_end(reader) == b""
            assert (await running.outcome())[0] is Outcome.SILENT
            await close_client(first)
            await close_client(writer)

    run(scenario())


def test_a_flood_over_the_limit_of_an_address_is_closed_at_the_accept(run: Run) -> None:
    async def scenario() -> None:
        async with listening(max_connections_per_address=1, negotiation_timeout=30.0) as running:
            first = await served(running)
            with ExitStack() as stack:
                # All before the listener runs again: at most 100 per second wait for an answer, on a slow machine too.
                for _ in range(320):
                    stack.enter_context(socket.create_connection((running.address.host, running.address.port), 30))
                outcomes = [(await running.outcome())[0] for _ in range(320)]
            assert set(outcomes) == {Outcome.ADDRESS_LIMIT, Outcome.SILENT}
            assert running.listener.connections == 0
            await close_client(first)

    run(scenario())


def test_connections_behind_a_trusted_proxy_count_with_the_address_in_the_header(run: Run) -> None:
    async def scenario() -> None:
        rejectors = {Protocol.REMOTING: EchoingRejector}
        async with listening(trusted_proxies=LOOPBACK, max_connections_per_address=1, rejectors=rejectors) as running:
            writers = [
                await served(running, data)
                # The proxy's own connections are exempt.
                for data in (FRAME, FRAME, b"PROXY UNKNOWN\r\n" + FRAME, PROXY_V1 + FRAME, OTHER_CLIENT + FRAME)
            ]
            reader, writer = await running.connect()
            writer.write(PROXY_V1 + FRAME)
            assert (await read_to_end(reader)).endswith(FRAME)
            outcome, peer, _ = await running.outcome()
            assert (outcome, peer.address.host) == (Outcome.ADDRESS_LIMIT, "192.0.2.7")
            for each in (*writers, writer):
                await close_client(each)

    run(scenario())


def test_a_connection_over_tls_counts_once(run: Run, shared_authority: Authority, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, max_connections_per_address=2) as running:
            context = shared_authority.client_context()
            for _ in range(2):
                _, writer = await running.connect(context)
                writer.write(FRAME)
                await running.recorder()
                assert (await running.outcome())[0] is Outcome.REMOTING
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await running.connect(context)
            assert (await running.outcome())[0] is Outcome.ADDRESS_LIMIT

    run(scenario())


def test_the_oldest_negotiation_is_closed_above_the_limit(run: Run) -> None:
    async def scenario() -> None:
        async with listening(max_negotiations=3) as running:
            connections = []
            for number in range(5):
                connections.append(await running.connect())
                await wait_until(lambda number=number: running.listener.connections == min(number + 1, 3))  # type: ignore[misc]
            for reader, _ in connections[:2]:
                assert await read_to_end(reader) == b""
                assert (await running.outcome())[0] is Outcome.OVERLOAD
            for _, writer in connections[2:]:
                writer.write(FRAME)
                await running.recorder()
                assert (await running.outcome())[0] is Outcome.REMOTING
            for _, writer in connections:
                await close_client(writer)

    run(scenario())


def test_handshakes_over_the_limit_wait_and_then_complete(
    run: Run, shared_authority: Authority, shared_source: TlsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stall of the machine does not evict the first handshake.
    monkeypatch.setattr(handshake_queue, "MAX_CONTENDED_SECONDS", 60.0)

    async def scenario() -> None:
        async with listening(tls=shared_source, max_handshakes=1, echo=True) as running:
            reader, stalled = await running.connect()
            stalled.write(client_hello())
            assert await with_timeout(reader.read(10))
            clients = [asyncio.ensure_future(running.connect(shared_authority.client_context())) for _ in range(20)]
            await asyncio.sleep(0.1)
            assert not any(client.done() for client in clients)
            await close_client(stalled)
            assert (await running.outcome())[0] is Outcome.TLS_FAILED
            for client in clients:
                reader, writer = await with_timeout(client)
                writer.write(FRAME)
                assert await with_timeout(reader.readexactly(len(FRAME))) == FRAME
                assert (await running.outcome())[0] is Outcome.REMOTING

    run(scenario())


def test_a_handshake_that_waits_beyond_the_deadline_is_closed(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, max_handshakes=1, negotiation_timeout=3.0) as running:
            waiting = await running.connect()
            await wait_until(lambda: running.listener.connections == 1)
            await asyncio.sleep(0.2)
            stalled = await running.connect()
            stalled[1].write(client_hello())
            assert await with_timeout(stalled[0].read(10))
            waiting[1].write(client_hello())
            outcomes = [(await running.outcome())[0] for _ in range(2)]
            assert outcomes == [Outcome.OVERLOAD, Outcome.TLS_FAILED]
            for reader, writer in (waiting, stalled):
                await read_to_end(reader)
                await close_client(writer)
            assert running.listener.connections == 0

    run(scenario())


def test_a_slow_handshake_is_closed_if_another_one_waits(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, max_handshakes=1, negotiation_timeout=30.0) as running:
            reader, stalled = await running.connect()
            stalled.write(client_hello())
            assert await with_timeout(reader.read(10))
            _, writer = await running.connect(shared_authority.client_context())
            assert (await running.outcome())[0] is Outcome.OVERLOAD
            writer.write(FRAME)
            assert (await running.outcome())[0] is Outcome.REMOTING
            await read_to_end(reader)
            await close_client(stalled)

    run(scenario())


def test_a_long_client_hello_is_not_kept_while_handshakes_wait(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, max_handshakes=1) as running:
            reader, stalled = await running.connect()
            stalled.write(client_hello())
            assert await with_timeout(reader.read(10))
            reader, long = await running.connect()
            await asyncio.sleep(0.05)
            long.write(client_hello() + bytes(60_000))
            assert (await running.outcome())[0] is Outcome.OVERLOAD
            assert await read_to_end(reader) == b""
            await close_client(long)
            await close_client(stalled)

    run(scenario())


def test_waiting_handshakes_end_when_the_listener_is_aborted(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, max_handshakes=1) as running:
            connections = []
            for _ in range(3):
                connections.append(await running.connect())
                connections[-1][1].write(client_hello())
            assert await with_timeout(connections[0][0].read(10))
            await running.listener.abort()
            assert [(await running.outcome())[0] for _ in connections] == [Outcome.CLOSED] * 3
            for reader, writer in connections:
                await read_to_end(reader)
                await close_client(writer)

    run(scenario())
