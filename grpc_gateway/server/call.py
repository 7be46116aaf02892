"""One call: the stream's news on one side, the handler's context on the other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import grpc
from grpc.aio import UsageError

from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.server import identity
from grpc_gateway.server.metadata import Metadata, Metadatum, encode
from grpc_gateway.server.response_writer import ResponseWriter
from grpc_gateway.server.status import OK, status_code

if TYPE_CHECKING:
    from protocol_negotiation.peer import Peer

_CANCELLED, _DEADLINE_EXCEEDED = grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED


class Call(ResponseWriter, grpc.aio.ServicerContext[Any, Any]):
    """The context of a handler; everything but what grpc.aio defines is for the server, and for `connection`.

    All methods are for the event loop's thread.
    """

    _deadline: float | None = None

    # News of the stream, and of the clock.

    def news(self) -> None:
        """The stream has received something, has room again, or is gone."""
        stream = self.stream
        if stream.inbox:
            self._feed(stream)
        if self._done:
            # Refused for what it holds.
            return
        if stream.closed:
            self._lose()
            return
        self._take_in()
        if self._writer is not None and stream.waiting <= self.connection.options.limits.stream_buffer:
            self._writer.set_result(None)
            self._writer = None

    def _lose(self) -> None:
        """The client gave the call up, or is gone."""
        self._cancelled = True
        self.connection.server.stats.cancelled += 1
        self._settle(_CANCELLED)

    def expire(self) -> None:
        """The deadline has passed."""
        if not self._done:
            self.connection.server.stats.expired += 1
            self._cancelled = True
            self.finish(_DEADLINE_EXCEEDED, "Deadline Exceeded")

    def run(self, flag: int, message: bytes) -> None:
        self.connection.begin(self, flag, message)

    def start_deadline(self, timeout: float) -> None:
        loop = self.connection.loop
        self._deadline = at = loop.time() + timeout
        self._slot = self.connection.server.deadlines.add(self, at)

    # Other things of the context.

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        trailing = tuple(trailing_metadata)
        encode(trailing)
        self._trailing = trailing

    def trailing_metadata(self) -> Any:
        return self._trailing

    def invocation_metadata(self) -> tuple[Metadatum, ...]:  # type: ignore[override]
        return self._request.metadata

    def set_code(self, code: Any) -> None:
        self._code = status_code(code)

    def code(self) -> Any:
        return OK if self._code is None else self._code

    def set_details(self, details: str) -> None:
        if not isinstance(details, str):
            raise TypeError(f"details are {type(details).__name__} instead of str")
        self._details = details

    def details(self) -> str:
        return self._details

    def set_compression(self, compression: grpc.Compression) -> None:
        if self._head_sent:
            raise UsageError("compression must be set before the first message")
        self._compression = compression

    def disable_next_message_compression(self) -> None:
        self._plain_next = True

    def time_remaining(self) -> Any:
        """Seconds until the deadline; None without one."""
        if self._deadline is None:
            return None
        return max(self._deadline - self.connection.loop.time(), 0.0)

    def add_done_callback(self, callback: Any) -> None:
        if self._done:
            self._tell(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._done

    def cancel(self) -> None:
        """The server itself gives the call up."""
        self._cancelled = True
        self.finish(_CANCELLED, "the server gave the call up")

    # Who calls.

    @property
    def peer_info(self) -> "Peer":
        """The client, as the listener knows it."""
        return self.connection.peer

    @property
    def path(self) -> str:
        return self._request.path

    def peer(self) -> str:
        return identity.peer_uri(self.connection.peer)

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return identity.auth_context(self.connection.peer)

    def peer_identity_key(self) -> str | None:
        return identity.COMMON_NAME if identity.COMMON_NAME in self.auth_context() else None

    def peer_identities(self) -> list[bytes] | None:
        return self.auth_context().get(identity.COMMON_NAME)

    def reset(self, code: ErrorCode) -> None:
        """End the stream without a status."""
        self.stream.reset(code)
