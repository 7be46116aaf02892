"""Contexts and requests for handlers that are plain functions, which run in threads."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
from grpc.aio import EOF

from grpc_gateway.server.call import Call
from grpc_gateway.server.metadata import Metadata, Metadatum
from grpc_gateway.server.status import OK, RpcError, status_code

T = TypeVar("T")


class SyncContext(grpc.ServicerContext):
    """A `grpc.ServicerContext` over a call; what touches the connection is done by the loop."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self._loop = call.connection.loop

    def _do(self, function: Callable[[], T]) -> T:
        async def do() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    def is_active(self) -> bool:
        return not self.call.done()

    def time_remaining(self) -> Any:
        return self.call.time_remaining()

    def cancel(self) -> bool:
        self._do(self.call.cancel)
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """False when the call has ended already."""
        if self.call.done():
            return False
        self._do(lambda: self.call.add_done_callback(lambda _: callback()))
        return True

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        return self.call.invocation_metadata()

    def peer(self) -> str:
        return self.call.peer()

    def peer_identities(self) -> list[bytes] | None:
        return self.call.peer_identities()

    def peer_identity_key(self) -> str | None:
        return self.call.peer_identity_key()

    def auth_context(self) -> Mapping[str, Any]:
        return self.call.auth_context()

    def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        asyncio.run_coroutine_threadsafe(self.call.send_initial_metadata(initial_metadata), self._loop).result()

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        self.call.set_trailing_metadata(trailing_metadata)

    def trailing_metadata(self) -> Any:
        return self.call.trailing_metadata()

    def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata = ()) -> NoReturn:
        code = status_code(code)
        raise RpcError(grpc.StatusCode.UNKNOWN if code is OK else code, details, tuple(trailing_metadata))

    def abort_with_status(self, status: Any) -> NoReturn:
        self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    def set_code(self, code: grpc.StatusCode) -> None:
        self.call.set_code(code)

    def set_details(self, details: str) -> None:
        self.call.set_details(details)

    def code(self) -> Any:
        return self.call.code()

    def details(self) -> Any:
        return self.call.details()

    def set_compression(self, compression: grpc.Compression) -> None:
        self.call.set_compression(compression)

    def disable_next_message_compression(self) -> None:
        self.call.disable_next_message_compression()


class SyncRequests(Iterator[Any]):
    """The messages of a streamed request, for a thread."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __next__(self) -> Any:
        message = asyncio.run_coroutine_threadsafe(self._call.read(), self._call.connection.loop).result()
        if message is EOF:
            raise StopIteration
        return message
