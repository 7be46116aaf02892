"""Routes of metrics, for Prometheus and in the form of Envoy's statistics."""

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import Services
from proxy.observability.metrics.stats import BadQuery, Format, Query

router = APIRouter(tags=["metrics"])

_OPENMETRICS = "application/openmetrics-text"


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}, _OPENMETRICS: {}}, "description": "In the Prometheus text format"}},
)
async def metrics(request: Request, services: Services) -> Response:
    return await _exposition(request, services)


async def _exposition(request: Request, services: Services) -> Response:
    """Encode in a thread: with thousands of topics it takes a while."""
    registry = CollectorRegistry()
    registry.register(services.replica.metrics)
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    content = await anyio.to_thread.run_sync(encode, registry)
    return Response(content, headers={"content-type": kind})


@router.get(
    "/stats",
    summary="Statistics under the names of Envoy's RocketMQ filter, in Envoy's text or JSON form",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}, "application/json": {}}, "description": "The statistics"}},
)
async def stats(request: Request, services: Services) -> Response:
    try:
        query = Query.parse(request.query_params)
    except BadQuery as error:
        raise Refused(400, str(error)) from None
    if query.format is Format.PROMETHEUS:
        return await _exposition(request, services)
    kind, content = services.replica.metrics.stats(query)
    return Response(content, headers={"content-type": kind})
