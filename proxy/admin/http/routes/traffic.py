"""Routes of events: the live tap, protocol errors, the audit."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from protos.apache.rocketmq.v2 import service_pb2
from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import (
    INVALID_REQUEST,
    Filter,
    GroupFilter,
    Limit,
    Operations,
    Route,
    TopicFilter,
)
from proxy.core.events import UNKNOWN_CODE
from proxy.operations import events
from proxy.operations.events import AuditEntry, ProtocolError
from proxy.operations.merged_tap import Events, TapQuery
from proxy.operations.paging import DEFAULT_LIMIT
from proxy.operations.request_tap import EventKind, TapEvent, TapFilter
from proxy.operations.traffic_history import HistoryQuery, TrafficHistory, check_name, read_history
from proxy.operations.values import ItemList
from remoting.requests import REQUESTS

# Names that a request may have: see `Observation.code`.
_RPCS = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
_CODES = sorted({*(spec.name for spec in REQUESTS.values()), *_RPCS, UNKNOWN_CODE})

router = APIRouter(prefix="/v1", tags=["traffic"], route_class=Route)


@router.get(
    "/tap",
    summary="Requests as they are answered, as server-sent events",
    description="Events: `request` with a JSON object; `dropped` with the number of requests that were left out.",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "A stream without an end"}},
)
async def tap_requests(
    operations: Operations,
    topic: Filter = None,
    group: Filter = None,
    client_id: Filter = None,
    code: Annotated[
        str | None, Query(description="name of a request code or rpc", json_schema_extra={"enum": [*_CODES]})
    ] = None,
    protocol: Annotated[Literal["remoting", "grpc"] | None, Query()] = None,
    ok: Annotated[bool | None, Query(description="only requests that succeeded, or failed")] = None,
    seconds: Annotated[float | None, Query(gt=0, le=86_400, description="time until the stream ends")] = None,
) -> StreamingResponse:
    if code is not None and code not in _CODES:
        detail = f"there is no request code or rpc {code[:80]}; `unknown` are all other codes"
        raise Refused(422, INVALID_REQUEST, faults=[("query code", detail)])
    query = TapQuery(TapFilter(topic, group, client_id, code, protocol, ok), seconds)
    stream = operations.services.merged_tap.stream(query, operations.worker)
    # Raises OperationFailed where the stream cannot begin.
    return _EventStream(await anext(stream), stream)


class _EventStream(StreamingResponse):
    """Server-sent events; the stream is closed in any case."""

    def __init__(self, first: TapEvent, stream: Events) -> None:
        super().__init__(_encoded(first, stream), media_type="text/event-stream")
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.aclose()


async def _encoded(first: TapEvent, stream: Events) -> AsyncIterator[bytes]:
    yield encode(first)
    async for event in stream:
        yield encode(event)


_COMMENTS = {EventKind.WATCHING: b": watching\n\n", EventKind.KEEP_ALIVE: b": still here\n\n"}


def encode(event: TapEvent) -> bytes:
    """Return a server-sent event."""
    comment = _COMMENTS.get(event.kind)
    if comment is not None:
        return comment
    return b"event: %s\ndata: %s\n\n" % (event.kind.encode(), orjson.dumps(event.data))


@router.get("/history", summary="The last hour: all traffic by 10 s, or that of a topic or a consumer group by minute")
async def get_history(operations: Operations, topic: TopicFilter = None, group: GroupFilter = None) -> TrafficHistory:
    query = HistoryQuery(topic, group)
    merged = await operations.gather(read_history, query)
    if merged.value.quiet:
        await operations.run(check_name, query)
    return merged.mark(merged.value.history())


@router.get("/errors", summary="Recent protocol errors, the latest first")
async def list_protocol_errors(operations: Operations, limit: Limit = DEFAULT_LIMIT) -> ItemList[ProtocolError]:
    merged = await operations.gather(events.list_protocol_errors, limit)
    return merged.mark(merged.value.first(limit))


@router.get("/audit", tags=["operations"], summary="Recent write requests, successful or not, the latest first")
async def list_writes(operations: Operations, limit: Limit = DEFAULT_LIMIT) -> ItemList[AuditEntry]:
    merged = await operations.gather(events.list_writes, limit)
    return merged.mark(merged.value.first(limit))
