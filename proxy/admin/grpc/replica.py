"""ChangeLogLevel and GetProxyRuntimeStats: the replica itself."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.admin.grpc import answers
from proxy.admin.grpc.throughput import Throughput
from proxy.core.client_registry import INNER_PRODUCER
from proxy.observability.metrics.process import product_version
from proxy.operations import replica_state
from proxy.operations.failures import OperationFailed
from proxy.operations.log_levels import ROOT
from proxy.operations.operation import operation
from proxy.operations.replica_state import LevelChange, LevelOrder
from proxy.operations.services import AdminServices
from proxy.operations.values import union

_Level = pb.ChangeLogLevelRequest.Level
_LEVELS = {_Level.DEBUG: "debug", _Level.INFO: "info", _Level.WARN: "warning", _Level.ERROR: "error"}


async def change_log_level(services: AdminServices, request: pb.ChangeLogLevelRequest) -> pb.ChangeLogLevelResponse:
    """Set the root logger's level at all workers, until the next change or the end of the replica.

    TRACE is not available: it is also the value of a request without a level. Raises Refused.
    """
    level = _LEVELS.get(request.level)
    if level is None:
        raise Refused(Code.BAD_REQUEST, "the request names no level, or one that is not supported: DEBUG is the finest")
    order = LevelOrder.model_validate({"level": level})
    try:
        await services.workers.gather(replica_state.change_log_level, LevelChange(ROOT, order))
    except OperationFailed as error:
        raise Refused(Code.PROXY_TIMEOUT, f"the log level is {level}, but {error}") from None
    return pb.ChangeLogLevelResponse(remark=f"the log level is {level}")


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """The load of one worker, or of all. sent, delivered: messages per second; producers, consumers: client ids."""

    sent: float
    delivered: float
    connections: int
    producers: list[str]
    consumers: list[str]

    @classmethod
    def merge(cls, snapshots: Sequence[Self]) -> Self:
        """Add the loads; a client of several workers counts once."""
        return cls(
            sum(stats.sent for stats in snapshots),
            sum(stats.delivered for stats in snapshots),
            sum(stats.connections for stats in snapshots),
            union(stats.producers for stats in snapshots),
            union(stats.consumers for stats in snapshots),
        )


@operation("admin_grpc.stats")
async def read_stats(source: tuple[AdminServices, Throughput], _: None) -> RuntimeStats:
    """Return this worker's load."""
    services, throughput = source
    replica = services.replica
    members = [member for member in replica.registry.local() if not member.representative]
    sent, delivered = throughput.rates()
    return RuntimeStats(
        sent,
        delivered,
        len(replica.channels) + len(replica.grpc.server.connections),
        # Every Java client is also a producer of an internal group.
        [member.client_id for member in members if member.producers.keys() - {INNER_PRODUCER}],
        [member.client_id for member in members if member.consumers],
    )


async def runtime_stats(services: AdminServices, _: pb.GetProxyRuntimeStatsRequest) -> pb.GetProxyRuntimeStatsResponse:
    """Return the replica's load: messages per second, connections, producers and consumers."""
    merged = await services.workers.gather(read_stats, None)
    stats = merged.value
    return pb.GetProxyRuntimeStatsResponse(
        status=answers.ok_status([f"worker {worker} does not answer" for worker in merged.missing]),
        proxy_name=services.replica.settings.replica or socket.gethostname(),
        version=product_version(),
        in_tps=stats.sent,
        out_tps=stats.delivered,
        connections=stats.connections,
        producers=len(set(stats.producers)),
        consumers=len(set(stats.consumers)),
    )
