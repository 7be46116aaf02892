"""The embedded broker of a replica, built from the settings: store, backend, and the entrance of its own listener."""

import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from protocol_negotiation.peer import HostPort
from proxy.backends.embedded_settings import broker_address, broker_settings, store_options
from proxy.core.backend import Push, unchecked
from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.core.forwarding import limit_poll
from proxy.core.messaging import Entrance
from proxy.core.push_relay import relay
from proxy.embedded.backend import EmbeddedBackend, wall_clock
from proxy.embedded.server import Server, close_silent, push_via
from proxy.embedded.store import StorageError, StoreLocked, StoreUnusable, UnknownFormat
from proxy.embedded.store.durable import DurableStore
from proxy.observability.metrics import Metrics
from proxy.observability.metrics.family import Family, Kind, Samples, by_label
from proxy.settings.model import Settings
from remoting.broker_requests import BROKER_REQUESTS
from remoting.outcomes import Reply

# Bytes of a Unix socket's path, as in sockaddr_un (108 on Linux, 104 elsewhere), with its final zero.
_MAX_SOCKET_PATH = 103

CREATIONS = Family(
    "gantry_embedded_creations",
    Kind.COUNTER,
    "Automatic creations of topics and groups: admitted, or refused by the rate of the client or address, or by"
    " the quota of topics or groups.",
    ("outcome",),
)
TOPICS = Family("gantry_embedded_topics", Kind.GAUGE, "Topics of the embedded broker.")
LOG_BYTES = Family("gantry_embedded_log_bytes", Kind.GAUGE, "Bytes on disk of the embedded broker's log.")
FULL = Family("gantry_embedded_full", Kind.GAUGE, "1 while the disk is full and sends are rejected, else 0.")
FAILED = Family(
    "gantry_embedded_failed",
    Kind.GAUGE,
    "1 after a failed write or sync, when nothing is stored until a restart, else 0.",
)
CORRUPT = Family("gantry_embedded_corrupt", Kind.GAUGE, "Corrupt records found in the log.")
MESSAGES = Family(
    "gantry_embedded_messages",
    Kind.COUNTER,
    "Messages that the embedded broker stored and delivered, without those of system topics.",
    ("direction",),
)


class EmbeddedNode:
    """The embedded broker with its store. It locks its directory until the backend is closed.

    push: sends the broker's requests to clients of the core. check_push: adds the checks of requests to clients of
    the broker's own listener. entrance: how requests that come to that listener reach it through the core.

    Raises StartError (StoreLocked, UnknownFormat, StoreUnusable) if the directory cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        push: Push = relay,
        check_push: Callable[[Push], Push] = unchecked,
    ) -> None:
        embedded = settings.embedded
        try:
            self.store = DurableStore(directory, wall_clock, store_options(embedded))
            broker = broker_settings(embedded, broker_address(settings))
            self.backend = EmbeddedBackend(broker, self.store, push_via(push, check_push), close_silent=close_silent)
            credentials = embedded.super_credentials
            if credentials is not None:
                self.backend.broker.users.add_super_user(credentials.access_key, credentials.secret_key)
        except (StoreLocked, UnknownFormat):
            raise
        except StorageError as error:
            raise StoreUnusable(str(error)) from error
        self.entrance = Entrance(BROKER_REQUESTS, self._serve)
        # The socket of the other workers.
        self.workers: Server | None = None
        if settings.workers > 1:
            self.workers = Server(self.backend, HostPort.parse(worker_socket(directory)))

    def _serve(self, context: Context) -> Reply | None:
        """Serve a request that came to the broker's own listener and has passed the checks."""
        spec = context.known_spec
        if spec.poll is not None:
            limit_poll(context, spec.poll)
        context.broker, context.sent = self.backend.name, time.monotonic()
        return self.backend.handle(context.channel, context.command)

    def client_left(self, channel: Channel) -> None:
        """Remove the clients of a closed connection from their groups."""
        self.backend.broker.channel_closed(channel)

    @property
    def storage_problem(self) -> str | None:
        """Why no messages are stored; None if they are."""
        if self.storage_failure is not None:
            return self.storage_failure
        return "the embedded broker's disk is full: sends are refused until there is room" if self.store.full else None

    @property
    def storage_failure(self) -> str | None:
        """Why nothing is stored until a restart; None if that is not so."""
        failed = self.store.failed
        return None if failed is None else f"the embedded broker's store: {failed}"

    def count_for(self, metrics: Metrics) -> None:
        """Let the metrics of requests count the broker's own dead letters and responses."""
        metrics.requests.dead_letters.exact = True
        self.backend.broker.on_dead_letter = metrics.requests.dead_letters.add
        metrics.envoy.responses = lambda: metrics.requests.served("remoting")

    def read_metrics(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the broker's metrics."""
        broker, store = self.backend.broker, self.store
        yield CREATIONS, by_label(broker.creations.counts)
        yield TOPICS, {(): len(broker.topics)}
        yield LOG_BYTES, {(): store.log_bytes}
        yield FULL, {(): int(store.full)}
        yield FAILED, {(): int(store.failed is not None)}
        yield CORRUPT, {(): store.corrupt}
        yield MESSAGES, by_label(broker.statistics.counts)


@cache
def worker_socket(directory: Path) -> str:
    """Return the address of the socket at which the other workers reach the broker of a directory.

    Only the owner of the process can connect: it trusts the workers to have checked their clients' requests.
    """
    path = directory.absolute() / "workers.sock"
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        # The path of a Unix socket is short; a descriptor's path is, too. It stays open until the process ends.
        path = Path(f"/proc/self/fd/{os.open(directory, os.O_RDONLY | os.O_DIRECTORY)}") / path.name
    return f"unix:{path}"
