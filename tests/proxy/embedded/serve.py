"""An embedded broker as a process of its own: `python -m tests.proxy.embedded.serve PORT [DIRECTORY]`.

Its transactions are checked after seconds, and clients are told of resets, as in tests/cluster.
"""

import logging
import sys
from pathlib import Path

import anyio

from protocol_negotiation.peer import HostPort
from proxy.channel import Channel
from proxy.embedded.backend import EmbeddedBackend, wall_clock
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.server import Server, dismiss, pushing
from proxy.embedded.store import Store
from remoting.command import RemotingCommand
from tests.proxy.embedded.memory import MemoryStore

HOST = "127.0.0.1"


def settings(port: int) -> BrokerSettings:
    """As `peers --fast-timers` and tests/cluster set the real broker."""
    return BrokerSettings(port=port, transaction_timeout=2000, transaction_interval=3000, server_side_reset=False)


def open_store(directory: Path | None) -> Store:
    """A store in memory, or the real one."""
    return MemoryStore(wall_clock)


def _nobody(channel: Channel, command: RemotingCommand) -> None:
    raise AssertionError(f"there are no clients but those on the socket: {command}")


async def serve(port: int, directory: Path | None) -> None:
    backend = EmbeddedBackend(settings(port), open_store(directory), pushing(_nobody), dismiss=dismiss)
    server = Server(backend, HostPort(HOST, port))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(backend.run)
            group.start_soon(server.run)
    finally:
        backend.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    anyio.run(serve, int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
