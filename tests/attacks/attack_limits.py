"""Limits that hold during every attack: of the server's memory, and of the delay of other clients."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.attacks import figures
from tests.attacks.raw_client import Client
from tests.conformance.server_process import Server

EMPTY_CALL = "/grpc.testing.TestService/EmptyCall"
MIB = 1 << 20
# CPU time of the server between the call of another client and its response. The elapsed time depends on the load of
# the machine, which also runs the attacker.
MAX_BUSY_SECONDS = 1.0
_PAUSE = 0.01


class OrdinaryClient(threading.Thread):
    """An ordinary client on another connection, which calls continuously.

    delays: the server's CPU time in seconds from each call to its response.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.delays: list[float] = []
        self.failure: BaseException | None = None
        self._server = server
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        try:
            with Client(self._server.plain) as client:
                stream = 1
                while not self._ended.wait(_PAUSE):
                    begin = self._server.cpu_seconds()
                    client.send(client.call(stream, EMPTY_CALL, b""))
                    answer = client.response(stream)
                    assert answer.grpc_status == 0, answer
                    self.delays.append(self._server.cpu_seconds() - begin)
                    stream += 2
        except BaseException as failure:
            self.failure = failure


@contextmanager
def within_limits(server: Server, *, growth: int = 16 * MIB, busy_seconds: float = MAX_BUSY_SECONDS) -> Iterator[None]:
    """Fail if, during the `with` block, the server's memory grows by more than `growth` bytes, or the response to
    another client takes more than `busy_seconds` of CPU time."""
    server.reset_peak()
    before = server.memory()
    with OrdinaryClient(server) as other:
        yield
        # Wait for a call that began during the attack, and for one after it.
        count = len(other.delays)
        while len(other.delays) < count + 2 and other.is_alive():
            time.sleep(_PAUSE)
    assert server.alive
    assert other.failure is None, f"the other client was not served: {other.failure!r}"
    ordered, growth_bytes = sorted(other.delays), server.peak_memory() - before
    figures.record_good_client(other.delays, 0, ordered[math.ceil(0.99 * len(ordered)) - 1], growth_bytes / MIB)
    longest = ordered[-1]
    assert longest <= busy_seconds, f"the other client waited for {longest:.2f} s of CPU time"
    assert growth_bytes <= growth, f"the server grew by {growth_bytes / MIB:.1f} MiB"
