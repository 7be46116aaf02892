"""Connections of the load generator: what both protocols offer, and messages as the load sees them."""

import argparse
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

# User property: name of the run, whether the message is measured (1) or part of the warm-up (0), and the time at which
# it was due in nanoseconds since 1970.
STAMP = "GANTRY_BENCH"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A received message: its stamp, bytes of its body, and the protocol's handle for the acknowledgement."""

    stamp: str
    size: int
    handle: Any


class Fault(Exception):
    """A request failed; the text is counted and reported."""


class Driver(Protocol):
    """One client connection of the load. All methods raise Fault."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The brokers to receive from."""

    async def send(self, body: bytes, stamp: str, turn: int) -> None:
        """Send a message; `turn` chooses the queue."""

    async def receive(self, source: str, wait: float) -> list[Delivery]:
        """Receive up to 32 messages from a broker; wait up to `wait` seconds for one."""

    async def acknowledge(self, source: str, delivery: Delivery) -> None:
        """Acknowledge a message."""


class Connector(Protocol):
    """Opens connections. role: send or receive. Raises CommandError, also if the topic does not exist."""

    def __call__(self, options: argparse.Namespace, role: str, /) -> AbstractAsyncContextManager[Driver]: ...
