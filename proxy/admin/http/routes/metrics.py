"""Metrics for Prometheus, statistics as Envoy shows them."""

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import Replica
from proxy.observability.metrics.stats import BadQuery, Format, Query

router = APIRouter(tags=["metrics"])

_OPENMETRICS = "application/openmetrics-text"


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}, _OPENMETRICS: {}}, "description": "In Prometheus' text format"}},
)
async def metrics(request: Request, replica: Replica) -> Response:
    return await _exposition(request, replica)


async def _exposition(request: Request, replica: Replica) -> Response:
    """With thousands of topics it takes a while to write: traffic goes on meanwhile."""
    registry = CollectorRegistry()
    registry.register(replica.metrics)
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    content = await anyio.to_thread.run_sync(encode, registry)
    return Response(content, headers={"content-type": kind})


@router.get(
    "/stats",
    summary="Statistics under the names of Envoy's RocketMQ filter, in Envoy's text or JSON form",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}, "application/json": {}}, "description": "The statistics"}},
)
async def stats(request: Request, replica: Replica) -> Response:
    try:
        query = Query.parse(request.query_params)
    except BadQuery as error:
        raise Refused(400, str(error)) from None
    if query.format is Format.PROMETHEUS:
        return await _exposition(request, replica)
    kind, content = replica.metrics.stats(query)
    return Response(content, headers={"content-type": kind})
