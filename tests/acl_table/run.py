"""The table of access: each request code and rpc with each kind of credential, through Gantry and the Java proxy.

    python -m tests.acl_table.run [--json FILE]

Both check the same users, which the broker keeps, and send requests to it as a super user. A cell has `denied`,
`served`, `error` (neither is certain), or `-` if the proxy does not know the request. `served` without a valid
credential or without permission is marked by `!`. The exit status is 1 if Gantry serves such a request.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc.aio

from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.signature import Credentials
from tests.acl_table.requests import GROUP, TOPIC, remoting_requests, rpcs
from tests.cluster.client import Client
from tests.cluster.servers import Cluster, Gantry

_ADMIN, _INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
_BOB = Credentials("bob", "bob-secret-1")
_CONFIG = f"""
tools = "all"
[cluster]
access_key = "{_INNER.access_key}"
secret_key = "{_INNER.secret_key}"
[auth]
brokers = true
"""
# Credentials by the name of the column; the last one is permitted.
USERS: dict[str, Credentials | None] = {
    "no credential": None,
    "unknown user": Credentials("nobody", "x"),
    "wrong secret": Credentials(_ADMIN.access_key, "wrong"),
    "no permission": _BOB,
    "permitted": _ADMIN,
}
_OLD_DATE = "date of last week"
# Remarks of the Java proxy, whose code of a denied request is SYSTEM_ERROR.
_DENIALS = ("has no permission", "username cannot be null", "is not found", "check signature", "authentication failed")
# Rpcs and codes that any authenticated user may use: they show and change only the client's own state.
_FOR_ALL_USERS = frozenset({"UNREGISTER_CLIENT", "NotifyClientTermination"})
_TIMEOUT = 6.0
_CONCURRENCY = 24
_DAY = 86_400.0


async def _remoting(address: str, command: RemotingCommand, user: Credentials | None) -> str:
    async with Client(address, "c1", credentials=user) as client:
        try:
            reply = await client.ask(command.code, command.fields, command.body, timeout=_TIMEOUT)
        except RemotingError:
            # Neither denied nor answered: the broker has it.
            return "served"
    remark = (reply.remark or "").lower()
    if reply.code == ResponseCode.NO_PERMISSION or any(text in remark for text in _DENIALS):
        return "denied"
    if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "-"
    # SYSTEM_ERROR may precede the decision.
    return "error" if reply.code == ResponseCode.SYSTEM_ERROR else "served"


def _metadata(user: Credentials | None, age: float = 0.0) -> tuple[tuple[str, str], ...]:
    metadata = [("x-mq-client-id", "table"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7")]
    if user is not None:
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() - age))
        digest = user.key.digest(date.encode()).hex()
        text = f"MQv2-HMAC-SHA1 Credential={user.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
        metadata += [("x-mq-date-time", date), ("authorization", text)]
    return tuple(metadata)


async def _rpc(address: str, name: str, request: Any, metadata: tuple[tuple[str, str], ...]) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        method = getattr(MessagingServiceStub(channel), name)
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
                return "denied"
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return "-"
            return "served" if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else f"error {error.code().name}"
    code = getattr(getattr(response, "status", None), "code", Code.OK)
    if code in (Code.UNAUTHORIZED, Code.FORBIDDEN):
        return "denied"
    return "-" if code in (Code.NOT_IMPLEMENTED, Code.UNSUPPORTED) else "served"


async def _table(remoting: str, rpc: str) -> dict[str, dict[str, str]]:
    """Return the outcomes of all rows through one proxy, by row and column."""
    cells: dict[tuple[str, str], Coroutine[Any, Any, str]] = {}
    for label, command in remoting_requests():
        for column, user in USERS.items():
            cells[label, column] = _remoting(remoting, command, user)
    for name, request in rpcs():
        for column, user in USERS.items():
            cells[name, column] = _rpc(rpc, name, request, _metadata(user))
        cells[name, _OLD_DATE] = _rpc(rpc, name, request, _metadata(_ADMIN, 7 * _DAY))
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def outcome(cell: Coroutine[Any, Any, str]) -> str:
        async with slots:
            return await cell

    # Gantry answers failed authentications late.
    outcomes = await asyncio.gather(*map(outcome, cells.values()))
    rows: dict[str, dict[str, str]] = {}
    for (label, column), text in zip(cells, outcomes, strict=True):
        rows.setdefault(label, {})[column] = text
    return rows


async def _when_users_are_known(address: str) -> None:
    command = next(command for label, command in remoting_requests() if label == "GET_ROUTEINFO_BY_TOPIC")

    async def known() -> bool:
        return await _remoting(address, command, _ADMIN) == "served"

    deadline = time.monotonic() + 60
    while not await known() and time.monotonic() < deadline:
        await asyncio.sleep(0.5)


def holes(rows: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """Return the columns in which a row is served although it should be denied."""
    found = {}
    for label, cells in rows.items():
        allowed = {"permitted"} | ({"no permission"} if label in _FOR_ALL_USERS else set())
        columns = [column for column, outcome in cells.items() if column not in allowed and outcome == "served"]
        if columns:
            found[label] = columns
    return found


def _print(tables: dict[str, dict[str, dict[str, str]]], write: Callable[[str], object]) -> None:
    columns = [*USERS, _OLD_DATE]
    write("| request | proxy | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 2) + "\n")
    wrong = {proxy: holes(rows) for proxy, rows in tables.items()}
    for label in next(iter(tables.values())):
        for proxy, rows in tables.items():
            marked = wrong[proxy].get(label, [])
            cells = [rows[label].get(column, "") + (" !" if column in marked else "") for column in columns]
            write(f"| {label} | {proxy} | " + " | ".join(cells) + " |\n")
    for proxy, found in wrong.items():
        write(f"\n{proxy}: {sum(map(len, found.values()))} cells in {len(found)} rows are served without permission")
        write(f": {', '.join(found)}\n" if found else "\n")


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="build/acl-table.json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantry-acl-") as name:
        directory = Path(name)
        servers = Cluster(directory / "servers", "--acl", "--quick", "--proxy-port", "0")
        with servers as cluster:
            cluster.topic(TOPIC, 1)
            cluster.group(GROUP)
            cluster.user(_BOB.access_key, _BOB.secret_key)
            with Gantry(directory, cluster.namesrv, _CONFIG) as gantry:
                asyncio.run(_when_users_are_known(gantry.address))
                java = (cluster.addresses["proxy_remoting"], cluster.addresses["proxy_grpc"])
                tables = {
                    "gantry": asyncio.run(_table(gantry.address, gantry.address)),
                    "java": asyncio.run(_table(*java)),
                }
    _print(tables, sys.stdout.write)
    file = Path(options.json)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tables, indent=1))
    return 1 if holes(tables["gantry"]) else 0


if __name__ == "__main__":
    sys.exit(main())
