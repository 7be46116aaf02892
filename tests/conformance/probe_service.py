"""A service that describes its calls as the servicer sees them, and ends calls in different ways.

Methods use JSON, without generated code. Responses must be equal on both transports.
"""

import asyncio
import json
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from tests.conformance.interop_service import Registrar

SERVICE = "gantry.test.Probe"
Context = grpc.aio.ServicerContext[Any, Any]


def register(server: Registrar) -> None:
    """Add the service."""
    server.add_generic_rpc_handlers((Probe().handler(),))


class Probe:
    """Handlers of the service, and counts of hanging and cancelled calls."""

    def __init__(self) -> None:
        self._hanging = 0
        self._cancelled = 0

    def handler(self) -> grpc.GenericRpcHandler:
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Describe": unary(self._describe),
            "End": unary(self._end),
            "Hang": unary(self._hang),
            "Hanging": unary(self._report),
            "Unserializable": unary(self._describe, response_serializer=_reject),
            "Undeserializable": unary(self._describe, request_deserializer=_reject),
            "Collect": grpc.stream_unary_rpc_method_handler(self._collect),
            "Echo": grpc.stream_stream_rpc_method_handler(self._echo),
            "EndStream": grpc.unary_stream_rpc_method_handler(self._end_stream),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _describe(self, _: bytes, context: Context) -> bytes:
        sent = [(key, _text(value)) for key, value in context.invocation_metadata() or () if key != "user-agent"]
        return _json(
            metadata=sent,
            time_remaining=context.time_remaining(),
            peer=context.peer().rpartition(":")[0],
            cancelled=context.cancelled(),
            done=context.done(),
        )

    async def _end(self, request: bytes, context: Context) -> bytes:
        await _ENDINGS[request.decode()](context)
        return b"an answer"

    async def _hang(self, _: bytes, context: Context) -> bytes:
        self._hanging += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._cancelled += 1
            raise
        finally:
            self._hanging -= 1
        return b""

    async def _report(self, _: bytes, context: Context) -> bytes:
        return _json(hanging=self._hanging, cancelled=self._cancelled)

    async def _collect(self, requests: AsyncIterable[bytes], context: Context) -> bytes:
        return b",".join([request async for request in requests])

    async def _echo(self, _: AsyncIterable[bytes], context: Context) -> None:
        """Echo by methods of the context instead of iterators."""
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(request)
        context.set_trailing_metadata((("echoed", "all"),))

    async def _end_stream(self, request: bytes, context: Context) -> None:
        await context.write(b"first")
        await _ENDINGS[request.decode()](context)


@dataclass
class _Status(grpc.Status):
    """The grpc.Status that grpcio-status makes of a google.rpc.Status."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


async def _returns(context: Context) -> None: ...


async def _raises(context: Context) -> None:
    raise ValueError("a mistake")


async def _raises_with_code(context: Context) -> None:
    context.set_code(grpc.StatusCode.DATA_LOSS)
    context.set_details("all gone")
    raise ValueError("a mistake")


async def _sets_code(context: Context) -> None:
    context.set_code(grpc.StatusCode.NOT_FOUND)
    context.set_details("no such thing")


async def _aborts(context: Context) -> None:
    await context.abort(grpc.StatusCode.ABORTED, "enough", (("reason-bin", b"\0\xff"), ("reason", "enough")))


async def _aborts_with_status(context: Context) -> None:
    details = (("grpc-status-details-bin", b"a google.rpc.Status"),)
    await context.abort_with_status(_Status(grpc.StatusCode.FAILED_PRECONDITION, "not yet", details))


async def _sends_metadata(context: Context) -> None:
    await context.send_initial_metadata((("initial", "1"), ("initial", "2"), ("initial-bin", b"\0\1\2")))
    context.set_trailing_metadata((("trailing", "a, b"), ("trailing-bin", b"\xff")))


async def _sends_metadata_twice(context: Context) -> None:
    await context.send_initial_metadata(())
    await context.send_initial_metadata(())


_ENDINGS: dict[str, Callable[[Context], Awaitable[None]]] = {
    "returns": _returns,
    "raises": _raises,
    "raises with code": _raises_with_code,
    "sets code": _sets_code,
    "aborts": _aborts,
    "aborts with status": _aborts_with_status,
    "sends metadata": _sends_metadata,
    "sends metadata twice": _sends_metadata_twice,
}


def _reject(_: bytes) -> bytes:
    raise ValueError("rejected by the serializer")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


def _json(**values: object) -> bytes:
    return json.dumps(values).encode()
