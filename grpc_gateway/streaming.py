"""Rpcs with a streamed response: an error is a response with only its status."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from grpc.aio import InternalError

from grpc_gateway.clients.rpc import Rpc, Write, anonymous_rpc
from grpc_gateway.name_mapping import NameMapping
from grpc_gateway.permissions import Unauthorized
from grpc_gateway.unary import Rpcs, check, error_response
from protos.apache.rocketmq.v2.definition_pb2 import Code

_Request = TypeVar("_Request")
# Seconds before a stream ends with TOO_MANY_REQUESTS: consumers retry after only 20 ms.
_THROTTLE_DELAY = 1.0


class StreamingRpcs(Rpcs):
    """Runs the work of rpcs with a streamed response."""

    async def run(
        self,
        name: str,
        kind: Any,
        work: Callable[[Rpc, _Request, Write], Awaitable[None]],
        request: _Request,
        context: Any,
    ) -> None:
        """Let the work write its responses, of a message class `kind`. It notes the code of a status in `Rpc.code`."""
        started = time.monotonic()
        rpc: Rpc | None = None
        code = 0
        failure: Any = None
        delay = 0.0
        write = _writer(kind, None, context)
        try:
            try:
                rpc = self._clients.rpc(context, name)
                name_mapping = rpc.client.name_mapping
                if name_mapping is not None:
                    write = _writer(kind, name_mapping, context)
                    name_mapping.map_request(request)
                if self._guard is not None:
                    check(self._guard, name, rpc, request)
                await work(rpc, request, write)
            except Exception as error:
                failure = error_response(name, kind, error)
                code = failure.status.code
                if code == Code.TOO_MANY_REQUESTS:
                    delay = _THROTTLE_DELAY
                elif isinstance(error, Unauthorized):
                    delay = error.delay
            if delay:
                await asyncio.sleep(delay)
            if failure is not None:
                await write([failure.SerializeToString()])
        finally:
            self._observe(name, rpc or anonymous_rpc(context), request, code or (rpc.code if rpc else 0), started)


def _writer(kind: Any, name_mapping: NameMapping | None, context: Any) -> Write:
    """Return the function that writes serialized responses of a message class."""
    # An extension of our own transport; grpc.aio serializes messages itself.
    write: Write = getattr(context, "write_serialized", None) or partial(_write_each, kind, context)
    return write if name_mapping is None else partial(_write_mapped, kind, name_mapping, write)


async def _write_each(kind: Any, context: Any, responses: list[bytes]) -> None:
    try:
        for response in responses:
            await context.write(kind.FromString(response))
    except InternalError:
        # The client has left; grpc.aio cancels the call a moment later.
        raise asyncio.CancelledError from None


async def _write_mapped(kind: Any, name_mapping: NameMapping, write: Write, responses: list[bytes]) -> None:
    """Write responses with the client's own names."""
    mapped: list[bytes] = []
    for data in responses:
        response = kind.FromString(data)
        name_mapping.map_response(response)
        mapped.append(response.SerializeToString())
    await write(mapped)
