"""The test service of the gRPC interop suite, a servicer for grpc.aio's API.

Its behaviour is specified in doc/interop-test-descriptions.md of grpc/grpc. It ignores the field ``expect_compressed``,
as grpc.aio does not report the encoding of a request to servicers; `wire_cases` covers that from the client's side.
"""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, Protocol, cast

import grpc

from tests.conformance import orca
from tests.conformance.protos.grpc.testing.empty_pb2 import Empty
from tests.conformance.protos.grpc.testing.messages_pb2 import (
    EchoStatus,
    Payload,
    ResponseParameters,
    SimpleRequest,
    SimpleResponse,
    StreamingInputCallRequest,
    StreamingInputCallResponse,
    StreamingOutputCallRequest,
    StreamingOutputCallResponse,
)
from tests.conformance.protos.grpc.testing.test_pb2_grpc import TestServiceServicer, add_TestServiceServicer_to_server

INITIAL_KEY = "x-grpc-test-echo-initial"
TRAILING_KEY = "x-grpc-test-echo-trailing-bin"

Context = grpc.aio.ServicerContext[Any, Any]
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Registrar(Protocol):
    """The part of grpc.aio.Server that the servers of both transports implement."""

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None: ...


def register(server: Registrar) -> None:
    """Add the test service, and the service that streams its load reports."""
    reports = orca.OutOfBand()
    add_TestServiceServicer_to_server(TestService(reports), cast(grpc.aio.Server, server))
    server.add_generic_rpc_handlers((reports.handler(),))


class TestService(TestServiceServicer):
    """``grpc.testing.TestService``."""

    def __init__(self, reports: orca.OutOfBand) -> None:
        self._reports = reports

    async def EmptyCall(self, request: Empty, context: Context) -> Empty:
        return Empty()

    async def UnaryCall(self, request: SimpleRequest, context: Context) -> SimpleResponse:
        if request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        trailing = await _echo_metadata(context)
        if request.HasField("orca_per_query_report"):
            trailing.append((orca.METADATA_KEY, orca.encode(request.orca_per_query_report)))
        context.set_trailing_metadata(tuple(trailing))
        await _echo_status(context, request.response_status)
        answer = SimpleResponse(payload=await _payload(context, request.response_size))
        if request.fill_server_id:
            answer.server_id = str(os.getpid())
        return answer

    async def CacheableUnaryCall(self, request: SimpleRequest, context: Context) -> SimpleResponse:
        return await self.UnaryCall(request, context)

    async def StreamingOutputCall(
        self, request: StreamingOutputCallRequest, context: Context
    ) -> AsyncIterator[StreamingOutputCallResponse]:
        if any(parameters.compressed.value for parameters in request.response_parameters):
            context.set_compression(grpc.Compression.Gzip)
        context.set_trailing_metadata(tuple(await _echo_metadata(context)))
        await _echo_status(context, request.response_status)
        async for answer in _answers(context, request.response_parameters):
            yield answer

    async def StreamingInputCall(
        self, request_iterator: AsyncIterable[StreamingInputCallRequest], context: Context
    ) -> StreamingInputCallResponse:
        total = 0
        async for request in request_iterator:
            total += len(request.payload.body)
        return StreamingInputCallResponse(aggregated_payload_size=total)

    async def FullDuplexCall(
        self, request_iterator: AsyncIterable[StreamingOutputCallRequest], context: Context
    ) -> AsyncIterator[StreamingOutputCallResponse]:
        context.set_trailing_metadata(tuple(await _echo_metadata(context)))
        async for request in request_iterator:
            if request.HasField("orca_oob_report"):
                self._reports.report = request.orca_oob_report
            await _echo_status(context, request.response_status)
            async for answer in _answers(context, request.response_parameters):
                yield answer

    async def HalfDuplexCall(
        self, request_iterator: AsyncIterable[StreamingOutputCallRequest], context: Context
    ) -> AsyncIterator[StreamingOutputCallResponse]:
        for request in [request async for request in request_iterator]:
            async for answer in _answers(context, request.response_parameters):
                yield answer

    async def UnimplementedCall(self, request: Empty, context: Context) -> Empty:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no server implements this call")


async def _echo_metadata(context: Context) -> list[tuple[str, str | bytes]]:
    """Echo the initial metadata; return the trailing metadata to echo."""
    sent = [(key, value) for key, value in context.invocation_metadata() or () if key in (INITIAL_KEY, TRAILING_KEY)]
    initial = [(key, value) for key, value in sent if key == INITIAL_KEY]
    if initial:
        await context.send_initial_metadata(tuple(initial))
    return [(key, value) for key, value in sent if key == TRAILING_KEY]


async def _echo_status(context: Context, status: EchoStatus) -> None:
    if status.code:
        await context.abort(_STATUS_CODES[status.code], status.message)


async def _answers(
    context: Context, parameters: Iterable[ResponseParameters]
) -> AsyncIterator[StreamingOutputCallResponse]:
    for response in parameters:
        if response.interval_us:
            await asyncio.sleep(response.interval_us / 1e6)
        if not response.compressed.value:
            context.disable_next_message_compression()
        yield StreamingOutputCallResponse(payload=await _payload(context, response.size))


async def _payload(context: Context, size: int) -> Payload:
    if size < 0:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a response of {size} bytes")
    return Payload(body=bytes(size))
