"""An HTTP/2 stream: one request and its response (RFC 9113 section 5)."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Block
from grpc_gateway.http2.request_head import RequestHead

# Headers or trailers to send: a constant block, or fields.
Fields = Block | Sequence[tuple[bytes, bytes]]


class StreamOwner(Protocol):
    """The connection of a stream."""

    def consume(self, stream: "Stream", size: int) -> None:
        """Return `size` received bytes to the peer's windows."""

    def credit(self, size: int) -> None:
        """Return `size` received bytes to the connection's window."""

    def widen(self, stream: "Stream", size: int) -> None:
        """Return `size` received bytes to the stream's window."""

    def reset(self, stream: "Stream", code: ErrorCode) -> None:
        """Close the stream with RST_STREAM."""


class StreamSender(Protocol):
    """The sending side of a stream's connection."""

    def send_headers(self, stream: "Stream", fields: Fields, end: bool) -> None:
        """Send HEADERS."""

    def send_data(self, stream: "Stream", data: bytes, end: bool) -> None:
        """Send DATA, as the windows allow."""

    def send_trailers(self, stream: "Stream", fields: Fields) -> None:
        """Send trailers after all data."""

    def send_response(self, stream: "Stream", head: Block, prefix: bytes, body: bytes, trailers: Block) -> None:
        """Send a whole response."""


class Stream:
    """A stream, as the application sees it. Methods that send do nothing on a closed or finished stream.

    head: the request's header fields.
    inbox: received bytes of the body; the application removes them, and calls `consume` when it has processed them.
    ended: the request is complete.
    finished: the response is complete, although some of it may still be in `outbox`.
    closed: no more bytes will be received or can be sent.
    call: the application's object for this stream.
    waiting: bytes of the response that wait for the peer's windows.
    marked: the stream is in the connection's list of changed streams.
    """

    __slots__ = (
        "_owner",
        "_sender",
        "body_left",
        "call",
        "closed",
        "ended",
        "finished",
        "head",
        "id",
        "inbox",
        "key",
        "marked",
        "opened_at",
        "outbox",
        "receive_window",
        "send_window",
        "trailers",
        "uncredited",
        "unread",
        "waiting",
    )

    def __init__(
        self,
        owner: StreamOwner,
        sender: StreamSender,
        identifier: int,
        head: RequestHead,
        send_window: int,
        receive_window: int,
        now: float,
    ) -> None:
        self._owner = owner
        self._sender = sender
        self.id = identifier
        # The identifier as frames have it.
        self.key = identifier.to_bytes(4)
        self.head = head
        self.inbox: list[bytes] = []
        self.ended = False
        self.finished = False
        self.closed = False
        self.call: Any = None
        self.marked = True
        self.opened_at = now
        # Bytes of the body that content-length announces and that have not arrived.
        self.body_left = head.content_length
        self.send_window = send_window
        self.receive_window = receive_window
        # Bytes received and not consumed; bytes consumed and not yet returned to the peer's window.
        self.unread = self.uncredited = 0
        self.outbox: deque[bytes] | None = None
        self.waiting = 0
        self.trailers: Fields | None = None

    def consume(self, size: int) -> None:
        """Return `size` processed bytes of the request to the peer's windows."""
        self.unread -= size
        self._owner.consume(self, size)

    def consume_withheld(self, size: int) -> None:
        """Return `size` bytes to the connection's window alone, so that other streams go on; `widen` is to follow."""
        self.unread -= size
        self._owner.credit(size)

    def widen(self, size: int) -> None:
        """Return `size` bytes, which `consume_withheld` has withheld, to the stream's window."""
        self._owner.widen(self, size)

    def compact(self) -> None:
        """Join the small pieces of the inbox, which take some 50 bytes each more than their content.

        The first piece is copied each time, so more pieces are allowed to accumulate the larger it is.
        """
        inbox = self.inbox
        if inbox and len(inbox) > 64 + (len(inbox[0]) >> 10):
            self.inbox = [b"".join(inbox)]

    def send_headers(self, fields: Fields, end: bool = False) -> None:
        """Send the response's head; with `end`, it is the whole response."""
        if not self.closed and not self.finished:
            self._sender.send_headers(self, fields, end)

    def send_data(self, data: bytes, end: bool = False) -> None:
        """Send bytes of the response as soon as the peer's windows allow."""
        if not self.closed and not self.finished:
            self._sender.send_data(self, data, end)

    def send_trailers(self, fields: Fields) -> None:
        """End the response with trailers, after all data."""
        if not self.closed and not self.finished:
            self._sender.send_trailers(self, fields)

    def send_response(self, head: Block, prefix: bytes, body: bytes, trailers: Block) -> None:
        """Send a whole response, whose data are `prefix` and `body`."""
        if not self.closed and not self.finished:
            self._sender.send_response(self, head, prefix, body, trailers)

    def reset(self, code: ErrorCode) -> None:
        """Close the stream with RST_STREAM, without a response or within it."""
        if not self.closed:
            self._owner.reset(self, code)
