"""What each worker has of the settings, and which settings cannot be shared."""

from dataclasses import dataclass

from protocol_negotiation.peer import HostPort
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.loading import ConfigError, Sources
from proxy.settings.model import Settings

_LOCAL = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def check_workers(settings: Settings) -> None:
    """Several workers can do what is asked for. Raises ConfigError."""
    if settings.workers == 1:
        return
    for item in settings.listen:
        if item.address.startswith("unix:"):
            raise ConfigError(f"listen: {item.address} cannot be shared by {settings.workers} workers: listen on TCP")
        if not HostPort.parse(item.address).port:
            raise ConfigError(f"listen: {item.address} would be another port for each of {settings.workers} workers")
    if settings.embedded.directory is not None and settings.embedded.listen is None:
        raise ConfigError(
            "workers: the embedded broker is in one of them, and the others have to reach it: "
            "set embedded.listen (--embedded-listen HOST:PORT), or workers = 1"
        )


@dataclass(frozen=True)
class WorkerSources(Sources):
    """Where the settings of one worker come from: read again, they are still that worker's."""

    number: int = 0

    def load(self) -> Settings:
        """The worker's settings as the sources are now. Raises ConfigError."""
        settings = super().load()
        check_workers(settings)
        return of_worker(settings, self.number)


def of_worker(settings: Settings, number: int) -> Settings:
    """The settings of one worker, numbered from 0, of which the first has the embedded broker.

    Metrics are served by the parent; each worker's admin API, and its Admin gRPC service, has a port of its own: the
    first one's, and those after.
    """
    changes: dict[str, object] = {"metrics_listen": None}
    if number:
        ports = {"listen": settings.admin.address, "grpc": settings.admin.grpc_address}
        own = {name: str(HostPort(it.host, it.port + number)) for name, it in ports.items() if it and it.port}
        changes["admin"] = settings.admin.model_copy(update=own)
    if number and settings.embedded.directory is not None:
        changes["embedded"] = EmbeddedSettings()
        # As for whoever is served by the first.
        changes["tools"] = settings.permitted_tools
        changes["cluster"] = settings.cluster.model_copy(update={"namesrv": [_broker(settings)]})
    return settings.model_copy(update=changes)


def _broker(settings: Settings) -> str:
    """Where the first worker's broker is, seen from the others."""
    listen = settings.embedded.listen
    assert listen is not None
    where = HostPort.parse(listen)
    return str(HostPort(_LOCAL.get(where.host, where.host), where.port))
