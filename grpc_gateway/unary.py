"""Unary rpcs of the messaging service: each ends with a response, which has only a status after an error."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from grpc_gateway.clients.client_table import ClientTable
from grpc_gateway.clients.rpc import Observer, Rpc, anonymous_rpc
from grpc_gateway.name_mapping import NameMapping
from grpc_gateway.permissions import RPC_PERMISSIONS, Guard, Unauthorized
from grpc_gateway.response_status import Refused, status_from_error
from grpc_gateway.wire_decoding import ReadRequest, as_message
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.errors import RemotingError

_log = logging.getLogger("gantry.grpc")

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_OK: Final = int(Code.OK)
# Rpcs that do not wait for back-pressure: they keep the client registered.
_NEVER_PAUSED: Final = frozenset({"Heartbeat", "NotifyClientTermination"})


class Rpcs:
    """Base of the runners of rpcs. guard: decides about permissions; None: authentication is off."""

    def __init__(self, clients: ClientTable, observe: Observer, guard: Guard | None) -> None:
        self._clients = clients
        self._observe = observe
        self._guard = guard


class UnaryRpcs(Rpcs):
    """Runs the work of unary rpcs."""

    async def run(
        self,
        name: str,
        kind: type[_Response],
        work: Callable[[Rpc, _Request], Awaitable[_Response | bytes]],
        request: _Request,
        context: Any,
    ) -> _Response:
        """Return the response, or one with only the status of the error.

        The work may return the serialized response of a success, which is returned if the context takes it.
        """
        started = time.monotonic()
        rpc: Rpc | None = None
        name_mapping: NameMapping | None = None
        delay = 0.0
        try:
            rpc = self._clients.rpc(context, name)
            client = rpc.client
            name_mapping = client.name_mapping
            if name_mapping is not None:
                request = as_message(request)
                name_mapping.map_request(request)
            if self._guard is not None:
                check(self._guard, name, rpc, request)
            if client.paused and name not in _NEVER_PAUSED:
                await client.wait_until_resumed()
            response: Any = await work(rpc, request)
        except Exception as error:
            response = error_response(name, kind, error)
            if isinstance(error, Unauthorized):
                delay = error.delay
        except asyncio.CancelledError:
            # Its client has cancelled it, or its deadline has passed.
            self._observe(name, rpc or anonymous_rpc(context), as_message(request), 0, started)
            raise
        if delay:
            await asyncio.sleep(delay)
        code = _OK
        if not isinstance(response, bytes):
            code = response.status.code
        elif name_mapping is not None or not getattr(context, "takes_serialized", False):
            response = parsed(kind, response)
        if name_mapping is not None:
            name_mapping.map_response(response)
        if rpc is None:
            rpc = anonymous_rpc(context)
        # The observer reads the request unless the work has noted its facts.
        self._observe(name, rpc, as_message(request) if rpc.topic is None else request, code, started)
        result: _Response = response
        return result


def parsed(kind: Any, response: Any) -> Any:
    """Return a response, which may be serialized, as a message."""
    return kind.FromString(response) if isinstance(response, bytes) else response


def check(guard: Guard, name: str, rpc: Rpc, request: Any) -> None:
    """Raise Unauthorized if the sender has no permission for the request."""
    # A heartbeat without a client id is a health check, which has no effect.
    if rpc.client.client_id:
        needed = request.permissions() if isinstance(request, ReadRequest) else RPC_PERMISSIONS[name](request)
        guard.require(rpc.client.principal, needed, rpc.peer, name)


def error_response(name: str, kind: type[_Response], error: Exception) -> _Response:
    """Return the response with the status of an error; log an internal one."""
    if not isinstance(error, Refused | RemotingError):
        _log.error("%s failed", name, exc_info=error)
    return kind(status=status_from_error(error))  # type: ignore[call-arg]  # every response has a status
