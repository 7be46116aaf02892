"""Routes of users and policies."""

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

from fastapi import APIRouter, Path, Query

from proxy.admin.http.routes.common import Operations, Route
from proxy.operations import users
from proxy.operations.users import (
    CreatedUser,
    Creation,
    DecisionQuery,
    DecisionReply,
    GrantOrder,
    PolicyOrder,
    PolicyRemoval,
    StoreName,
    Update,
    User,
    UserDetail,
    UserOrder,
    UserQuery,
    UserUpdate,
)
from proxy.operations.values import ItemList

router = APIRouter(prefix="/v1", tags=["users"], route_class=Route)

UserName = Annotated[
    str, Path(pattern=r"^@?[A-Za-z0-9_.@-]{1,128}$", description="a user, or @ and a group", examples=["alice"])
]
StoreChoice = Annotated[
    StoreName | None, Query(alias="store", description="the users file or the brokers; default: the only one in use")
]
Resource = Annotated[str, Query(min_length=1, max_length=512, examples=["Topic:orders"])]


@router.get("/users", summary="Users and groups of all sources in use")
async def list_users(operations: Operations, store: StoreChoice = None) -> ItemList[User]:
    return ItemList(items=await operations.run(users.list_users, store))


@router.post("/users", tags=["operations"], summary="Create a user or a group")
async def create_user(operations: Operations, order: UserOrder, store: StoreChoice = None) -> CreatedUser:
    return await operations.run(users.create_user, Creation(order, store))


@router.get("/users/{user}", summary="One user or group with its policies")
async def get_user(operations: Operations, user: UserName, store: StoreChoice = None) -> UserDetail:
    return await operations.run(users.get_user, UserQuery(user, store))


@router.patch("/users/{user}", tags=["operations"], summary="Change a user: role, groups, secret, enabled, expires")
async def update_user(
    operations: Operations, user: UserName, update: UserUpdate, store: StoreChoice = None
) -> UserDetail:
    return await operations.run(users.update_user, Update(user, update, store))


@router.delete(
    "/users/{user}", tags=["operations"], status_code=204, summary="Delete a user or a group with its policies"
)
async def delete_user(operations: Operations, user: UserName, store: StoreChoice = None) -> None:
    await operations.run(users.delete_user, UserQuery(user, store))


@router.post("/users/{user}/policies", tags=["operations"], summary="Add a policy")
async def grant(operations: Operations, user: UserName, order: PolicyOrder, store: StoreChoice = None) -> UserDetail:
    return await operations.run(users.grant, GrantOrder(user, order, store))


@router.delete("/users/{user}/policies", tags=["operations"], summary="Remove a policy, or some of its actions")
async def revoke(
    operations: Operations,
    user: UserName,
    resource: Resource,
    action: Annotated[list[str] | None, Query(max_length=16, description="actions to remove; default: all")] = None,
    store: StoreChoice = None,
) -> UserDetail:
    return await operations.run(users.revoke, PolicyRemoval(user, resource, action or [], store))


@router.get("/users/{user}/decision", summary="Whether a user has a permission, and by which policy")
async def decide(
    operations: Operations,
    user: UserName,
    action: Annotated[str, Query(max_length=16, examples=["Sub"])],
    resource: Resource,
    address: Annotated[
        IPv4Address | IPv6Address | None, Query(description="address of the client; default: 127.0.0.1")
    ] = None,
) -> DecisionReply:
    return await operations.run(users.decide, DecisionQuery(user, action, resource, str(address or "127.0.0.1")))
