"""Registered methods and their handlers, in the forms that grpcio's generated code registers."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import grpc

from grpc_gateway.server.metadata import Metadatum
from grpc_gateway.server.request import Request
from grpc_gateway.server.rpc_status import NUMBERS
from grpc_gateway.server.unary_fast_path import plain, reader_of

# Generic handlers may create a new method handler for each call.
_MAX_GENERIC_METHODS = 1024


class Method:
    """One method and its handler.

    behaviour: a coroutine function or asynchronous generator function. A plain function runs in the event loop's
    thread and must not block.
    generating: `behaviour` is an asynchronous generator function.
    taskless: the plain function of an `immediate` handler, else None.
    counts: ended calls, by the number of their status code.

    Raises TypeError for a plain generator function, and ValueError for a handler without a behaviour.
    """

    __slots__ = (
        "behaviour",
        "counts",
        "deserialize",
        "generating",
        "handler",
        "path",
        "request_streaming",
        "response_streaming",
        "serialize",
        "taskless",
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
        if _matches(behaviour, inspect.isgeneratorfunction):
            raise TypeError(f"the handler of {path} is a plain generator function, not an asynchronous one")
        self.taskless: Callable[..., Any] | None = None
        if not self.request_streaming and not self.response_streaming:
            self.taskless = plain(behaviour)
        if self.taskless is not None:
            self.deserialize = reader_of(self.taskless) or self.deserialize
        self.generating = _matches(behaviour, inspect.isasyncgenfunction)
        if not self.generating and not _matches(behaviour, inspect.iscoroutinefunction):
            behaviour = _as_coroutine_function(behaviour, self.response_streaming)
        self.behaviour: Callable[..., Any] = behaviour
        self.counts = [0] * len(NUMBERS)


def _matches(behaviour: Callable[..., Any], predicate: Callable[[Any], bool]) -> bool:
    return predicate(behaviour) or predicate(getattr(behaviour, "__call__", None))  # noqa: B004


def _as_coroutine_function(function: Callable[..., Any], response_streaming: bool) -> Callable[..., Any]:
    """Wrap a plain function, such as a generated servicer's method that is not implemented, or channelz's."""

    async def behaviour(request: Any, context: Any) -> Any:
        response = function(request, context)
        if response_streaming and response is not None:
            raise TypeError("a plain function must not return a streamed response")
        return response

    return behaviour


class CallDetails(grpc.HandlerCallDetails):
    """Path and metadata of a call, for generic handlers."""

    def __init__(self, method: str, invocation_metadata: tuple[Metadatum, ...]) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


async def _not_called(_: Any, __: Any) -> None:
    pass


class Registry:
    """Methods by path: registered ones, then those of generic handlers, in the order of registration.

    unknown: counts the calls of paths without a method.
    """

    def __init__(self) -> None:
        self.unknown = Method("unknown", grpc.unary_unary_rpc_method_handler(_not_called))
        self._registered: dict[str, Method] = {}
        self._generic_handlers: list[grpc.GenericRpcHandler] = []
        # By the id of the method handler, which stays unique as the method refers to it.
        self._generic_methods: dict[int, Method] = {}

    def register(self, service: str, handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]") -> None:
        """Add the methods of a service. Raises TypeError or ValueError for a handler that cannot be run."""
        for name, handler in handlers.items():
            path = f"/{service}/{name}"
            self._registered[path] = Method(path, handler)

    def add_generic(self, handlers: "Iterable[grpc.GenericRpcHandler]") -> None:
        self._generic_handlers += handlers

    def find(self, request: Request) -> Method | None:
        """Return the method at the request's path, or None."""
        path = request.path
        method = self._registered.get(path)
        if method is not None:
            return method
        details = CallDetails(path, request.metadata)
        for generic in self._generic_handlers:
            handler = generic.service(details)
            if handler is not None:
                return self._generic_method(path, handler)
        return None

    def _generic_method(self, path: str, handler: "grpc.RpcMethodHandler[Any, Any]") -> Method:
        known = self._generic_methods.get(id(handler))
        if known is not None and known.path == path:
            return known
        if len(self._generic_methods) >= _MAX_GENERIC_METHODS:
            self._generic_methods.clear()
        method = Method(path, handler)
        self._generic_methods[id(handler)] = method
        return method

    def __iter__(self) -> "Iterator[Method]":
        yield from self._registered.values()
        yield from self._generic_methods.values()
        yield self.unknown
