"""Detection of brokers that hang: a stopped process keeps its connections, and name servers list it for minutes."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from proxy.backends.cluster.server_connection import ServerConnection

_log = logging.getLogger("gantry.cluster")

# Seconds between checks.
CHECK_SECONDS: Final = 1.0
# Seconds without a byte while requests wait, after which a heartbeat is sent; and seconds for its reply.
_SILENT_SECONDS: Final = 2.0
_REPLY_SECONDS: Final = 1.0
# Seconds after which an unanswered probe is repeated; its connection is closed by then.
_REPEAT_SECONDS: Final = 11.0


class BrokerProbes:
    """Finds the brokers that send nothing while requests wait, not even a reply to a heartbeat.

    unresponsive: their addresses. probe: sends a heartbeat.
    """

    def __init__(self, clock: Callable[[], float], probe: Callable[[ServerConnection], None]) -> None:
        self.unresponsive: set[str] = set()
        self._clock = clock
        self._probe = probe
        # When the probe without a reply was sent, in seconds.
        self._probed: dict[ServerConnection, float] = {}

    def check(self, servers: Collection[ServerConnection]) -> None:
        """Check all connections, once per CHECK_SECONDS."""
        now = self._clock()
        heard = self._heard(servers, now)
        silent: set[str] = set()
        probed: dict[ServerConnection, float] = {}
        for server in servers:
            sent = self._probed.get(server)
            if sent is None:
                if _waits(server, now):
                    probed[server] = now
                    self._probe(server)
            elif not _has_read(server, sent):
                if now - sent >= _REPLY_SECONDS:
                    silent.add(server.address)
                repeats = now - sent >= _REPEAT_SECONDS or (server.connection is None and now - sent >= _REPLY_SECONDS)
                probed[server] = now if repeats else sent
                if repeats:
                    self._probe(server)
        self._probed = probed
        former, listed = self.unresponsive, {server.address for server in servers}
        self.unresponsive = ((former | silent) - heard) & listed
        for address in self.unresponsive - former:
            _log.warning("the broker %s does not answer: gRPC sends and receives use others", address)
        for address in former - self.unresponsive:
            _log.info("the broker %s answers again, or is not listed any more", address)

    def _heard(self, servers: Iterable[ServerConnection], now: float) -> set[str]:
        """Return the addresses that have sent something lately, since the first probe, over any connection.

        One connection may be silent because only its path is lost.
        """
        first: dict[str, float] = {}
        for server, sent in self._probed.items():
            first[server.address] = min(sent, first.get(server.address, sent))
        return {
            server.address
            for server in servers
            if server.address in first and _has_read(server, max(first[server.address], now - _SILENT_SECONDS))
        }


def _waits(server: ServerConnection, now: float) -> bool:
    """Return whether requests wait for a connection, or on one from which no byte has come, for a while."""
    connection, dialling_since = server.connection, server.dialling_since
    if dialling_since is not None:
        return now - dialling_since >= _SILENT_SECONDS
    return connection is not None and connection.pending > 0 and now - connection.read_at >= _SILENT_SECONDS


def _has_read(server: ServerConnection, since: float) -> bool:
    # A new connection to a stopped process is open, and has not received anything.
    connection = server.connection
    return connection is not None and connection.received_bytes > 0 and connection.read_at > since
