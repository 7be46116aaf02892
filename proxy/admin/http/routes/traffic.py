"""What happens: the live tap, protocol errors, the audit."""

from asyncio import TimerHandle
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.types import Receive, Scope, Send

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import Filter, Limit, Replica
from proxy.operations.audit import Write
from proxy.operations.event_log import Trouble
from proxy.operations.paging import DEFAULT_LIMIT
from proxy.operations.request_tap import RequestTap, Wanted, Watcher, events
from proxy.operations.values import Answer, Many, at

router = APIRouter(prefix="/v1", tags=["traffic"])


class ProtocolError(Answer):
    """Bytes of a client that were not what they should be."""

    time: datetime
    where: str = Field(description="negotiation, remoting or grpc", examples=["negotiation"])
    kind: str = Field(examples=["unknown"])
    listener: str
    address: str = Field(examples=["192.0.2.7:51234"])
    via: str | None
    text: str
    first_bytes: str = Field(description="up to 16, in hex; of gRPC connections none are kept", examples=["16 03 01"])


class AuditEntry(Answer):
    """A write that somebody asked for."""

    time: datetime
    caller: str = Field(description="the token's name, the certificate's subject, local or anonymous")
    address: str
    method: str
    path: str
    query: str
    what: Any = Field(description="the request's body, where it is short and JSON")
    status: int


@router.get(
    "/tap",
    summary="Requests as they are answered, as server-sent events",
    description="Events `request` with a JSON object; `dropped` with how many did not fit in between.",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "A stream without an end"}},
)
async def tap_requests(
    replica: Replica,
    topic: Filter = None,
    group: Filter = None,
    client_id: Filter = None,
    code: Annotated[str | None, Query(max_length=64, description="name of a request code or rpc")] = None,
    protocol: Annotated[Literal["remoting", "grpc"] | None, Query()] = None,
    ok: Annotated[bool | None, Query(description="only those that did not fail, or did")] = None,
    seconds: Annotated[float | None, Query(gt=0, le=86_400, description="after which it ends")] = None,
) -> StreamingResponse:
    tap = replica.admin.tap
    watcher = tap.open(Wanted(topic, group, client_id, code, protocol, ok))
    if watcher is None:
        raise Refused(429, "there are as many streams as admin.streams allows", {"Retry-After": "5"})
    timer = None if seconds is None else replica.admin.loop.call_later(seconds, watcher.close)
    return _Stream(tap, watcher, timer)


class _Stream(StreamingResponse):
    """A watcher's stream; however it ends, or does not even begin, the watcher leaves."""

    def __init__(self, tap: RequestTap, watcher: Watcher, timer: TimerHandle | None) -> None:
        super().__init__(events(watcher), media_type="text/event-stream")
        self._tap = tap
        self._watcher = watcher
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._tap.leave(self._watcher)
            if self._timer is not None:
                self._timer.cancel()


@router.get("/errors", summary="Protocol errors of late, the latest first")
async def list_protocol_errors(replica: Replica, limit: Limit = DEFAULT_LIMIT) -> Many[ProtocolError]:
    return Many(items=[_error(item) for _, item in replica.admin.troubles.newest()][:limit])


def _error(item: Trouble) -> ProtocolError:
    return ProtocolError(
        time=at(item.at),
        where=item.where,
        kind=item.kind,
        listener=item.listener,
        address=item.address,
        via=item.via,
        text=item.text,
        first_bytes=item.first.hex(" "),
    )


@router.get("/audit", tags=["operations"], summary="Writes of late, done or refused, the latest first")
async def list_writes(replica: Replica, limit: Limit = DEFAULT_LIMIT) -> Many[AuditEntry]:
    return Many(items=[_write(item) for item in replica.admin.audit.newest()[:limit]])


def _write(item: Write) -> AuditEntry:
    return AuditEntry(
        time=at(item.at),
        caller=item.caller,
        address=item.address,
        method=item.method,
        path=item.path,
        query=item.query,
        what=item.what,
        status=item.status,
    )
