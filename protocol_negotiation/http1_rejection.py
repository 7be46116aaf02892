"""What an HTTP/1.1 client is told where nothing serves HTTP/1.1: that this is no web server."""

from protocol_negotiation.peer import Peer
from protocol_negotiation.rejection import Farewell

_TEXT = (
    b"This is an access point of Apache RocketMQ, not a web server.\n"
    b"Point a RocketMQ client (remoting or gRPC) at this address.\n"
)


def misdirected(request: bytes) -> bytes:
    """The whole answer to the request that begins with `request`.

    RFC 9110 section 15.5.20: 421 says that the request reached a server that gives no response for its target.
    """
    head = (
        b"HTTP/1.1 421 Misdirected Request\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: %d\r\n"
        b"Connection: close\r\n"
        b"\r\n"
    ) % len(_TEXT)
    # RFC 9110 section 9.3.2: the answer to HEAD has no content.
    return head if request.startswith(b"HEAD ") else head + _TEXT


class Http1Refusal(Farewell):
    """The handler of HTTP/1.1 where no other is configured."""

    __slots__ = ()

    def __init__(self, _: Peer) -> None:
        super().__init__()

    def answer(self, data: bytes) -> bytes:
        return misdirected(data)
