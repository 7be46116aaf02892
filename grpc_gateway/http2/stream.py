"""One HTTP/2 stream: a request and its answer (RFC 9113 section 5)."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Block
from grpc_gateway.http2.request_head import RequestHead

if TYPE_CHECKING:
    from grpc_gateway.http2.connection import Connection

# What trailers or headers are given as: a constant, or fields.
Fields = Block | Sequence[tuple[bytes, bytes]]


class Stream:
    """What has come of a request is in `head`, `inbox` and `ended`; the answer goes out by the methods.

    inbox: received bytes of the body; the application takes them out, and says by `consume` when they no longer burden
    it. ended: the request is complete. closed: nothing more will come or can be sent. reset_code: why, where the
    stream ended before its answer. call: the application's own. waiting: bytes of the answer that wait for the peer.
    """

    __slots__ = (
        "body_left",
        "call",
        "closed",
        "connection",
        "ended",
        "finished",
        "head",
        "id",
        "inbox",
        "key",
        "noted",
        "opened_at",
        "outbox",
        "receive_window",
        "reset_code",
        "send_window",
        "trailers",
        "uncredited",
        "unread",
        "waiting",
    )

    def __init__(
        self, connection: "Connection", identifier: int, head: RequestHead, send_window: int, receive_window: int
    ) -> None:
        self.connection = connection
        self.id = identifier
        self.key = identifier.to_bytes(4)
        self.head = head
        self.inbox: list[bytes] = []
        self.ended = False
        # Our side has said all: what is in `outbox`, then `trailers`, is the rest.
        self.finished = False
        self.closed = False
        self.reset_code: int | None = None
        self.call: Any = None
        self.noted = True
        self.opened_at = 0.0
        self.body_left = head.content_length
        self.send_window = send_window
        self.receive_window = receive_window
        # Received and not consumed yet; consumed and not yet given back to the peer.
        self.unread = self.uncredited = 0
        self.outbox: deque[bytes] | None = None
        self.waiting = 0
        self.trailers: Fields | None = None

    def consume(self, size: int) -> None:
        """The application is done with `size` bytes of what was in the inbox: the peer may send as many again."""
        self.unread -= size
        self.connection.consume(self, size)

    def compact(self) -> None:
        """Hold what came in many small pieces as one, as long as nobody takes it."""
        inbox = self.inbox
        # A piece costs some 50 bytes; more of them are let come while the first is large, which is copied each time.
        if inbox and len(inbox) > 64 + (len(inbox[0]) >> 10):
            self.inbox = [b"".join(inbox)]

    def send_headers(self, fields: Fields, end: bool = False) -> None:
        """The answer's head; with `end` all of it. Does nothing on a closed stream, as the other methods."""
        if not self.closed and not self.finished:
            self.connection.send_headers(self, fields, end)

    def send_data(self, data: bytes, end: bool = False) -> None:
        """Bytes of the answer, as soon as the peer's windows admit them."""
        if not self.closed and not self.finished:
            self.connection.send_data(self, data, end)

    def send_trailers(self, fields: Fields) -> None:
        """The end of the answer, behind all data."""
        if not self.closed and not self.finished:
            self.connection.send_trailers(self, fields)

    def answer(self, head: Block, prefix: bytes, body: bytes, trailers: Block) -> None:
        """A whole answer at once: its data are `prefix` and `body`."""
        if not self.closed and not self.finished:
            self.connection.answer(self, head, prefix, body, trailers)

    def reset(self, code: ErrorCode) -> None:
        """End the stream without, or in the midst of, an answer."""
        if not self.closed:
            self.connection.reset(self, code)
