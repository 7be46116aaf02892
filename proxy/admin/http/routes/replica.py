"""The replica itself: version, configuration, log levels."""

import platform
import ssl
import sys
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import Replica
from proxy.observability.metrics.process import product_version
from proxy.operations import audit
from proxy.operations.configuration import Reload, Setting
from proxy.operations.event_log import now
from proxy.operations.log_levels import LoggerLevel
from proxy.operations.values import Answer, Many, Question, at

router = APIRouter(prefix="/v1", tags=["replica"])

LoggerName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,200}$", examples=["gantry.cluster"])]


class Version(Answer):
    """What runs here, and since when."""

    version: str = Field(examples=["0.1.0"])
    python: str = Field(examples=["3.11.9"])
    platform: str
    event_loop: str = Field(examples=["uvloop"])
    openssl: str
    replica: str = Field(description="the replica's name, where it has one")
    started: datetime
    uptime: float = Field(description="seconds")
    backend: Literal["cluster", "embedded"]
    listeners: list[str] = Field(examples=[["0.0.0.0:8080"]])


class ReloadOrder(Question):
    """How to reload."""

    dry_run: bool = Field(False, description="only say what would change")


_FOR_GOOD = ReloadOrder()


class LogLevel(Answer):
    """A logger's level."""

    name: str = Field(examples=["gantry.cluster"])
    level: str = Field(examples=["debug"])
    changed: bool = Field(description="whether it was set here")
    remaining: float | None = Field(description="seconds until it is reset; null: it is not")


class LevelOrder(Question):
    """A level to set."""

    level: Literal["debug", "info", "warning", "error"]
    seconds: float | None = Field(None, gt=0, le=86_400, description="after which it is reset; null: never")


@router.get("/version", summary="Version, build, and since when")
async def get_version(replica: Replica) -> Version:
    return Version(
        version=product_version(),
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        event_loop=type(replica.admin.loop).__module__.partition(".")[0],
        openssl=ssl.OPENSSL_VERSION,
        replica=replica.settings.replica,
        started=at(replica.admin.started),
        uptime=round(now() - replica.admin.started, 3),
        backend="cluster" if replica.settings.embedded.directory is None else "embedded",
        listeners=[str(address) for address in replica.addresses],
    )


@router.get("/config", summary="The configuration in force, secrets masked, with the origin of each value")
async def get_config(replica: Replica) -> Many[Setting]:
    return Many(items=replica.admin.configuration.settings())


@router.post(
    "/config/reload",
    tags=["operations"],
    summary="Read the configuration again: what has changed, and what of that is in force from now on",
)
async def reload_config(replica: Replica, order: ReloadOrder = _FOR_GOOD) -> Reload:
    return await replica.admin.configuration.reload(order.dry_run)


@router.get("/log-levels", summary="Loggers and their levels")
async def list_log_levels(replica: Replica) -> Many[LogLevel]:
    return Many(items=[_level(item) for item in replica.admin.log_levels.all()])


@router.put("/log-levels/{logger}", tags=["operations"], summary="Set a logger's level, for good or for a while")
async def set_log_level(replica: Replica, logger: LoggerName, order: LevelOrder) -> LogLevel:
    levels = replica.admin.log_levels
    _check(replica, logger)
    levels.set(logger, order.level, order.seconds)
    return _level(levels.one(logger))


@router.delete("/log-levels/{logger}", tags=["operations"], summary="Give a logger its level back")
async def reset_log_level(replica: Replica, logger: LoggerName) -> LogLevel:
    levels = replica.admin.log_levels
    _check(replica, logger)
    levels.reset(logger)
    return _level(levels.one(logger))


def _check(replica: Replica, logger: str) -> None:
    # Loggers are never forgotten, so that callers must not make any.
    if not replica.admin.log_levels.knows(logger):
        raise Refused(404, f"there is no logger {logger}")
    if logger == audit.LOGGER:
        raise Refused(409, "what is audited is always logged")


def _level(item: LoggerLevel) -> LogLevel:
    return LogLevel(name=item.name, level=item.level, changed=item.changed, remaining=item.remaining)
