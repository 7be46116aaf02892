"""Rejection of requests that are not gRPC: an HTTP status and one line of text."""

from http import HTTPStatus

from grpc_gateway.http2.stream import Stream

_TEXT = b"this is a gRPC server: it takes POST with content-type application/grpc\n"


class HttpRejection:
    """Discards a request's body, up to `max_body` bytes, and then sends the status."""

    __slots__ = ("_remaining", "_status", "_stream", "_with_body")

    def __init__(self, stream: Stream, status: HTTPStatus, max_body: int) -> None:
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
        if not stream.finished and (stream.ended or self._remaining < 0):
            self._respond(stream)

    def _respond(self, stream: Stream) -> None:
        fields = [(b":status", b"%d" % self._status), (b"content-type", b"text/plain; charset=utf-8")]
        if self._status is HTTPStatus.METHOD_NOT_ALLOWED:
            fields.append((b"allow", b"POST"))
        fields.append((b"content-length", b"%d" % len(_TEXT)))
        stream.send_headers(fields, end=not self._with_body)
        if self._with_body:
            stream.send_data(_TEXT, end=True)
