"""The embedded broker of a replica, put together from the settings: store, backend and, on request, its own socket."""

import socket
from pathlib import Path

from protocol_negotiation.peer import HostPort
from proxy.core.backend import Push
from proxy.core.push_relay import relay
from proxy.embedded.backend import EmbeddedBackend, wall_clock
from proxy.embedded.server import Server, dismiss, pushing
from proxy.embedded.store.durable import DurableStore
from proxy.observability.metrics import Metrics
from proxy.settings.model import ListenSettings, Settings

# What a broker says that nobody outside can reach.
_NOWHERE = HostPort("127.0.0.1", 10911)
_LOCAL = "127.0.0.1"
_WILDCARDS = ("", "0.0.0.0", "::")


class Node:
    """Its directory is ours from here on, until the backend is closed.

    Raises StoreLocked, UnknownFormat, StorageFailed (proxy.embedded.store).
    """

    def __init__(self, settings: Settings, directory: Path, push: Push = relay) -> None:
        wanted = settings.embedded
        self.store = DurableStore(directory, wall_clock, wanted.store_options())
        broker = wanted.broker_settings(own_address(settings))
        self.backend = EmbeddedBackend(broker, self.store, pushing(push), dismiss=dismiss)
        self.server = None if wanted.listen is None else Server(self.backend, HostPort.parse(wanted.listen))

    def watch(self, metrics: Metrics) -> None:
        """Show how the broker is."""
        broker, store = self.backend.broker, self.store
        metrics.envoy.answers = lambda: metrics.requests.served("remoting")
        metrics.gauge("gantry_embedded_topics", "Topics of the embedded broker.", lambda: len(broker.topics))
        metrics.gauge("gantry_embedded_log_bytes", "The embedded broker's log on the disk.", lambda: store.log_bytes)
        metrics.gauge(
            "gantry_embedded_full", "1 while the disk has no room, so that sends are refused.", lambda: int(store.full)
        )
        metrics.gauge(
            "gantry_embedded_corrupt", "Records on the disk that are not what was written.", lambda: store.corrupt
        )
        metrics.counter(
            "gantry_embedded_messages", "Messages that the embedded broker stored and gave.", "direction", broker.counts
        )


def own_address(settings: Settings) -> HostPort:
    """What the broker's routes and message ids name: a client that takes it at its word must arrive there."""
    wanted = settings.embedded
    if wanted.advertise is not None:
        return HostPort.parse(wanted.advertise)
    if wanted.listen is not None:
        return _dialled(HostPort.parse(wanted.listen))
    doors = (HostPort.parse(item.address) for item in settings.listen if _is_common(item))
    return next(map(_dialled, doors), _NOWHERE)


def _is_common(item: ListenSettings) -> bool:
    return item.broker is None and not item.address.startswith("unix:")


def _dialled(address: HostPort) -> HostPort:
    """Where a client gets that is listened for here: message ids have only room for an IP address."""
    name = socket.gethostname() if address.host in _WILDCARDS else address.host
    if HostPort(name, 0).ip is not None:
        return address
    try:
        return HostPort(socket.gethostbyname(name), address.port)
    except OSError:
        return HostPort(_LOCAL, address.port)
