"""Contexts with the client's connection for handlers on grpcio's server, and counts of their calls."""

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from grpc_gateway.grpcio_transport.relay import Relay


class RelayContext:
    """grpcio's context with the attribute `connection`, which contexts of `grpc_gateway.server` have."""

    def __init__(self, context: Any, connection: Relay) -> None:
        self._context = context
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class RelayInterceptor(grpc.aio.ServerInterceptor):
    """Passes handlers a context with their relay, and counts calls.

    find_relay: returns the relay of a context, or None.
    open_calls: calls that have not ended.
    ended_calls: by method (``/package.Service/Method``) and code.
    """

    def __init__(self, find_relay: Callable[[Any], Relay | None]) -> None:
        self.open_calls = 0
        self.ended_calls: Counter[tuple[str, grpc.StatusCode]] = Counter()
        self._find_relay = find_relay

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        return None if handler is None else self._wrap_handler(handler, handler_call_details.method)

    def _wrap_handler(self, handler: Any, method: str) -> Any:
        name, make = _KINDS[handler.request_streaming, handler.response_streaming]
        behaviour = getattr(handler, name)
        wrap = self._wrap_generator if inspect.isasyncgenfunction(behaviour) else self._wrap_coroutine
        return make(wrap(behaviour, method), handler.request_deserializer, handler.response_serializer)

    def _wrap_coroutine(self, behaviour: Any, method: str) -> Any:
        async def respond(request: Any, context: Any) -> Any:
            return await behaviour(request, self._begin_call(context, method))

        return respond

    def _wrap_generator(self, behaviour: Any, method: str) -> Any:
        async def respond(request: Any, context: Any) -> AsyncIterator[Any]:
            async for response in behaviour(request, self._begin_call(context, method)):
                yield response

        return respond

    def _begin_call(self, context: Any, method: str) -> Any:
        self.open_calls += 1
        context.add_done_callback(lambda done: self._end_call(done, method))
        relay = self._find_relay(context)
        if relay is None:
            return context
        relay.requests += 1
        return RelayContext(context, relay)

    def _end_call(self, context: Any, method: str) -> None:
        self.open_calls -= 1
        code = context.code() or grpc.StatusCode.OK
        self.ended_calls[method, code] += 1


# Attribute and constructor of handlers, by whether request and response are streamed.
_KINDS: dict[tuple[bool, bool], tuple[str, Any]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}
