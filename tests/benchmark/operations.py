"""The loads of the comparison, and Gantry's targets in each."""

from dataclasses import dataclass
from typing import Literal

CPU_RATIO_LIMIT = 0.5


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
    topic: Literal["send", "read", "mixed"]
    """A topic to send to, the one whose messages were stored before, or one that the load fills and empties."""
    drains: bool = False
    """Ends when every message was read; otherwise it ends after a time."""
    aims: Aims = Aims()

    def load(self, subject: str) -> str:
        """Return the generator's operation for a subject; empty if there is none."""
        return self.direct if subject == "none" else self.name


@dataclass(frozen=True)
class Section:
    """The operations of one protocol and the subjects that speak it, in the order of the table."""

    name: str
    operations: tuple[Operation, ...]
    subjects: tuple[str, ...]


_FORWARDED = Aims(cpu_ratio=CPU_RATIO_LIMIT, lower_added_p99=True)
_SENT = Aims(cpu_ratio=CPU_RATIO_LIMIT, more_throughput=True)

REMOTING = Section(
    "remoting",
    (
        Operation("send-sync", "send-sync", 16, 1, "send", aims=_FORWARDED),
        Operation("send-async", "send-async", 4, 32, "send", aims=_FORWARDED),
        Operation("pull", "pull", 4, 1, "read", aims=_FORWARDED),
        Operation("pop-ack", "pop-ack", 4, 32, "read", drains=True, aims=_FORWARDED),
    ),
    ("none", "java", "gantry"),
)
GRPC = Section(
    "grpc",
    (
        Operation("grpc-send-sync", "send-sync", 16, 1, "send", aims=_SENT),
        Operation("grpc-send-async", "send-async", 4, 32, "send", aims=_SENT),
        Operation("grpc-receive-ack", "pop-ack", 4, 32, "read", drains=True, aims=Aims(cpu_ratio=CPU_RATIO_LIMIT)),
        Operation("grpc-mixed", "", 4, 32, "mixed", drains=True),
    ),
    ("none", "java", "rust", "gantry"),
)
SECTIONS = (REMOTING, GRPC)
