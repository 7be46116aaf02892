"""Routes of connections and clients."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from proxy.admin.http.routes.common import ClientId, Cursor, Filter, Limit, Operations, Route
from proxy.operations import client_tools, clients, connections
from proxy.operations.client_tools import ClientQuestion, RunningInfo, Verification, Verified, VerifyOrder
from proxy.operations.clients import Client, ClientQuery
from proxy.operations.connections import ClosedConnection, Connection, ConnectionFilter, ConnectionQuery
from proxy.operations.paging import DEFAULT_LIMIT, PageRequest
from proxy.operations.values import ItemList, Page, Text

router = APIRouter(prefix="/v1", tags=["connections"], route_class=Route)
client_router = APIRouter(prefix="/v1", tags=["clients"], route_class=Route)

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
Number = Annotated[
    str, Path(pattern=r"^([0-9]{1,5}:)?[1-9][0-9]{0,15}$", description="the connection's number", examples=[17])
]


@router.get("/connections", summary="Open connections")
async def list_connections(
    operations: Operations,
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
    page = PageRequest.parse(sort, limit, cursor)
    query = ConnectionFilter(protocol, tls, client_id, language, listener, address, group)
    merged = await operations.gather(connections.list_connections, ConnectionQuery(query, page))
    return merged.mark(merged.value.page(page))


@router.get("/closed-connections", summary="Recently closed connections, the latest first")
async def list_closed_connections(operations: Operations, limit: Limit = DEFAULT_LIMIT) -> ItemList[ClosedConnection]:
    merged = await operations.gather(connections.list_closed_connections, limit)
    return merged.mark(merged.value.first(limit))


@router.get("/connections/{number}", summary="One open connection")
async def get_connection(operations: Operations, number: Number) -> Connection:
    worker, own_number = operations.locate(number)
    return await operations.run(connections.get_connection, own_number, worker)


@router.delete("/connections/{number}", status_code=204, summary="Disconnect; the client may reconnect at once")
async def disconnect(operations: Operations, number: Number) -> None:
    worker, own_number = operations.locate(number)
    await operations.run(connections.disconnect, own_number, worker)


@client_router.get("/clients", summary="Clients that are connected here")
async def list_clients(
    operations: Operations,
    protocol: Annotated[Literal["remoting", "grpc"] | None, Query()] = None,
    language: Filter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Client]:
    page = PageRequest.parse("client_id", limit, cursor)
    merged = await operations.gather(clients.list_clients, ClientQuery(protocol, language, page))
    return merged.mark(merged.value.page(page, lambda client: client))


@client_router.get("/clients/{client_id}", summary="One client")
async def get_client(operations: Operations, client_id: ClientId) -> Client:
    merged = await operations.gather(clients.get_client, client_id)
    return merged.mark(merged.value.single)


@client_router.get(
    "/clients/{client_id}/running-info",
    summary="A consumer's own state, from here or elsewhere; thread stacks if asked",
)
async def get_running_info(
    operations: Operations,
    client_id: ClientId,
    group: Annotated[Text, Query(description="a consumer group of the client", examples=["orders-billing"])],
    stack: Annotated[bool, Query(description="with its thread stacks")] = False,
) -> RunningInfo:
    question = ClientQuestion(group, client_id, stack)
    return await operations.run(client_tools.running_info, question, await _holder(operations, client_id))


@client_router.post(
    "/clients/{client_id}/verify",
    tags=["operations"],
    summary="Have a consumer consume a message, and return its result",
)
async def verify_message(operations: Operations, client_id: ClientId, message: Verification) -> Verified:
    order = VerifyOrder(client_id, message)
    return await operations.run(client_tools.verify, order, await _holder(operations, client_id))


async def _holder(operations: Operations, client_id: str) -> int | None:
    """Return the worker that the client is connected to, if there is one."""
    merged = await operations.gather(clients.find_holders, client_id)
    return next(iter(merged.value.workers), None)
