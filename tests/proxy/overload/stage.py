"""A monitor of the memory with settable connections, process and clock."""

from proxy.core.budget import Budget
from proxy.core.context import Context
from proxy.overload.monitor import Level, Overload
from proxy.settings.limits import LimitSettings
from remoting.codes import RequestCode
from remoting.requests import REQUESTS
from tests.proxy.fakes import Clock, FakeChannel
from tests.proxy.messages import complete
from tests.proxy.overload.fakes import MIB, FakeConnection, FakeProcess


class Stage:
    """A monitor with a ceiling of 512 MiB: soft bound 384, hard bound 448, requests 128 MiB each."""

    def __init__(self, clock: Clock, **limits: int) -> None:
        self.process = FakeProcess(80 * MIB)
        self.budget = Budget(None)
        self.connections: list[FakeConnection] = []
        self.refusals: list[str | None] = []
        self.overload = Overload(
            LimitSettings(memory=512 * MIB, **limits),
            1,
            self.budget,
            lambda: [connection for connection in self.connections if not connection.closed],
            lambda connection: [connection.channel],  # type: ignore[attr-defined]
            self.refusals.append,
            self.process,
            clock,
        )

    def connect(self, unfinished: int = 0, requests: int = 0, responses: int = 0) -> FakeConnection:
        connection = FakeConnection(self.process, unfinished * MIB, requests * MIB, responses * MIB)
        self.connections.append(connection)
        return connection

    def measure(self, mib: int) -> Level:
        self.process.size = mib * MIB
        self.overload.check()
        return self.overload.level

    def request(self, code: RequestCode = RequestCode.SEND_MESSAGE_V2) -> None:
        # As the messaging core does.
        if self.budget.used > self.budget.limit:
            self.budget.on_full(request_context(code))

    @property
    def closed(self) -> list[int]:
        return [number for number, connection in enumerate(self.connections) if connection.closed]


def request_context(code: RequestCode) -> Context:
    return Context(FakeChannel(), complete(REQUESTS[code]), REQUESTS[code], 0.0)
