"""The connections that hold memory: how much of each kind, and since when."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from protocol_negotiation.peer import Peer

# Bytes from which a connection counts as holding memory; the time since then raises its rank.
LEAST = 64 * 1024


class Connection(Protocol):
    """An open connection of either protocol."""

    opened_at: float

    @property
    def peer(self) -> Peer | None:
        """The client's side of the connection."""

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of requests that have not arrived in full."""

    @property
    def held_request_bytes(self) -> int:
        """The memory of requests in flight."""

    @property
    def held_response_bytes(self) -> int:
        """The bytes of responses that the client has not read."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Undo one `pause`."""

    def shed(self) -> None:
        """Close the connection and release its memory."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A connection with the memory that it holds, in bytes by kind; since: in seconds of the monitor's clock."""

    connection: Connection
    unfinished: int
    requests: int
    responses: int
    since: float

    @property
    def total(self) -> int:
        return self.unfinished + self.requests + self.responses

    def kinds(self) -> str:
        """Return the bytes by kind as text for a log line."""
        return f"unfinished {self.unfinished}, requests {self.requests}, unread responses {self.responses}"


class Holders:
    """Finds the connections that hold the most memory for the longest time."""

    def __init__(self) -> None:
        self._since: dict[Connection, float] = {}

    def scan(self, connections: Iterable[Connection], now: float) -> list[Holder]:
        """Return the connections that hold memory; takes about 1 µs for each connection."""
        holders = []
        since: dict[Connection, float] = {}
        for connection in connections:
            unfinished = connection.unfinished_bytes
            requests, responses = connection.held_request_bytes, connection.held_response_bytes
            total = unfinished + requests + responses
            if total:
                begin = self._since.get(connection, now)
                if total >= LEAST:
                    since[connection] = begin
                holders.append(Holder(connection, unfinished, requests, responses, begin))
        self._since = since
        return holders


def ranked(holders: Iterable[Holder], now: float) -> list[Holder]:
    """Return the holders, the largest and oldest first: by their bytes times the seconds for which they hold them."""
    return sorted(holders, key=lambda holder: holder.total * (now - holder.since + 1), reverse=True)
