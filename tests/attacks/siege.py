"""What every attack is held to: the server's memory stays bounded, and somebody else is served meanwhile."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.attacks.raw import Client
from tests.conformance.process import Server

EMPTY_CALL = "/grpc.testing.TestService/EmptyCall"
MIB = 1 << 20
# Seconds that the server may be at work between a neighbour's call and its answer. How long that takes by the wall is
# for the machine to say, which has the attacker on it, too, and whatever else.
TIMEOUT = 1.0
_PAUSE = 0.01


class Neighbour(threading.Thread):
    """A well-behaved client on a connection of its own, which calls again and again.

    `waits` are the seconds of processor time that the server took meanwhile.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.waits: list[float] = []
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
                    begin = self._server.work()
                    client.send(client.call(stream, EMPTY_CALL, b""))
                    answer = client.answer(stream)
                    assert answer.grpc_status == 0, answer
                    self.waits.append(self._server.work() - begin)
                    stream += 2
        except BaseException as failure:
            self.failure = failure


@contextmanager
def siege(server: Server, *, growth: int = 16 * MIB, patience: float = TIMEOUT) -> Iterator[None]:
    """An attack happens inside: at no time does the server have `growth` bytes more than before, and nobody waits while
    it works for longer than `patience` seconds."""
    server.forget_peak()
    before = server.memory()
    with Neighbour(server) as neighbour:
        yield
        # At least one call that was begun during the attack, and one after it, are finished.
        count = len(neighbour.waits)
        while len(neighbour.waits) < count + 2 and neighbour.is_alive():
            time.sleep(_PAUSE)
    assert server.alive
    assert neighbour.failure is None, f"the neighbour was not served: {neighbour.failure!r}"
    longest = max(neighbour.waits)
    assert longest <= patience, f"the neighbour waited for {longest:.2f} s of work"
    grown = server.peak_memory() - before
    assert grown <= growth, f"the server grew by {grown / MIB:.1f} MiB"
