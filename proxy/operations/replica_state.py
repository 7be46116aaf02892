"""The replica itself: version, health and drain state, settings, log levels."""

import platform
import ssl
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from proxy.observability.metrics.process import product_version
from proxy.operations import audit
from proxy.operations.configuration import Setting, SettingChange
from proxy.operations.event_log import now
from proxy.operations.failures import conflict, not_found
from proxy.operations.log_levels import ROOT, LoggerLevel
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries
from proxy.operations.values import Comparable, RequestBody, Rules, Text, Timestamp, at, largest, union


class Version(Comparable):
    """The running version and its start time."""

    MERGE_RULES: ClassVar[Rules] = {"started": min, "uptime": largest, "listeners": union}

    version: str = Field(examples=["0.1.0"])
    python: str = Field(examples=["3.11.9"])
    platform: str
    event_loop: str = Field(examples=["uvloop"])
    openssl: str
    replica: str = Field(description="the replica's name, by default that of its host")
    started: Timestamp
    uptime: float = Field(description="seconds")
    backend: Literal["cluster", "embedded"]
    listeners: list[str] = Field(examples=[["0.0.0.0:8080"]])

    @classmethod
    def merge(cls, items: Sequence[tuple[int, Self]]) -> Self:
        """Merge the fields; list the start of every worker."""
        details = [item.detail(worker, "started", "uptime") for worker, item in items]
        return super().merge(items).model_copy(update={"workers": details})


class ReplicaState(Comparable):
    """The state that operators have set, and the readiness that load balancers see."""

    MERGE_RULES: ClassVar[Rules] = {"ready": all, "draining": any}

    ready: bool
    draining: bool
    forced_failure: str | None


class LogLevel(Comparable):
    """A logger's level."""

    MERGE_KEY = ("name",)
    MERGE_RULES: ClassVar[Rules] = {"changed": any, "remaining": largest}

    name: str = Field(examples=["gantry.cluster"])
    level: str = Field(examples=["debug"])
    changed: bool = Field(description="whether it was set by the admin API")
    remaining: float | None = Field(description="seconds until it is reset; null: not at all")

    @property
    def compared(self) -> object:
        """All but the exact remaining time."""
        return self.level, self.changed, self.remaining is None


class LevelOrder(RequestBody):
    """A level to set."""

    level: Literal["debug", "info", "warning", "error"]
    seconds: float | None = Field(None, gt=0, le=86_400, description="time until it is reset; null: forever")


class ForcedFailure(RequestBody):
    """The reason for a forced health failure."""

    reason: Text = "forced by an operator"


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of the replica's state. reason: of a forced failure."""

    action: Literal["fail", "pass", "drain", "resume"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A logger's new level; None: the level that it had before."""

    logger: str
    order: LevelOrder | None


@operation("replica.version")
async def get_version(services: AdminServices, _: None) -> Entries[Version]:
    """Return the running version."""
    replica = services.replica
    version = Version(
        version=product_version(),
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        event_loop=type(services.loop).__module__.partition(".")[0],
        openssl=ssl.OPENSSL_VERSION,
        replica=services.peers.name,
        started=at(services.started),
        uptime=round(now() - services.started, 3),
        backend="cluster" if replica.settings.embedded.directory is None else "embedded",
        listeners=[str(address) for address in replica.addresses],
    )
    return Entries(services.workers.number, [version])


@operation("replica.change_state", writes=True)
async def change_state(services: AdminServices, change: StateChange) -> Entries[ReplicaState]:
    """Force health to fail or not, start a drain or end it."""
    health, replica = services.health, services.replica
    if change.action == "fail":
        health.forced = change.reason
    elif change.action == "pass":
        health.forced = None
    elif change.action == "drain":
        replica.drain.start()
    else:
        replica.drain.stop()
    # Notify gRPC health watchers first.
    await replica.grpc.set_serving(health.forced is None and not replica.core.drain.announced)
    state = ReplicaState(
        ready=health.report("/readyz").ok, draining=replica.core.drain.draining, forced_failure=health.forced
    )
    return Entries(services.workers.number, [state])


# Settings.


@operation("config.list")
async def list_settings(services: AdminServices, _: None) -> Entries[Setting]:
    """Return all settings."""
    return Entries(services.workers.number, services.configuration.settings())


@operation("config.reload", timeout=REMOTE_TIMEOUT, writes=True)
async def reload_settings(services: AdminServices, dry_run: bool) -> Entries[SettingChange]:
    """Read the settings again and apply them, or only compare. Raises InvalidConfiguration."""
    return Entries(services.workers.number, await services.configuration.reload(dry_run))


# Log levels.


@operation("log_levels.list")
async def list_log_levels(services: AdminServices, _: None) -> Entries[LogLevel]:
    """Return the levels of all loggers."""
    return Entries(services.workers.number, [_level(level) for level in services.log_levels.all()])


@operation("log_levels.change", writes=True)
async def change_log_level(services: AdminServices, change: LevelChange) -> Entries[LogLevel]:
    """Set a logger's level, or reset it. Raises OperationFailed."""
    levels = services.log_levels
    # Python never removes loggers, so that requests must not create any.
    if not levels.exists(change.logger):
        raise not_found(f"there is no logger {change.logger}")
    if change.logger == audit.LOGGER:
        raise conflict("the level of the audit log cannot be changed")
    if change.order is None:
        levels.reset(change.logger)
    else:
        levels.set(change.logger, change.order.level, change.order.seconds)
    return Entries(services.workers.number, [_level(levels.get(change.logger))])


def by_logger(level: LogLevel) -> tuple[Any, ...]:
    """Sort the root logger first."""
    return level.name != ROOT, level.name


def _level(level: LoggerLevel) -> LogLevel:
    return LogLevel(**asdict(level))
