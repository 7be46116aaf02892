"""Cells of the table: a request with a credential through a proxy, and its outcome."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.signature import Credentials
from tests.acl_table.requests import GROUP, TOPIC, remoting_requests, rpcs
from tests.cluster.client import Client, heartbeat

# Outcomes: denied; served; neither is certain; the proxy does not know the request.
DENIED, SERVED, ERROR, UNKNOWN = "denied", "served", "error", "-"
OLD_DATE = "date of last week"
# Rpcs and codes that any authenticated user may use: they show and change only the client's own state.
FOR_ALL_USERS = frozenset({"UNREGISTER_CLIENT", "NotifyClientTermination"})
# Requests that name a client: it has to be a member of the group.
_OF_MEMBERS = frozenset({RequestCode.POP_LITE_MESSAGE, RequestCode.LITE_SUBSCRIPTION_CTL})
# Remarks of the Java proxy, whose code of a denied request is SYSTEM_ERROR.
_DENIALS = ("has no permission", "username cannot be null", "is not found", "check signature", "authentication failed")
# Requests about users and ACLs, in which brokers report any fault with NO_PERMISSION.
_USER_CODES = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
_TIMEOUT = 15.0
_DAY = 86_400.0

Users = Mapping[str, Credentials | None]
Rows = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Target:
    """A proxy. authority: file of the certificate authority; None without TLS."""

    remoting: str
    grpc: str
    authority: Path | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS of remoting clients."""
        return None if self.authority is None else ssl.create_default_context(cafile=self.authority)

    def channel(self) -> Any:
        """Return a new gRPC channel."""
        if self.authority is None:
            return grpc.aio.insecure_channel(self.grpc)
        return grpc.aio.secure_channel(self.grpc, grpc.ssl_channel_credentials(self.authority.read_bytes()))


async def of_member(client: Client, command: RemotingCommand) -> str:
    """Return the outcome of a remoting request over a connection of its own, whose client joins the group first."""
    async with client:
        # Without a permission it does not become one.
        with contextlib.suppress(RemotingError):
            await client.ask(RequestCode.HEART_BEAT, body=heartbeat(client.client_id, {GROUP: [TOPIC]}, ()))
        return await over_remoting(client, command)


async def over_remoting(client: Client, command: RemotingCommand) -> str:
    """Return the outcome of a remoting request."""
    try:
        reply = await client.ask(command.code, dict(command.fields), command.body, timeout=_TIMEOUT)
    except RemotingError:
        # Neither denied nor answered: the broker has it.
        return SERVED
    remark = (reply.remark or "").lower()
    if any(text in remark for text in _DENIALS):
        return DENIED
    if reply.code == ResponseCode.NO_PERMISSION:
        return ERROR if command.code in _USER_CODES else DENIED
    if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UNKNOWN
    # SYSTEM_ERROR may precede the decision.
    return ERROR if reply.code == ResponseCode.SYSTEM_ERROR else SERVED


def metadata(user: Credentials | None, age: float = 0.0) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a signed rpc. age: of the signature, in seconds."""
    found = [("x-mq-client-id", "table"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7")]
    if user is not None:
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() - age))
        digest = user.key.digest(date.encode()).hex()
        text = f"MQv2-HMAC-SHA1 Credential={user.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
        found += [("x-mq-date-time", date), ("authorization", text)]
    return tuple(found)


async def over_grpc(channel: Any, name: str, request: Any, sender: tuple[tuple[str, str], ...]) -> str:
    """Return the outcome of an rpc. sender: its metadata."""
    method = getattr(MessagingServiceStub(channel), name)
    try:
        if name == "Telemetry":
            call = method(metadata=sender, timeout=_TIMEOUT)
            await call.write(request)
            response = await call.read()
        else:
            call = method(request, metadata=sender, timeout=_TIMEOUT)
            response = await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return DENIED
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return UNKNOWN
        return SERVED if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else f"{ERROR} {error.code().name}"
    code = getattr(getattr(response, "status", None), "code", Code.OK)
    if code in (Code.UNAUTHORIZED, Code.FORBIDDEN):
        return DENIED
    return UNKNOWN if code in (Code.NOT_IMPLEMENTED, Code.UNSUPPORTED) else SERVED


def _cells(
    target: Target, clients: Mapping[str, Client], channel: Any, users: Users, signer: Credentials
) -> Iterator[tuple[str, str, Coroutine[Any, Any, str]]]:
    """Yield row, column and outcome of each cell."""
    for label, command in remoting_requests():
        for column, client in clients.items():
            if command.code in _OF_MEMBERS:
                yield label, column, of_member(_client(target, users[column]), command)
            else:
                yield label, column, over_remoting(client, command)
    senders = {column: metadata(user) for column, user in users.items()}
    senders[OLD_DATE] = metadata(signer, 7 * _DAY)
    for name, request in rpcs():
        for column, sender in senders.items():
            yield name, column, over_grpc(channel, name, request, sender)


def _client(target: Target, user: Credentials | None) -> Client:
    return Client(target.remoting, "c1", credentials=user, tls=target.context)


async def table(target: Target, users: Users, signer: Credentials) -> Rows:
    """Return the outcomes of all rows through one proxy, by row and column. signer: signs with the old date."""
    async with AsyncExitStack() as stack:
        clients = {column: await stack.enter_async_context(_client(target, user)) for column, user in users.items()}
        channel = await stack.enter_async_context(target.channel())
        cells = list(_cells(target, clients, channel, users, signer))
        # Gantry answers failed authentications late: all at once.
        outcomes = await asyncio.gather(*(cell for _, _, cell in cells))
    rows: Rows = {}
    for (label, column, _), text in zip(cells, outcomes, strict=True):
        rows.setdefault(label, {})[column] = text
    return rows


async def wait_until_known(target: Target, user: Credentials) -> None:
    """Wait until the proxy knows a user; at most a minute."""
    command = next(command for label, command in remoting_requests() if label == "GET_ROUTEINFO_BY_TOPIC")
    deadline = time.monotonic() + 60
    async with Client(target.remoting, credentials=user, tls=target.context) as client:
        while await over_remoting(client, command) != SERVED and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
