"""Connections and clients."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import ClientId, Cursor, Filter, Limit, Replica
from proxy.operations import clients, connections, paging
from proxy.operations.client_tools import RunningInfo, Verification, Verified, running_info, verify
from proxy.operations.clients import Client, Known
from proxy.operations.connections import SORTS, ClosedConnection, Connection, Connections, Raw, Wanted
from proxy.operations.paging import DEFAULT_LIMIT, Order
from proxy.operations.values import Many, Page, Text

router = APIRouter(prefix="/v1", tags=["connections"])
client_router = APIRouter(prefix="/v1", tags=["clients"])

Sort = Literal[
    "age",
    "-age",
    "address",
    "-address",
    "in_flight",
    "-in_flight",
    "bytes_in",
    "-bytes_in",
    "bytes_out",
    "-bytes_out",
    "idle",
    "-idle",
]
# As far as JSON's numbers are exact everywhere.
Number = Annotated[int, Path(ge=1, lt=2**53, description="the connection's number", examples=[17])]


@router.get("/connections", summary="Open connections")
async def list_connections(
    replica: Replica,
    protocol: Annotated[Literal["remoting", "grpc"] | None, Query()] = None,
    tls: Annotated[bool | None, Query()] = None,
    client_id: Filter = None,
    language: Filter = None,
    group: Filter = None,
    listener: Filter = None,
    address: Annotated[str | None, Query(max_length=512, description="host, or host:port")] = None,
    sort: Annotated[Sort, Query(description="with - the greatest first")] = "age",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Connection]:
    known = Connections(replica)
    wanted = Wanted(protocol, tls, client_id, language, listener, address, group)
    order = Order.parse(sort)
    key = SORTS[order.key]

    def place(raw: Raw) -> tuple[object, str]:
        return key(raw), f"{raw.peer.number:019}"

    cut = await paging.cut(known.all(), lambda raw: known.fits(raw, wanted), place, order, limit, cursor)
    return Page(items=await paging.described(cut.items, known.describe), total=cut.total, next=cut.next)


@router.get("/closed-connections", summary="Connections that were closed of late, the latest first")
async def list_closed_connections(replica: Replica, limit: Limit = DEFAULT_LIMIT) -> Many[ClosedConnection]:
    items = [connections.describe_closed(item) for _, item in replica.admin.closed.newest()]
    return Many(items=items[:limit])


@router.get("/connections/{number}", summary="One open connection")
async def get_connection(replica: Replica, number: Number) -> Connection:
    known = Connections(replica)
    return known.describe(_find(known, number))


@router.delete("/connections/{number}", status_code=204, summary="Disconnect: the client may come back at once")
async def disconnect(replica: Replica, number: Number) -> None:
    connections.disconnect(_find(Connections(replica), number))


def _find(known: Connections, number: int) -> Raw:
    raw = known.find(number)
    if raw is None:
        raise Refused(404, f"no open connection has the number {number}")
    return raw


@client_router.get("/clients", summary="Clients that are connected here")
async def list_clients(
    replica: Replica,
    protocol: Annotated[Literal["remoting", "grpc"] | None, Query()] = None,
    language: Filter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Client]:
    def wanted(entry: Known) -> bool:
        return any(
            (protocol is None or channel.protocol == protocol)
            and (language is None or (channel.identity.language or "").upper() == language.upper())
            for channel in entry.channels
        )

    entries = await clients.known(replica, Connections(replica))
    order = Order("client_id", False)
    cut = await paging.cut(entries, wanted, lambda entry: ("", entry.client_id), order, limit, cursor)
    items = await paging.described(cut.items, partial(clients.describe, replica))
    return Page(items=items, total=cut.total, next=cut.next)


@client_router.get("/clients/{client_id}", summary="One client")
async def get_client(replica: Replica, client_id: ClientId) -> Client:
    for entry in await clients.known(replica, Connections(replica), client_id):
        return clients.describe(replica, entry)
    raise Refused(404, f"no client {client_id} is connected here")


@client_router.get(
    "/clients/{client_id}/running-info", summary="Ask a consumer, here or elsewhere, how it is; with its stacks or not"
)
async def get_running_info(
    replica: Replica,
    client_id: ClientId,
    group: Annotated[Text, Query(description="a consumer group that it is in", examples=["orders-billing"])],
    stack: Annotated[bool, Query(description="its threads' stacks as well")] = False,
) -> RunningInfo:
    return await running_info(replica, group, client_id, stack)


@client_router.post(
    "/clients/{client_id}/verify",
    tags=["operations"],
    summary="Have a consumer consume a message, and say what came of it",
)
async def verify_message(replica: Replica, client_id: ClientId, wanted: Verification) -> Verified:
    return await verify(replica, client_id, wanted)
