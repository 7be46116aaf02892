"""A replica with the Admin service, clients of both protocols, and callers of the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.apache.rocketmq.v2.admin_pb2_grpc import AdminStub
from protos.apache.rocketmq.v2.definition_pb2 import Code, Resource
from proxy.app import App
from tests.proxy.admin.http import replicas as kit
from tests.proxy.admin.http.replicas import READ, WRITE

NAMED = (("authorization", f"Bearer {READ}"),)
WRITER = (("authorization", f"Bearer {WRITE}"),)


@dataclass
class Caller:
    """A caller, with metadata."""

    stub: Any
    metadata: tuple[tuple[str, str], ...]

    async def __call__(self, rpc: str, request: Any, code: Code = Code.OK) -> Any:
        """Call one rpc; its response must have this code."""
        answer = await getattr(self.stub, rpc)(request, metadata=self.metadata, timeout=30)
        assert answer.status.code == code, answer
        return answer


@dataclass
class Stage:
    """A replica with the clients of `admin.http`'s; `read` has no token, `named` may read, `write` may do all."""

    clients: kit.Stage
    read: Caller
    named: Caller
    write: Caller

    @property
    def app(self) -> App:
        """The replica."""
        return self.clients.replica.app

    @property
    def topic(self) -> str:
        """The topic of all clients here."""
        return self.clients.topic


@asynccontextmanager
async def callers(address: str) -> AsyncIterator[tuple[Caller, Caller, Caller]]:
    """Return callers without a token, with the role read, and with the role write."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = AdminStub(channel)
        yield Caller(stub, ()), Caller(stub, NAMED), Caller(stub, WRITER)


@asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[Stage]:
    """Start the replica, its topics and clients."""
    async with (
        kit.stage(directory, admin={"grpc": "127.0.0.1:0"}) as clients,
        callers(where(clients.replica.app)) as who,
    ):
        yield Stage(clients, *who)


def where(app: App) -> str:
    """Return the address of a replica's Admin service."""
    assert app.admin_grpc is not None
    return str(app.admin_grpc.addresses[0])


def name(text: str) -> Resource:
    """Return a topic or a group as a Resource."""
    return Resource(name=text)


def moment(milliseconds: int) -> Timestamp:
    """Return a timestamp, from milliseconds since 1970."""
    value = Timestamp()
    value.FromMilliseconds(milliseconds)
    return value
