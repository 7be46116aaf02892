"""Routes of the replica itself: version, configuration, log levels."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from proxy.admin.http.routes.common import Operations, Route
from proxy.operations import replica_state
from proxy.operations.configuration import Reload, Setting
from proxy.operations.replica_state import LevelChange, LevelOrder, LogLevel, Version
from proxy.operations.values import ItemList, RequestBody

router = APIRouter(prefix="/v1", tags=["replica"], route_class=Route)

LoggerName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,200}$", examples=["gantry.cluster"])]


class ReloadOrder(RequestBody):
    """Options of a reload."""

    dry_run: bool = Field(False, description="only report what would change")


_RELOAD = ReloadOrder()


@router.get("/version", summary="Version, build, and start time")
async def get_version(operations: Operations) -> Version:
    merged = await operations.gather(replica_state.get_version, None)
    return merged.mark(merged.value.single)


@router.get("/config", summary="The configuration in force, secrets masked, with the origin of each value")
async def get_config(operations: Operations) -> ItemList[Setting]:
    merged = await operations.gather(replica_state.list_settings, None)
    return merged.mark(merged.value.item_list)


@router.post(
    "/config/reload",
    tags=["operations"],
    summary="Read the configuration again: changed settings, and which of them are in force now",
)
async def reload_config(operations: Operations, order: ReloadOrder = _RELOAD) -> Reload:
    merged = await operations.gather(replica_state.reload_settings, order.dry_run)
    return merged.mark(Reload(dry_run=order.dry_run, changes=merged.value.items))


@router.get("/log-levels", summary="Loggers and their levels")
async def list_log_levels(operations: Operations) -> ItemList[LogLevel]:
    merged = await operations.gather(replica_state.list_log_levels, None)
    return merged.mark(ItemList(items=sorted(merged.value.items, key=replica_state.by_logger)))


@router.put("/log-levels/{logger}", tags=["operations"], summary="Set a logger's level, for a time or forever")
async def set_log_level(operations: Operations, logger: LoggerName, order: LevelOrder) -> LogLevel:
    merged = await operations.gather(replica_state.change_log_level, LevelChange(logger, order))
    return merged.mark(merged.value.single)


@router.delete("/log-levels/{logger}", tags=["operations"], summary="Reset a logger's level")
async def reset_log_level(operations: Operations, logger: LoggerName) -> LogLevel:
    merged = await operations.gather(replica_state.change_log_level, LevelChange(logger, None))
    return merged.mark(merged.value.single)
