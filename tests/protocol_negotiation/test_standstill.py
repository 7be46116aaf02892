"""Deadlines of connections while the process stands still: here, while a callback of a read blocks the event loop."""

import asyncio
import socket
import time

import pytest

from protocol_negotiation import standstill
from protocol_negotiation.negotiation import Outcome
from tests.protocol_negotiation.samples import remoting_frame
from tests.protocol_negotiation.servers import Run, listening, wait_until

_STANDSTILL = 2.0


@pytest.mark.parametrize(("sent", "outcome"), [(remoting_frame(), Outcome.REMOTING), (b"", Outcome.SILENT)])
def test_first_bytes_of_the_meantime_are_read_before_the_deadline(run: Run, sent: bytes, outcome: Outcome) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        trigger, triggered = socket.socketpair()

        def stand_still() -> None:
            triggered.recv(1)
            if sent:
                client.sendall(sent)
            time.sleep(_STANDSTILL)

        with trigger, triggered:
            async with listening(negotiation_timeout=0.5) as running:
                with socket.create_connection((running.address.host, running.address.port)) as client:
                    await wait_until(lambda: running.listener.connections == 1)
                    loop.add_reader(triggered, stand_still)
                    trigger.sendall(b"!")
                    assert (await running.outcome())[0] is outcome
            loop.remove_reader(triggered)

    run(scenario())


def test_a_sleep_before_a_check_leaves_time_to_read(run: Run) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        read: list[bytes] = []
        (trigger, triggered), (peer, reading) = socket.socketpair(), socket.socketpair()

        def stand_still() -> None:
            triggered.recv(1)
            peer.sendall(b"meantime")
            time.sleep(_STANDSTILL)

        with trigger, triggered, peer, reading:
            loop.add_reader(triggered, stand_still)
            loop.add_reader(reading, lambda: read.append(reading.recv(100)))
            trigger.sendall(b"!")
            await standstill.sleep(0.3)
            assert read == [b"meantime"]
            loop.remove_reader(triggered)
            loop.remove_reader(reading)

    run(scenario())
