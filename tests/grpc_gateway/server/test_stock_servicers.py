"""Servicers of grpcio's packages, unchanged, and generic handlers."""

from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_channelz.v1 import channelz, channelz_pb2, channelz_pb2_grpc  # type: ignore[import-untyped]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status  # type: ignore[import-untyped]

from grpc_gateway.server import Server, ServerCall, ServerOptions
from tests.grpc_gateway.server.servers import UNARY, channel_to, listening, path, serving, status_of

pytestmark = pytest.mark.anyio

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_the_health_servicer_of_grpcio_is_served() -> None:
    server: Any = Server()
    messages: Any = health_pb2
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    async with listening(server) as port, channel_to(port) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == _SERVING
        unknown = stub.Check(health_pb2.HealthCheckRequest(service="other"))
        assert await status_of(unknown) == (grpc.StatusCode.NOT_FOUND, "")
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == _SERVING
        await servicer.set("", _NOT_SERVING)
        assert (await watch.read()).status == _NOT_SERVING
        watch.cancel()
        # The servicer inherits the generated plain function.
        assert (await status_of(stub.List(messages.HealthListRequest())))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_the_reflection_servicer_of_grpcio_is_served() -> None:
    server: Any = Server()
    names = [health.SERVICE_NAME, reflection.SERVICE_NAME]
    servicer: Any = reflection.aio.ReflectionServicer(names)
    add: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
    add(servicer, server)
    async with listening(server) as port, channel_to(port) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        assert sorted(service.name for service in answer.list_services_response.service) == sorted(names)
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=health.SERVICE_NAME))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_channelz_servicer_of_plain_functions() -> None:
    server: Any = Server()
    channelz.add_channelz_servicer(server)
    async with listening(server) as port, channel_to(port) as channel:
        stub: Any = channelz_pb2_grpc.ChannelzStub(channel)
        assert (await stub.GetTopChannels(channelz_pb2.GetTopChannelsRequest())).channel


async def test_abort_with_rich_status() -> None:
    async def refuse(_: bytes, context: Any) -> bytes:
        status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="quota exceeded")
        status.details.add().Pack(error_details_pb2.DebugInfo(detail="quota"))
        await context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError

    async with serving({"Refuse": UNARY(refuse)}) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(path("Refuse"))(b"")
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    [(key, value)] = raised.value.trailing_metadata()
    assert key == "grpc-status-details-bin"
    assert isinstance(value, bytes)
    info = error_details_pb2.DebugInfo()
    status_pb2.Status.FromString(value).details[0].Unpack(info)
    assert info.detail == "quota"


async def test_a_plain_generator_function_is_refused_at_registration() -> None:
    """grpcio's synchronous reflection servicer has one; the product uses `reflection.aio`."""
    server: Any = Server()
    add: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
    with pytest.raises(TypeError, match="plain generator"):
        add(reflection.ReflectionServicer([]), server)


async def test_generic_handler_serves_the_paths_that_it_accepts() -> None:
    class Anything(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            async def name(_: bytes, context: ServerCall) -> bytes:
                return context.path.encode()

            return UNARY(name) if handler_call_details.method.startswith("/any") else None

    server = Server(ServerOptions())
    server.add_generic_rpc_handlers((Anything(),))
    async with listening(server) as port, channel_to(port) as channel:
        assert await channel.unary_unary("/any.Service/Method")(b"") == b"/any.Service/Method"
        assert (await status_of(channel.unary_unary("/other/Method")(b"")))[0] is grpc.StatusCode.UNIMPLEMENTED
