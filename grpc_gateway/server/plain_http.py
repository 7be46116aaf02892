"""Requests that are no gRPC: they get their HTTP status, and one line of text."""

from http import HTTPStatus

from grpc_gateway.http2.stream import Stream
from grpc_gateway.server.request import Request

_TEXT = b"this is a gRPC server: it takes POST with content-type application/grpc\n"


class PlainAnswer:
    """Reads past the request's body, up to a bound, and answers."""

    __slots__ = ("_left", "_status", "_stream", "_with_body")

    def __init__(self, stream: Stream, request: Request, status: HTTPStatus, max_body: int) -> None:
        self._stream = stream
        self._status = status
        self._left = max_body
        self._with_body = stream.head.method != "HEAD"

    def news(self) -> None:
        stream = self._stream
        size = sum(map(len, stream.inbox))
        stream.inbox.clear()
        self._left -= size
        if size and not stream.closed:
            stream.consume(size)
        if not stream.finished and (stream.ended or self._left < 0):
            self._answer(stream)

    def _answer(self, stream: Stream) -> None:
        fields = [(b":status", b"%d" % self._status), (b"content-type", b"text/plain; charset=utf-8")]
        if self._status is HTTPStatus.METHOD_NOT_ALLOWED:
            fields.append((b"allow", b"POST"))
        fields.append((b"content-length", b"%d" % len(_TEXT)))
        stream.send_headers(fields, end=not self._with_body)
        if self._with_body:
            stream.send_data(_TEXT, end=True)
