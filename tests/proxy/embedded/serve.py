"""Process of an embedded broker: `python -m tests.proxy.embedded.serve PORT [--listen PORT [--config FILE]]
[--directory DIRECTORY]`.

It serves name server and broker on the first port, and with --listen a Gantry in the same process on the second. It
checks transactions after seconds, and pushes resets to clients, like the real broker of tests/cluster.
"""

import logging
from argparse import ArgumentParser
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import anyio

from protocol_negotiation.peer import HostPort
from proxy.app import App
from proxy.core.channel import Channel
from proxy.core.push_relay import relay
from proxy.embedded.backend import EmbeddedBackend, wall_clock
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.server import Server, close_silent, push_via
from proxy.embedded.store import Store
from proxy.embedded.store.durable import DurableStore
from proxy.settings.loading import load
from remoting.command import RemotingCommand
from tests.proxy.embedded.memory_store import MemoryStore

HOST = "127.0.0.1"


def settings(port: int) -> BrokerSettings:
    """Return settings like those of `peers --fast-timers` and tests/cluster for the real broker."""
    return BrokerSettings(port=port, transaction_timeout=2000, transaction_interval=3000, server_side_reset=False)


def open_store(directory: Path | None) -> Store:
    """Return a store in memory, or a durable one in a directory."""
    return MemoryStore(wall_clock) if directory is None else DurableStore(directory, wall_clock)


def _reject_push(channel: Channel, command: RemotingCommand) -> None:
    raise AssertionError(f"there are no clients but those on the socket: {command}")


async def serve(port: int, listen: int | None, directory: Path | None, config: Path | None) -> None:
    push = push_via(_reject_push if listen is None else relay)
    backend = EmbeddedBackend(settings(port), open_store(directory), push, close_silent=close_silent)
    server = Server(backend, HostPort(HOST, port))
    async with server.serving(), anyio.create_task_group() as group:
        group.start_soon(server.run)
        if listen is None:
            with closing(backend):
                await backend.run()
        app = App(load(config, {"listen": [f"{HOST}:{listen}"], "tools": "all"}))
        app.core.backend = app.backend = cast(Any, backend)
        await app.serve(lambda: None, anyio.sleep_forever)


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--listen", type=int)
    parser.add_argument("--config", type=Path, help="settings of the Gantry in this process")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    anyio.run(serve, options.port, options.listen, options.directory, options.config)
