"""Rejection of requests that are not gRPC: an HTTP status and one line of text."""

from http import HTTPStatus

from grpc_gateway.http2.stream import Stream
from grpc_gateway.server.open_calls import OpenCalls

_TEXT = b"this is a gRPC server: it takes POST with content-type application/grpc\n"


class HttpRejection:
    """Discards a request's body, up to `max_body` bytes, and then sends the status."""

    __slots__ = ("_calls", "_remaining", "_status", "_stream", "_with_body")

    def __init__(self, stream: Stream, status: HTTPStatus, max_body: int, calls: OpenCalls) -> None:
        self._calls = calls
        self._stream = stream
        self._status = status
        self._remaining = max_body
        self._with_body = stream.head.method != "HEAD"

    def on_stream_change(self) -> None:
        """Discard received bytes; send the response at the end of the request, or once it exceeds its limit."""
        stream = self._stream
        size = sum(map(len, stream.inbox))
        stream.inbox.clear()
        self._remaining -= size
        if size and not stream.closed:
            stream.consume(size)
        if stream.closed:
            self._calls.finish_request(stream)
        elif not stream.finished:
            if stream.ended or self._remaining < 0:
                self._respond(stream)
            else:
                self._calls.unfinished.setdefault(stream, self._calls.deadlines.now)

    def on_request_timeout(self) -> None:
        """Send the response because the request does not end."""
        self._respond(self._stream)

    def _respond(self, stream: Stream) -> None:
        self._calls.finish_request(stream)
        fields = [(b":status", b"%d" % self._status), (b"content-type", b"text/plain; charset=utf-8")]
        if self._status is HTTPStatus.METHOD_NOT_ALLOWED:
            fields.append((b"allow", b"POST"))
        fields.append((b"content-length", b"%d" % len(_TEXT)))
        stream.send_headers(fields, end=not self._with_body)
        if self._with_body:
            stream.send_data(_TEXT, end=True)
