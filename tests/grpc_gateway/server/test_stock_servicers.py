"""Servicers made for grpc.aio, unchanged, and interceptors."""

from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_channelz.v1 import channelz, channelz_pb2, channelz_pb2_grpc  # type: ignore[import-untyped]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status  # type: ignore[import-untyped]

from grpc_gateway.server import Call, Server, ServerOptions
from tests.grpc_gateway.server.kit import UNARY, listening, opened, path, serving, status_of

pytestmark = pytest.mark.anyio

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_health() -> None:
    server: Any = Server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    async with listening(server) as port, opened(port) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == _SERVING
        unknown = stub.Check(health_pb2.HealthCheckRequest(service="other"))
        assert await status_of(unknown) == (grpc.StatusCode.NOT_FOUND, "")
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == _SERVING
        await servicer.set("", _NOT_SERVING)
        assert (await watch.read()).status == _NOT_SERVING
        watch.cancel()


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_reflection(asynchronous: bool) -> None:
    server: Any = Server()
    names = [health.SERVICE_NAME, reflection.SERVICE_NAME]
    servicer: Any = (reflection.aio if asynchronous else reflection).ReflectionServicer(names)
    add: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
    add(servicer, server)
    async with listening(server) as port, opened(port) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        assert sorted(service.name for service in answer.list_services_response.service) == sorted(names)
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=health.SERVICE_NAME))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_channelz() -> None:
    server: Any = Server()
    channelz.add_channelz_servicer(server)
    async with listening(server) as port, opened(port) as channel:
        stub: Any = channelz_pb2_grpc.ChannelzStub(channel)
        assert (await stub.GetTopChannels(channelz_pb2.GetTopChannelsRequest())).channel


async def test_rich_status() -> None:
    async def refuse(_: bytes, context: Any) -> bytes:
        status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="too much")
        status.details.add().Pack(error_details_pb2.DebugInfo(detail="of it"))
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
    assert info.detail == "of it"


class Gate(grpc.aio.ServerInterceptor):
    """Lets those in who know the word, and remembers who asked."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        self.seen.append(f"{self.name} {handler_call_details.method}")
        if ("word", "please") in tuple(handler_call_details.invocation_metadata):
            return await continuation(handler_call_details)

        async def refuse(_: bytes, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, self.name)

        return UNARY(refuse)


async def test_interceptors() -> None:
    async def echo(request: bytes, _: Any) -> bytes:
        return request

    seen: list[str] = []
    gates = [Gate("outer", seen), Gate("inner", seen)]
    async with serving({"Echo": UNARY(echo)}, interceptors=gates) as (server, channel):
        call = channel.unary_unary(path("Echo"))
        assert await call(b"x" * 100_000, metadata=(("word", "please"),)) == b"x" * 100_000
        assert seen == [f"outer {path('Echo')}", f"inner {path('Echo')}"]
        assert await status_of(call(b"")) == (grpc.StatusCode.UNAUTHENTICATED, "outer")
        nowhere = channel.unary_unary(path("Nowhere"))(b"", metadata=(("word", "please"),))
        assert (await status_of(nowhere))[0] is grpc.StatusCode.UNIMPLEMENTED
        assert server.calls()[(path("Echo"), grpc.StatusCode.OK)] == 1


async def test_generic_handlers() -> None:
    class Anything(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            async def name(_: bytes, context: Call) -> bytes:
                return context.path.encode()

            return UNARY(name) if handler_call_details.method.startswith("/any") else None

    server = Server(ServerOptions())
    server.add_generic_rpc_handlers((Anything(),))
    async with listening(server) as port, opened(port) as channel:
        assert await channel.unary_unary("/any.Service/Method")(b"") == b"/any.Service/Method"
        assert (await status_of(channel.unary_unary("/other/Method")(b"")))[0] is grpc.StatusCode.UNIMPLEMENTED
