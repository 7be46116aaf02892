"""Which handler serves a method, in the forms that grpcio's generated code registers."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import grpc

from grpc_gateway.server.metadata import Metadatum
from grpc_gateway.server.status import NUMBERS
from grpc_gateway.server.unary_fast_path import plain

# Handlers of generic rpc handlers whose kind is remembered; these may make a new one for every call.
_REMEMBERED = 1024


class Method:
    """One handler with all that is to be known about it.

    asynchronous: a coroutine function or asynchronous generator function; others run in a thread. immediate: the plain
    function of an `immediate` one, which runs at once. counts: calls ended, by the number of their status code.
    """

    __slots__ = (
        "asynchronous",
        "behaviour",
        "counts",
        "deserialize",
        "generating",
        "handler",
        "immediate",
        "path",
        "request_streaming",
        "response_streaming",
        "serialize",
    )

    def __init__(self, path: str, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        self.path = path
        self.handler = handler
        self.request_streaming = bool(handler.request_streaming)
        self.response_streaming = bool(handler.response_streaming)
        self.deserialize = handler.request_deserializer
        self.serialize = handler.response_serializer
        behaviours: tuple[Any, ...] = (
            handler.unary_unary,
            handler.unary_stream,
            handler.stream_unary,
            handler.stream_stream,
        )
        behaviour = behaviours[2 * self.request_streaming + self.response_streaming]
        if behaviour is None:
            raise ValueError(f"the handler of {path} lacks its behaviour")
        self.behaviour: Callable[..., Any] = behaviour
        self.immediate: Callable[..., Any] | None = None
        if not self.request_streaming and not self.response_streaming:
            self.immediate = plain(behaviour)
        self.generating = _either(behaviour, inspect.isasyncgenfunction)
        self.asynchronous = self.generating or _either(behaviour, inspect.iscoroutinefunction)
        self.counts = [0] * len(NUMBERS)


def _either(behaviour: Callable[..., Any], predicate: Callable[[Any], bool]) -> bool:
    return predicate(behaviour) or predicate(getattr(behaviour, "__call__", None))  # noqa: B004


class CallDetails(grpc.HandlerCallDetails):
    """What generic handlers and interceptors are asked with."""

    def __init__(self, method: str, invocation_metadata: tuple[Metadatum, ...]) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


class Registry:
    """Handlers by path: those registered by name, then what generic handlers answer, in their order."""

    def __init__(self) -> None:
        self._registered: dict[str, Method] = {}
        self._generic: list[grpc.GenericRpcHandler] = []
        # By the handler's id, which is nobody else's while its method is here.
        self._remembered: dict[int, Method] = {}

    def register(self, service: str, handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]") -> None:
        for name, handler in handlers.items():
            path = f"/{service}/{name}"
            self._registered[path] = Method(path, handler)

    def add_generic(self, handlers: "Iterable[grpc.GenericRpcHandler]") -> None:
        self._generic += handlers

    def find(self, path: str, metadata: tuple[Metadatum, ...]) -> Method | None:
        method = self._registered.get(path)
        if method is not None:
            return method
        handler = self.handler(CallDetails(path, metadata))
        return None if handler is None else self.method(path, handler)

    def handler(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        method = self._registered.get(details.method)
        if method is not None:
            return method.handler
        for generic in self._generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None

    def method(self, path: str, handler: "grpc.RpcMethodHandler[Any, Any]") -> Method:
        known = self._registered.get(path)
        if known is None or known.handler is not handler:
            known = self._remembered.get(id(handler))
        if known is not None and known.path == path:
            return known
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        method = Method(path, handler)
        self._remembered[id(handler)] = method
        return method

    def __iter__(self) -> "Iterator[Method]":
        yield from self._registered.values()
        yield from self._remembered.values()
