"""TLS handshakes of the listener: failures, client certificates, renewed certificates."""

import ssl

import pytest

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.tls import ClientAuth, Refresh, TlsSource
from tests.protocol_negotiation.authority import (
    Authority,
)
from tests.protocol_negotiation.samples import FRAME, client_hello
from tests.protocol_negotiation.servers import (
    Run,
    close_client,
    listening,
    read_to_end,
    reset_at_close,
    wait_until,
    with_timeout,
)


@pytest.mark.parametrize("size", [6, 100, len(client_hello())])
def test_an_incomplete_handshake_times_out(run: Run, shared_source: TlsSource, size: int) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source, negotiation_timeout=0.5) as running:
            reader, writer = await running.connect()
            writer.write(client_hello()[:size])
            outcome, peer, _ = await running.outcome()
            assert (outcome, peer.tls) == (Outcome.TLS_FAILED, None)
            await read_to_end(reader)
            await close_client(writer)
            assert running.listener.connections == 0

    run(scenario())


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("size", [6, 100, len(client_hello())])
def test_a_client_that_closes_during_the_handshake_is_counted_as_failed(
    run: Run, shared_source: TlsSource, size: int, abruptly: bool
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            _, writer = await running.connect()
            writer.write(client_hello()[:size])
            await wait_until(lambda: running.listener.connections == 1)
            if abruptly:
                reset_at_close(writer)
            await close_client(writer)
            assert (await running.outcome())[0] is Outcome.TLS_FAILED
            assert running.listener.connections == 0

    run(scenario())


def test_a_client_that_closes_after_the_handshake_is_counted_as_closed(
    run: Run, shared_authority: Authority, shared_source: TlsSource
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            context = shared_authority.client_context()
            # In TLS 1.2 the server finishes first; in TLS 1.3 the client may close before the server has finished.
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            _, writer = await running.connect(context)
            await close_client(writer)
            assert (await running.outcome())[0] is Outcome.CLOSED
            assert running.listener.connections == 0

    run(scenario())


def test_a_failed_handshake_is_counted_by_its_cause(run: Run, shared_source: TlsSource, authority: Authority) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            with pytest.raises(ssl.SSLCertVerificationError):
                await running.connect(authority.client_context())
            outcome, _, first_bytes = await running.outcome()
            assert outcome is Outcome.TLS_FAILED
            assert first_bytes[:2] == b"\x16\x03"

            reader, writer = await running.connect()
            writer.write(bytes.fromhex("160301000401000000") + bytes(50))
            assert (await running.outcome())[0] is Outcome.TLS_FAILED
            await read_to_end(reader)
            await close_client(writer)

    run(scenario())


def test_abort_closes_connections_in_the_handshake(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            reader, writer = await running.connect()
            writer.write(client_hello())
            assert await with_timeout(reader.read(10))
            await running.listener.abort()
            assert (await running.outcome())[0] is Outcome.CLOSED
            await read_to_end(reader)
            await close_client(writer)

    run(scenario())


def test_client_certificates_are_verified(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        source = TlsSource(authority.files(client_auth=ClientAuth.REQUIRED))
        certificate = authority.ca.issue_cert("orders@rocketmq.test", common_name="orders")
        async with listening(tls=source) as running:
            _, writer = await running.connect(authority.client_context(certificate=certificate))
            writer.write(FRAME)
            _, recorder = await running.recorder()
            assert (await running.outcome())[0] is Outcome.REMOTING
            assert recorder.peer.tls is not None
            assert "CN=orders" in (recorder.peer.tls.subject or "")
            await close_client(writer)

            context = authority.client_context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await running.connect(context)
            assert (await running.outcome())[0] is Outcome.TLS_FAILED

    run(scenario())


def test_new_connections_use_a_renewed_certificate(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        source = TlsSource(authority.files())
        async with listening(tls=source, echo=True) as running:
            serials, clients = [], []
            for _ in range(2):
                reader, writer = await running.connect(authority.client_context())
                serials.append(writer.get_extra_info("peercert")["serialNumber"])
                clients.append((reader, writer))
                authority.files()
                assert source.refresh() is Refresh.RELOADED
            assert serials[0] != serials[1]
            for reader, writer in clients:
                writer.write(FRAME)
                assert await with_timeout(reader.readexactly(len(FRAME))) == FRAME
                await close_client(writer)

    run(scenario())
