"""Gantry's own heartbeats to brokers: they keep connections open, and show whether brokers accept its credentials."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from proxy.backends.cluster.server_connection import ServerConnection
from proxy.core.signing import Signer
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.denial import is_denial
from remoting.outcomes import Reply
from remoting.tasks import isolated

_log = logging.getLogger("gantry.cluster")

# Seconds between heartbeats: brokers close connections without traffic for 120 s, and the next request would have to
# wait for a new connection.
KEEPALIVE_SECONDS: Final = 45.0
_TIMEOUT: Final = 10.0
_BODY: Final = b'{"clientID":"gantry-keepalive","consumerDataSet":[],"producerDataSet":[]}'


class Heartbeats:
    """Sends heartbeats. denied_by: the addresses of the brokers that deny Gantry's own requests."""

    def __init__(self, signer: Signer | None) -> None:
        self.denied_by: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._signer = signer

    def send(self, server: ServerConnection) -> None:
        """Send a heartbeat over a connection, which is opened if it is not open."""
        heartbeat = commands.request(RequestCode.HEART_BEAT, body=_BODY)
        if self._signer is not None:
            self._signer.sign(heartbeat)
        reply: Reply = self._loop.create_future()
        reply.add_done_callback(partial(self._note_identity, server.address))
        server.request(heartbeat, _TIMEOUT, reply)

    def keep_alive(self, servers: Iterable[ServerConnection]) -> None:
        """Send a heartbeat over each open connection that has received nothing for a while."""
        now = self._loop.time()
        for server in servers:
            connection = server.connection
            if connection is not None and now - connection.read_at > KEEPALIVE_SECONDS / 2:
                isolated(self.send, server)

    def keep_addresses(self, addresses: Collection[str]) -> None:
        """Forget all other addresses."""
        self.denied_by.intersection_update(addresses)

    def _note_identity(self, address: str, reply: Reply) -> None:
        """Log if a broker accepts Gantry's own requests no longer, or again."""
        if reply.cancelled() or reply.exception() is not None:
            return
        denied = is_denial(reply.result())
        if denied and address not in self.denied_by:
            _log.error(
                "the broker %s denies Gantry's own requests: check cluster.access_key and its secret: %s",
                address,
                reply.result().remark,
            )
        (self.denied_by.add if denied else self.denied_by.discard)(address)
