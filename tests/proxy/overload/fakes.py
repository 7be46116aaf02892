"""A process with a settable size, and connections that hold memory."""

import asyncio
from dataclasses import dataclass, field

from protocol_negotiation.peer import Peer
from proxy.overload.process_memory import ProcessMemory
from tests.proxy.fakes import FakeChannel, peer

MIB = 2**20


class FakeProcess(ProcessMemory):
    """Memory that tests set; `freed` is returned to the system by `trim`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.freed = 0
        self.trims = self.thorough_trims = 0

    def read(self) -> int:
        return self.size

    def trim(self, *, thorough: bool = False) -> None:
        self.trims += 1
        self.thorough_trims += thorough
        self.size -= self.freed
        self.freed = 0

    def close(self) -> None:
        """Do nothing."""


@dataclass(eq=False)
class FakeConnection:
    """A connection; closing it frees its memory."""

    process: FakeProcess
    unfinished_bytes: int = 0
    held_request_bytes: int = 0
    held_response_bytes: int = 0
    address: str = "192.0.2.7:50000"
    opened_at: float = 0.0
    closed: bool = False
    pauses: int = 0
    channel: FakeChannel = field(default_factory=FakeChannel)

    @property
    def peer(self) -> Peer:
        return peer(self.address)

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1

    def shed(self) -> None:
        assert not self.closed
        self.closed = True
        self.process.freed += self.unfinished_bytes + self.held_request_bytes + self.held_response_bytes
        self.unfinished_bytes = self.held_request_bytes = self.held_response_bytes = 0


async def pause(seconds: float = 0.03) -> None:
    """Wait until closed connections count as released."""
    await asyncio.sleep(seconds)
