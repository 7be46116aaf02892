"""The settings of each worker, and the settings that several workers cannot share."""

from dataclasses import dataclass

from protocol_negotiation.peer import HostPort
from proxy.backends.embedded_node import worker_socket
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.loading import ConfigError, Sources
from proxy.settings.model import Settings
from proxy.workers.worker_ports import check_ports


def check_workers(settings: Settings) -> None:
    """Raise ConfigError if several workers cannot share the settings."""
    if settings.workers == 1:
        return
    for item in settings.listen:
        if item.address.startswith("unix:"):
            raise ConfigError(f"listen: {item.address} cannot be shared by {settings.workers} workers: listen on TCP")
        if not HostPort.parse(item.address).port:
            raise ConfigError(
                f"listen: {item.address} would be a different port for each of {settings.workers} workers"
            )
    check_ports(settings)


@dataclass(frozen=True)
class WorkerSources(Sources):
    """The sources of one worker's settings; a reload gives that worker's settings again."""

    number: int = 0

    def load(self) -> Settings:
        """Return the worker's current settings. Raises ConfigError."""
        settings = super().load()
        check_workers(settings)
        return of_worker(settings, self.number)


def of_worker(settings: Settings, number: int) -> Settings:
    """Return the settings of one worker, numbered from 0. The first worker has the embedded broker.

    The supervisor serves the metrics. Each worker's admin API and Admin gRPC service have ports of their own: the
    configured ports plus the worker's number.
    """
    changes: dict[str, object] = {"metrics_listen": None}
    if number:
        changes["admin"] = settings.admin.of_worker(number)
    if number and settings.embedded.directory is not None:
        changes["embedded"] = EmbeddedSettings()
        # The same as for clients of the first worker.
        changes["tools"] = settings.permitted_tools
        changes["cluster"] = settings.cluster.model_copy(
            update={"namesrv": [worker_socket(settings.embedded.directory)]}
        )
    return settings.model_copy(update=changes)
