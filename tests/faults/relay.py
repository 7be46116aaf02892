"""A TCP relay that decodes the requests that pass."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from remoting import command as commands
from remoting.frame import FrameDecoder
from tests.cluster.servers import HOST
from tests.ports import free_port

_CHUNK = 1 << 16


class Relay:
    """A TCP relay to the first reachable target; `codes` has the codes of all relayed requests."""

    def __init__(self, targets: Callable[[], Sequence[str]]) -> None:
        self.codes: list[int] = []
        self.port = free_port()
        self._targets = targets
        self._open: set[asyncio.Task[Any]] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Close all connections."""
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for target in self._targets():
            host, _, port = target.rpartition(":")
            with suppress(OSError):
                to_reader, to_writer = await asyncio.open_connection(host, int(port))
                break
        else:
            writer.close()
            return
        try:
            await asyncio.gather(self._copy(reader, to_writer, FrameDecoder()), self._copy(to_reader, writer, None))
        finally:
            writer.close()
            to_writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: FrameDecoder | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if look is not None:
                    found = map(commands.decode, look.feed(data))
                    self.codes += [command.code for command in found if not command.is_response]
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def relaying(targets: Callable[[], Sequence[str]]) -> AsyncIterator[Relay]:
    """Run a relay."""
    relay = Relay(targets)
    server = await asyncio.start_server(relay.serve, HOST, relay.port)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
