"""The loads of the comparison, the design of a run, and Gantry's targets in each load."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

REMOTING_CPU_RATIO = 1 / 5
GRPC_CPU_RATIO = 1 / 3


@dataclass(frozen=True)
class Aims:
    """Targets for Gantry beside the official Java proxy."""

    cpu_ratio: float | None = None
    """The share of Java's CPU time per message that it may take."""
    lower_added_p99: bool = False
    """It adds less to the 99th percentile than Java."""
    more_throughput: bool = False
    """It handles more messages in a second than Java."""


@dataclass(frozen=True)
class Operation:
    """One kind of load."""

    name: str
    direct: str
    """The load that runs without a proxy: gRPC is compared with its like over remoting; empty where none is like it."""
    clients: int
    window: int
    topic: Literal["send", "fifo", "read", "mixed"]
    """A topic to send to, plain or FIFO, the one whose messages were stored before, or one that the load fills and
    empties."""
    drains: bool = False
    """Ends when every message was read; otherwise it ends after a time."""
    aims: Aims = Aims()
    tls: bool = False
    workers: int = 1
    """Processes of Gantry; the others have threads."""
    share: float = 0.0
    """Open loop: the share of the measured maximum that arrives; 0: closed loop."""
    rate: float = 0.0
    """Open loop: messages per second that arrive; 0: closed loop, or as `share` says."""
    topics: int = 0
    """Number of topics to send to, in turn; 0: one."""
    sizes: tuple[int, ...] = ()
    """Bytes of a message; those of the command line if empty."""
    subjects: tuple[str, ...] = ()
    """The subjects, if not all of the section."""

    def load(self, subject: str) -> str:
        """Return the generator's operation for a subject; empty if there is none."""
        return self.direct if subject == "none" else self.name

    @property
    def pattern(self) -> str:
        """How messages arrive: closed loop, a share of the maximum, or a rate."""
        if self.share:
            return f"{self.share:.0%}"
        return f"{self.rate:g}/s" if self.rate else "closed"


@dataclass(frozen=True)
class Section:
    """The operations of one protocol and the subjects that speak it, in the order of the table."""

    name: str
    operations: tuple[Operation, ...]
    subjects: tuple[str, ...]


_REMOTING = Aims(cpu_ratio=REMOTING_CPU_RATIO, lower_added_p99=True, more_throughput=True)
_GRPC = Aims(cpu_ratio=GRPC_CPU_RATIO, more_throughput=True)

REMOTING = Section(
    "remoting",
    (
        Operation("send-sync", "send-sync", 16, 1, "send", aims=_REMOTING),
        Operation("send-async", "send-async", 4, 32, "send", aims=_REMOTING),
        Operation("pull", "pull", 4, 1, "read", aims=_REMOTING),
        Operation("pop-ack", "pop-ack", 4, 32, "read", drains=True, aims=_REMOTING),
    ),
    ("none", "haproxy", "java", "gantry", "gantry-pure"),
)
GRPC = Section(
    "grpc",
    (
        Operation("grpc-send-sync", "send-sync", 16, 1, "send", aims=_GRPC),
        Operation("grpc-send-async", "send-async", 4, 32, "send", aims=_GRPC),
        Operation("grpc-send-fifo", "send-async", 4, 32, "fifo", aims=_GRPC),
        Operation("grpc-receive-ack", "pop-ack", 4, 32, "read", drains=True, aims=_GRPC),
        Operation("grpc-simple-ack", "pop-ack", 4, 32, "read", drains=True, aims=_GRPC),
        Operation("grpc-mixed", "", 4, 32, "mixed", drains=True, aims=_GRPC),
    ),
    ("none", "haproxy", "java", "rust", "gantry", "gantry-pure"),
)
_BASE = {operation.name: operation for section in (REMOTING, GRPC) for operation in section.operations}
_ONE_AT_A_TIME = ("send-sync", "grpc-send-sync")
_IN_FLIGHT = ("send-async", "pull", "grpc-send-async", "grpc-receive-ack")
_SIDE_BY_SIDE = ("none", "java", "gantry")
_PROXIES = ("java", "gantry")
_FREE = Aims()
CLIENTS, SIZES = (1, 64, 1000), (300, 4096, 65536)
CONNECTIONS = TOPICS = (1, 10, 100, 1000, 10000)
FIXED_RATE = 1000.0


def _base(name: str, **changes: object) -> Operation:
    """Return a load with other parameters; only the base loads have targets."""
    return replace(_BASE[name], aims=_FREE, **changes)  # type: ignore[arg-type]


# One factor at a time around the base loads (300 bytes, plain text, one worker).
VARIATIONS = Section(
    "variations",
    (
        *(_base(name, sizes=(65536,)) for name in _IN_FLIGHT),
        *(_base(name, sizes=(300,), clients=clients) for name in _ONE_AT_A_TIME for clients in CLIENTS),
        *(_base(name, sizes=(300,), tls=True) for name in _IN_FLIGHT),
        *(_base(name, sizes=(300,), workers=2, subjects=("gantry",)) for name in _IN_FLIGHT),
    ),
    _SIDE_BY_SIDE,
)
PACED = Section(
    "paced",
    tuple(
        _base(name, sizes=(300,), share=share)
        for name in ("send-sync", "send-async", "grpc-send-sync", "grpc-send-async")
        for share in (0.3, 0.7)
    ),
    ("none", "haproxy", "java", "gantry"),
)
CONNECTED = Section(
    "connections",
    tuple(
        _base(name, sizes=(300,), clients=number, rate=FIXED_RATE)
        for name in ("send-async", "grpc-send-async")
        for number in CONNECTIONS
    ),
    _PROXIES,
)
TOPICAL = Section(
    "topics",
    tuple(
        _base(name, sizes=(300,), topics=number, rate=FIXED_RATE)
        for name in ("send-async", "grpc-send-async")
        for number in TOPICS
    ),
    _PROXIES,
)
SECTIONS = (REMOTING, GRPC, VARIATIONS, PACED, CONNECTED, TOPICAL)


def full(section: Section) -> Section:
    """Return all loads of a protocol: each number of clients, with and without TLS, one and two workers."""
    operations = [
        replace(operation, clients=clients, window=1 if clients > 1 else operation.window, tls=tls, workers=workers)
        for operation in section.operations
        for clients, tls, workers in product(CLIENTS, (False, True), (1, 2))
    ]
    named = tuple(replace(one, aims=_FREE, sizes=SIZES) for one in operations)
    return Section(f"{section.name}-full", named, ("none", "java", "gantry"))


FULL = (full(REMOTING), full(GRPC))
