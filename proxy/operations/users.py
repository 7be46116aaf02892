"""Users and policies: those of the sources in use, and changes of the stores that can be changed."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import anyio.to_thread
from pydantic import AwareDatetime, Field, StrictBool

from proxy.auth.assembly import users_cipher
from proxy.auth.policy import Role
from proxy.auth.sources.source import AuthError
from proxy.auth.stores.brokers import Ask, BrokersStore
from proxy.auth.stores.store import (
    Grant,
    NewUser,
    NotInStore,
    PolicyEntry,
    Store,
    StoreError,
    UserChange,
    UserEntry,
    action_names,
    explain,
)
from proxy.auth.stores.users_file import UsersFileStore
from proxy.core.handlers.users import READS, change, query
from proxy.operations import operator_channel
from proxy.operations.failures import Failure, FailureKind, OperationFailed, conflict, not_found
from proxy.operations.operation import REMOTE_TIMEOUT, operation
from proxy.operations.services import AdminServices
from proxy.operations.values import Answer, RequestBody, Timestamp
from remoting.codes import RequestCode, ResponseCode

_Result = TypeVar("_Result")
SourceName = Literal["file", "plain_acl", "brokers"]
StoreName = Literal["file", "brokers"]
RoleName = Literal["normal", "operator", "super"]
_Secret = Annotated[str, Field(min_length=6, max_length=256)]
_Subject = Annotated[str, Field(pattern=r"^@?[A-Za-z0-9_.@-]{1,128}$")]
_Texts = Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=100)]
_EXPIRES = "2030-01-31T12:00:00Z"
_RESOURCE = "Topic:NAME, Group:NAME, Cluster:NAME, with * at the end for a prefix, or *"


class User(Answer):
    """A user, or a group of users, whose name begins with @."""

    name: str = Field(examples=["alice"])
    source: SourceName = Field(description="where it is kept; plain_acl cannot be changed")
    role: RoleName
    groups: list[str] = Field(examples=[["billing"]])
    enabled: bool
    policies: int = Field(description="number of its own policies")
    expires: Timestamp | None = Field(None, description="when the user is disabled; null: never")


class Policy(Answer):
    """A policy of a user or group."""

    effect: Literal["allow", "deny"]
    actions: list[str] = Field(examples=[["Pub", "Sub"]])
    resources: list[str] = Field(examples=[["Topic:orders"]])
    sources: list[str] = Field(description="networks of the clients; none: all", examples=[["10.0.0.0/8"]])
    default: bool = Field(description="whether it applies only where no other policy does")


class UserDetail(User):
    """A user with its policies."""

    entries: list[Policy]


class UserOrder(RequestBody):
    """A user, or a group, to be created."""

    name: _Subject = Field(examples=["alice"])
    role: RoleName = "normal"
    groups: _Texts = Field([])
    secret: _Secret | None = Field(
        None, repr=False, description="secret key; default: one is generated and returned, once"
    )
    password: _Secret | None = Field(
        None, repr=False, description="password for this API, stored as a scrypt hash; only in the users file"
    )
    expires: AwareDatetime | None = Field(
        None, description="when the user is to be disabled, with a zone; only in the users file", examples=[_EXPIRES]
    )


class CreatedUser(Answer):
    """A created user."""

    name: str
    source: StoreName
    secret_key: str | None = Field(repr=False, description="the generated secret key; null if the request had one")


class UserUpdate(RequestBody):
    """Changes of a user; null leaves a value as it is."""

    role: RoleName | None = None
    groups: _Texts | None = None
    enabled: StrictBool | None = None
    secret: _Secret | None = Field(None, repr=False, description="the new secret key")
    password: _Secret | None = Field(None, repr=False, description="the new password for this API")
    expires: AwareDatetime | Literal[""] | None = Field(
        None, description='when the user is to be disabled, with a zone; "": never', examples=[_EXPIRES]
    )


class PolicyOrder(RequestBody):
    """A policy to be added."""

    actions: _Texts = Field(description="Pub, Sub, Get, List, Create, Update, Delete or All", examples=[["Pub", "Sub"]])
    resource: str = Field(min_length=1, max_length=512, description=_RESOURCE, examples=["Topic:orders"])
    effect: Literal["allow", "deny"] = "allow"
    sources: _Texts = Field([], description="networks of the clients; none: all", examples=[["10.0.0.0/8"]])


class DecisionReply(Answer):
    """The decision about an action of a user."""

    allowed: bool
    reason: str = Field(description="the policy or role that decides", examples=["no rule applies"])


class UserQuery(NamedTuple):
    """A user, and the store; None: the only one."""

    name: str
    store: StoreName | None


@dataclass(frozen=True, slots=True)
class Creation:
    """An order for a store."""

    order: UserOrder
    store: StoreName | None


@dataclass(frozen=True, slots=True)
class Update:
    """Changes of a user in a store."""

    name: str
    update: UserUpdate
    store: StoreName | None


@dataclass(frozen=True, slots=True)
class GrantOrder:
    """A policy for a user in a store."""

    name: str
    order: PolicyOrder
    store: StoreName | None


@dataclass(frozen=True, slots=True)
class PolicyRemoval:
    """Actions (none: all) on a resource that a user is to lose in a store."""

    name: str
    resource: str
    actions: list[str]
    store: StoreName | None


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """A question about a decision."""

    user: str
    action: str
    resource: str
    address: str


@operation("users.list", timeout=REMOTE_TIMEOUT, merged=False)
async def list_users(services: AdminServices, store: StoreName | None) -> list[User]:
    """Return the users and groups of all sources in use, or of one store."""
    users = [
        _user(name, entry)
        for name in ([store] if store is not None else _stores(services))
        for entry in await _run(services, name, lambda found: found.users())
    ]
    if store is None:
        users += [User(**user.model_dump(exclude={"entries"})) for user in _plain_users(services)]
    return users


@operation("users.get", timeout=REMOTE_TIMEOUT, merged=False)
async def get_user(services: AdminServices, query: UserQuery) -> UserDetail:
    """Return a user with its policies."""
    for name in [query.store] if query.store is not None else _stores(services):
        for entry in await _run(services, name, lambda store: store.users()):
            if entry.user == query.name:
                policies = await _run(services, name, lambda store: store.policies(query.name))
                return UserDetail(**_user(name, entry).model_dump(), entries=list(map(_policy, policies)))
    for user in _plain_users(services) if query.store is None else ():
        if user.name == query.name:
            return user
    raise not_found(f"there is no user {query.name}")


@operation("users.create", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def create_user(services: AdminServices, creation: Creation) -> CreatedUser:
    """Create a user or group."""
    name, order = _chosen(services, creation.store), creation.order
    user = NewUser(
        order.name, Role(order.role), tuple(order.groups), order.secret, order.password, expires=order.expires
    )
    secret = await _change(services, name, lambda store: store.create(user))
    return CreatedUser(name=order.name, source=name, secret_key=secret)


@operation("users.update", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def update_user(services: AdminServices, update: Update) -> UserDetail:
    """Change a user."""
    name, changes = _chosen(services, update.store), update.update
    change = UserChange(
        role=None if changes.role is None else Role(changes.role),
        groups=None if changes.groups is None else tuple(changes.groups),
        enabled=changes.enabled,
        secret=changes.secret,
        password=changes.password,
        expires=changes.expires,
    )
    await _change(services, name, lambda store: store.update(update.name, change))
    return await get_user(services, UserQuery(update.name, name))


@operation("users.delete", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def delete_user(services: AdminServices, query: UserQuery) -> None:
    """Delete a user or group with its policies."""
    await _change(services, _chosen(services, query.store), lambda store: store.delete(query.name))


@operation("users.grant", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def grant(services: AdminServices, order: GrantOrder) -> UserDetail:
    """Add a policy."""
    name, policy = _chosen(services, order.store), order.order
    added = Grant(tuple(policy.actions), policy.resource, policy.effect == "deny", tuple(policy.sources))
    await _change(services, name, lambda store: store.grant(order.name, added))
    return await get_user(services, UserQuery(order.name, name))


@operation("users.revoke", timeout=REMOTE_TIMEOUT, merged=False, writes=True)
async def revoke(services: AdminServices, order: PolicyRemoval) -> UserDetail:
    """Remove actions from the policies on a resource."""
    name = _chosen(services, order.store)
    await _change(services, name, lambda store: store.revoke(order.name, order.actions, order.resource))
    return await get_user(services, UserQuery(order.name, name))


@operation("users.decide", timeout=REMOTE_TIMEOUT, merged=False)
async def decide(services: AdminServices, query: DecisionQuery) -> DecisionReply:
    """Return the decision that the users and policies in force lead to."""
    authority = services.replica.authority
    if authority is None:
        raise conflict("authentication is off: every request is permitted")
    try:
        decision = explain(
            authority.sources, query.user, query.action, query.resource, query.address, authority.sync_topics
        )
    except ValueError as error:
        raise OperationFailed(Failure(FailureKind.INVALID, str(error))) from None
    return DecisionReply(allowed=decision.allowed, reason=decision.reason)


def _stores(services: AdminServices) -> list[StoreName]:
    """Return the stores that the settings name as sources."""
    auth = services.replica.settings.auth
    stores: list[StoreName] = []
    if auth.users is not None:
        stores.append("file")
    if auth.brokers:
        stores.append("brokers")
    return stores


def _chosen(services: AdminServices, name: StoreName | None) -> StoreName:
    """Return the store of a change. Raises OperationFailed if there are several and the request names none."""
    if name is not None:
        return name
    stores = _stores(services)
    if len(stores) == 1:
        return stores[0]
    if not stores:
        raise conflict("there are no users that can be changed: set auth.users or auth.brokers")
    raise OperationFailed(Failure(FailureKind.INVALID, "there are two stores of users: name one, file or brokers"))


async def _change(
    services: AdminServices, name: StoreName, work: Callable[[Store], Coroutine[Any, Any, _Result]]
) -> _Result:
    """Change a store; a changed file is in force here at once. Raises the errors of `_run`."""
    result = await _run(services, name, work)
    authority = services.replica.authority
    if name == "file" and authority is not None:
        await authority.refresh()
    return result


async def _run(
    services: AdminServices, name: StoreName, work: Callable[[Store], Coroutine[Any, Any, _Result]]
) -> _Result:
    """Return the result of work at a store. Raises OperationFailed, and the errors of requests to brokers."""
    try:
        if name == "brokers":
            return await work(BrokersStore(_ask_brokers(services)))
        auth = services.replica.settings.auth
        path = auth.users
        if path is None:
            raise conflict("there is no users file: set auth.users")
        # Reading a large file takes long.
        return await anyio.to_thread.run_sync(
            lambda: asyncio.run(work(UsersFileStore(path, users_cipher(auth.users_key, auth.users_key_file))))
        )
    except NotInStore as error:
        raise not_found(str(error)) from None
    except (StoreError, AuthError) as error:
        raise conflict(str(error)) from None
    except OSError as error:
        raise conflict(f"{error.filename}: {error.strerror}") from None


def _ask_brokers(services: AdminServices) -> Ask:
    core = services.replica.core

    async def ask(code: RequestCode, fields: Mapping[str, str], body: bytes) -> bytes:
        handling = query if code in READS else change
        reply = await operator_channel.handle(core, handling, code, dict(fields), body=body)
        if reply.code != ResponseCode.SUCCESS:
            raise StoreError(f"the brokers refuse {code.name} with {reply.code}: {reply.remark}")
        return reply.body

    return ask


def _user(store: StoreName, entry: UserEntry) -> User:
    return User(
        name=entry.user,
        source=store,
        role=entry.role.value,
        groups=list(entry.groups),
        enabled=entry.enabled,
        policies=entry.policies,
        expires=None if entry.expires is None else datetime.fromisoformat(entry.expires),
    )


def _policy(entry: PolicyEntry) -> Policy:
    return Policy(
        effect="allow" if entry.effect == "allow" else "deny",
        actions=list(entry.actions),
        resources=list(entry.resources),
        sources=list(entry.sources),
        default=entry.default,
    )


def _plain_users(services: AdminServices) -> list[UserDetail]:
    """Return the accounts of plain_acl.yml, which only an editor can change."""
    authority = services.replica.authority
    sources = () if authority is None else authority.sources
    return [
        UserDetail(
            name=user.name,
            source="plain_acl",
            role=user.role.value,
            groups=[],
            enabled=user.enabled,
            policies=len(user.policies),
            entries=[
                Policy(
                    effect="allow" if policy.allow else "deny",
                    actions=list(action_names(policy.actions)),
                    resources=[str(policy.pattern)],
                    sources=list(map(str, policy.networks)),
                    default=policy.fallback,
                )
                for policy in user.policies
            ],
        )
        for source in sources
        if source.name == "plain_acl"
        for _, user in sorted(source.directory.users.items())
    ]
