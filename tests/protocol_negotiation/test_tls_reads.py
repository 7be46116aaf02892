"""TLS records without data: few are served, a flood of them closes the connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.tls import TlsSource
from tests.protocol_negotiation.samples import FRAME
from tests.protocol_negotiation.servers import Recorder, Run, RunningListener, listening, read_to_end, with_timeout
from tests.protocol_negotiation.tls_client import TlsClient

_MIB = 1 << 20


@asynccontextmanager
async def _connected(
    running: RunningListener, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[tuple[TlsClient, Recorder]]:
    """Open a connection and send `FRAME`."""
    client = await asyncio.to_thread(TlsClient, running.address.host, running.address.port, version)
    with client.socket:
        client.send(client.records(FRAME))
        yield client, (await running.recorder())[1]


async def _closed(client: TlsClient, records: bytes) -> None:
    """Send records and wait until the server has closed the connection."""
    await asyncio.to_thread(client.send, records)
    await with_timeout(asyncio.to_thread(client.wait_closed))


def test_a_flood_of_key_updates_closes_the_connection(
    run: Run, shared_source: TlsSource, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running, _connected(running) as (client, recorder):
            await _closed(client, client.key_updates(2_000))
            await recorder.until(lambda recorder: "lost" in recorder.calls)

    run(scenario())
    assert "more than 24837 bytes of TLS records without data" in caplog.text


def test_key_updates_within_much_data_are_no_flood(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running, _connected(running) as (client, recorder):
            for _ in range(10):
                records = client.key_updates(200) + client.records(*[bytes(16_384)] * 64)
                assert await asyncio.to_thread(client.send, records)
            await recorder.until(lambda recorder: len(recorder.received) == len(FRAME) + 10 * _MIB)

    run(scenario())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("size", "count"), [(1, 20_000), (16_384, 200)])
def test_records_with_data_are_no_flood(
    run: Run, shared_source: TlsSource, version: ssl.TLSVersion, size: int, count: int
) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running, _connected(running, version) as (client, recorder):
            assert await asyncio.to_thread(client.send, client.records(*[bytes(size)] * count))
            await recorder.until(lambda recorder: len(recorder.received) == len(FRAME) + size * count)

    run(scenario())


def test_data_that_wait_for_a_paused_protocol_are_no_flood(run: Run, shared_source: TlsSource) -> None:
    async def scenario() -> None:
        async with listening(tls=shared_source) as running, _connected(running) as (client, recorder):
            await recorder.until(lambda recorder: bool(recorder.received))
            recorder.transport.pause_reading()
            sending = asyncio.ensure_future(asyncio.to_thread(client.send, client.records(bytes(4 * _MIB))))
            await asyncio.sleep(0.2)
            assert recorder.received == FRAME
            recorder.transport.resume_reading()
            await recorder.until(lambda recorder: len(recorder.received) == len(FRAME) + 4 * _MIB)
            assert await with_timeout(sending)

    run(scenario())


def test_a_handshake_of_many_bytes_is_refused(run: Run, shared_source: TlsSource) -> None:
    """OpenSSL itself accepts a ClientHello of 131,396 bytes (CLIENT_HELLO_MAX_LENGTH)."""

    async def scenario() -> None:
        async with listening(tls=shared_source) as running:
            reader, writer = await running.connect()
            hello = b"\x01" + (131_300).to_bytes(3) + b"\x03\x03" + bytes(131_200)
            for start in range(0, len(hello), 2**14):
                fragment = hello[start : start + 2**14]
                writer.write(b"\x16\x03\x01" + len(fragment).to_bytes(2) + fragment)
            assert (await running.outcome())[0] is Outcome.TLS_FAILED
            assert running.listener.tls_failures == {"flood": 1}
            await read_to_end(reader)

    run(scenario())
