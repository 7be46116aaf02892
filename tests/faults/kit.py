"""What the fault tests need besides servers: a relay that looks, a load balancer, a Java consumer to kill."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from remoting import command as commands
from remoting.frame import FrameDecoder
from tests.cluster.servers import HOST, PEERS, Failed
from tests.ports import free_port

_CHUNK = 1 << 16


class Relay:
    """A TCP relay to the first of its targets that can be reached; `codes` are those of all requests that passed."""

    def __init__(self, targets: Callable[[], Sequence[str]]) -> None:
        self.codes: list[int] = []
        self.port = free_port()
        self._targets = targets
        self._open: set[asyncio.Task[Any]] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Cut all connections."""
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
    """A relay that runs inside."""
    relay = Relay(targets)
    server = await asyncio.start_server(relay.serve, HOST, relay.port)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()


@dataclass(frozen=True, slots=True)
class Owned:
    """What a consumer said it owns, and when we heard it."""

    at: float
    queues: int


class Holder:
    """A real Java push consumer as a process. `with` it; it tells each change of the queues that it owns."""

    def __init__(self, endpoint: str, topic: str, group: str, client: str = "java-remoting") -> None:
        words = ("hold", "1", "--endpoint", endpoint, "--topic", topic, "--group", group)
        self.said: list[Owned] = []
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, str(PEERS), "client", client, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    @property
    def owned(self) -> int:
        """How many queues it owns now."""
        return self.said[-1].queues if self.said else 0

    def kill(self) -> float:
        """kill -9; when."""
        at = time.monotonic()
        self._process.kill()
        self._process.wait()
        self._thread.join(5)
        return at

    def leave(self) -> float:
        """Shut the consumer down in good order; when that began."""
        at = time.monotonic()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return at

    def wait(self, queues: int, timeout: float) -> float:
        """Wait until it owns so many; when it said so."""
        deadline = time.monotonic() + timeout
        while self.owned != queues:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise Failed(f"owned {[(o.queues) for o in self.said]} instead of {queues} after {timeout} s")
            time.sleep(0.01)
        return self.said[-1].at

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                self.said.append(Owned(time.monotonic(), said["queues"]))
