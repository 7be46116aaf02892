"""Cells of the table: a request with a credential through a proxy, and its outcome."""

import asyncio
import ssl
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.signature import Credentials
from tests.acl_table.requests import remoting_requests, rpcs
from tests.cluster.client import Client

# Outcomes: denied; served; neither is certain; the proxy does not know the request.
DENIED, SERVED, ERROR, UNKNOWN = "denied", "served", "error", "-"
OLD_DATE = "date of last week"
# Rpcs and codes that any authenticated user may use: they show and change only the client's own state.
FOR_ALL_USERS = frozenset({"UNREGISTER_CLIENT", "NotifyClientTermination"})
# Remarks of the Java proxy, whose code of a denied request is SYSTEM_ERROR.
_DENIALS = ("has no permission", "username cannot be null", "is not found", "check signature", "authentication failed")
_TIMEOUT = 6.0
# Gantry answers failed authentications late.
_CONCURRENCY = 48
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


async def over_remoting(target: Target, command: RemotingCommand, user: Credentials | None) -> str:
    """Return the outcome of a remoting request."""
    async with Client(target.remoting, "c1", credentials=user, tls=target.context) as client:
        try:
            reply = await client.ask(command.code, command.fields, command.body, timeout=_TIMEOUT)
        except RemotingError:
            # Neither denied nor answered: the broker has it.
            return SERVED
    remark = (reply.remark or "").lower()
    if reply.code == ResponseCode.NO_PERMISSION or any(text in remark for text in _DENIALS):
        return DENIED
    if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UNKNOWN
    # SYSTEM_ERROR may precede the decision.
    return ERROR if reply.code == ResponseCode.SYSTEM_ERROR else SERVED


def _metadata(user: Credentials | None, age: float = 0.0) -> tuple[tuple[str, str], ...]:
    metadata = [("x-mq-client-id", "table"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7")]
    if user is not None:
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() - age))
        digest = user.key.digest(date.encode()).hex()
        text = f"MQv2-HMAC-SHA1 Credential={user.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
        metadata += [("x-mq-date-time", date), ("authorization", text)]
    return tuple(metadata)


async def over_grpc(target: Target, name: str, request: Any, user: Credentials | None, age: float = 0.0) -> str:
    """Return the outcome of an rpc. age: of its signature, in seconds."""
    async with target.channel() as channel:
        method = getattr(MessagingServiceStub(channel), name)
        metadata = _metadata(user, age)
        try:
            if name == "Telemetry":
                call = method(metadata=metadata, timeout=_TIMEOUT)
                await call.write(request)
                response = await call.read()
            else:
                call = method(request, metadata=metadata, timeout=_TIMEOUT)
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


def _cells(target: Target, users: Users, signer: Credentials) -> Iterator[tuple[str, str, Coroutine[Any, Any, str]]]:
    for label, command in remoting_requests():
        for column, user in users.items():
            yield label, column, over_remoting(target, command, user)
    for name, request in rpcs():
        for column, user in users.items():
            yield name, column, over_grpc(target, name, request, user)
        yield name, OLD_DATE, over_grpc(target, name, request, signer, 7 * _DAY)


async def table(target: Target, users: Users, signer: Credentials) -> Rows:
    """Return the outcomes of all rows through one proxy, by row and column. signer: signs with the old date."""
    cells = list(_cells(target, users, signer))
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def outcome(cell: Coroutine[Any, Any, str]) -> str:
        async with slots:
            return await cell

    outcomes = await asyncio.gather(*(outcome(cell) for _, _, cell in cells))
    rows: Rows = {}
    for (label, column, _), text in zip(cells, outcomes, strict=True):
        rows.setdefault(label, {})[column] = text
    return rows


async def wait_until_known(target: Target, user: Credentials) -> None:
    """Wait until the proxy knows a user; at most a minute."""
    command = next(command for label, command in remoting_requests() if label == "GET_ROUTEINFO_BY_TOPIC")
    deadline = time.monotonic() + 60
    while await over_remoting(target, command, user) != SERVED and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
