"""ChangeLogLevel and GetProxyRuntimeStats: the replica itself."""

import socket
from typing import Any

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.admin.grpc import answers, worker_queries
from proxy.admin.grpc.throughput import Throughput
from proxy.admin.replica import AdminReplica
from proxy.core.client_registry import INNER_PRODUCER
from proxy.observability.metrics.process import product_version
from proxy.operations.log_levels import ROOT

# What workers ask each other.
LEVEL, STATS = "admin_grpc.level", "admin_grpc.stats"
_Level = pb.ChangeLogLevelRequest.Level
_LEVELS = {_Level.DEBUG: "debug", _Level.INFO: "info", _Level.WARN: "warning", _Level.ERROR: "error"}


async def change_log_level(replica: AdminReplica, request: pb.ChangeLogLevelRequest) -> pb.ChangeLogLevelResponse:
    """Set the level of everything but what has one of its own, until it is set again or the replica ends.

    TRACE there is none; and it is what a request that names no level says. Raises Refused.
    """
    level = _LEVELS.get(request.level)
    if level is None:
        raise Refused(Code.BAD_REQUEST, "the request names no level, or one that is not there: DEBUG is the finest")
    set_level(replica, level)
    gathered = await worker_queries.gather(replica, LEVEL, level)
    if gathered.missing:
        raise Refused(Code.PROXY_TIMEOUT, f"the log level is {level}, but {'; '.join(gathered.missing)}")
    return pb.ChangeLogLevelResponse(remark=f"the log level is {level}")


def set_level(replica: AdminReplica, level: str) -> None:
    """Set the level of this process; the answer to `LEVEL`."""
    replica.admin.log_levels.set(ROOT, level, None)


def told(throughput: Throughput, replica: AdminReplica, _: object) -> dict[str, Any]:
    """What this process has to do; the answer to `STATS`."""
    members = replica.registry.local()
    sent, delivered = throughput.rates()
    return {
        "sent": sent,
        "delivered": delivered,
        "connections": len(replica.channels) + len(replica.grpc.server.connections),
        # Every Java client is a producer of what it sends for itself.
        "producers": [member.client_id for member in members if member.producers.keys() - {INNER_PRODUCER}],
        "consumers": [member.client_id for member in members if member.consumers],
    }


async def runtime_stats(
    throughput: Throughput, replica: AdminReplica, _: pb.GetProxyRuntimeStatsRequest
) -> pb.GetProxyRuntimeStatsResponse:
    """What this replica has to do: messages per second, connections, and clients by what they are."""
    gathered = await worker_queries.gather(replica, STATS, None)
    parts = [told(throughput, replica, None), *gathered.answers.values()]
    return pb.GetProxyRuntimeStatsResponse(
        status=answers.well(gathered.missing),
        proxy_name=replica.settings.replica or socket.gethostname(),
        version=product_version(),
        in_tps=sum(part["sent"] for part in parts),
        out_tps=sum(part["delivered"] for part in parts),
        connections=sum(part["connections"] for part in parts),
        producers=len({client_id for part in parts for client_id in part["producers"]}),
        consumers=len({client_id for part in parts for client_id in part["consumers"]}),
    )
