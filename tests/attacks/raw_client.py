"""A raw HTTP/2 client, which sends arbitrary bytes and records the received frames.

Frames are those of RFC 9113 section 4.1. The client observes no rules by itself, except that it acknowledges SETTINGS,
and pings while it waits: a server closes connections that do not, and waits are long on a busy machine.
"""

import gzip
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Self

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HOST = "127.0.0.1"
# Seconds in which a server answers, on a busy machine too.
_PATIENCE = 90.0
_CHUNK = 1 << 16

Headers = Iterable[tuple[str, str]]


class Kind(IntEnum):
    """Frame types of RFC 9113 section 6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8


class Code(IntEnum):
    """Error codes of RFC 9113 section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Setting(IntEnum):
    """SETTINGS parameters of RFC 9113 section 6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Frame(NamedTuple):
    """A received frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> Code:
        """The error code of RST_STREAM or GOAWAY."""
        return Code(int.from_bytes(self.payload[4:8] if self.kind == Kind.GOAWAY else self.payload[:4]))


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + struct.pack("!BBI", kind, flags, stream) + payload


def settings(values: Mapping[int, int]) -> bytes:
    return frame(Kind.SETTINGS, payload=b"".join(struct.pack("!HI", *pair) for pair in values.items()))


def data(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    return frame(Kind.DATA, END_STREAM * end, stream, payload)


def rst_stream(stream: int, code: Code = Code.CANCEL) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream, struct.pack("!I", code))


def window_update(stream: int, increment: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream, struct.pack("!I", increment))


def message(body: bytes, *, compressed: bool = False) -> bytes:
    """Return a length-prefixed gRPC message; `compressed`: by gzip."""
    body = gzip.compress(body) if compressed else body
    return struct.pack("!BI", compressed, len(body)) + body


@dataclass
class Response:
    """The response on one stream. `reset` is the code of RST_STREAM."""

    headers: list[dict[str, str]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    reset: Code | None = None

    @property
    def finished(self) -> bool:
        return self.ended or self.reset is not None

    @property
    def http_status(self) -> int | None:
        return int(self.headers[0][":status"]) if self.headers else None

    @property
    def grpc_status(self) -> int | None:
        """Status of the trailers, or of a response of trailers only."""
        status = self.headers[-1].get("grpc-status") if self.headers else None
        return int(status) if status is not None else None

    @property
    def messages(self) -> list[tuple[bool, bytes]]:
        """The gRPC messages: whether each is compressed by gzip, and its decompressed content."""
        messages, rest = [], self.body
        while rest:
            flag, length = struct.unpack("!BI", rest[:5])
            body, rest = rest[5 : 5 + length], rest[5 + length :]
            messages.append((bool(flag), gzip.decompress(body) if flag else body))
        return messages


class Client:
    """One connection; a context manager.

    window: SETTINGS_INITIAL_WINDOW_SIZE and the connection's window.
    context: for TLS.
    receive_buffer: size of the socket's receive buffer, for clients that read slowly.
    preface: send the client's preface.
    """

    def __init__(
        self,
        port: int,
        *,
        window: int = (1 << 31) - 1,
        context: ssl.SSLContext | None = None,
        server_name: str = "",
        receive_buffer: int | None = None,
        preface: bool = True,
    ) -> None:
        plain = socket.socket()
        if receive_buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(_PATIENCE)
        plain.connect((HOST, port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname=server_name) if context else plain
        self._scheme = "https" if context else "http"
        self._encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self._received = bytearray()
        # Acknowledgements of pings, which wait while other frames are being sent.
        self._pongs = b""
        self._block = b""
        self.responses: dict[int, Response] = {}
        self.goaway: Frame | None = None
        self.closed = False
        self.settings: dict[int, int] = {}
        # The server's windows by stream; stream 0 is the connection. Only `upload` observes them.
        self._windows: dict[int, int] = {0: 0xFFFF}
        if preface:
            self._socket.sendall(PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: window}))
            if window > 0xFFFF:
                self._socket.sendall(window_update(0, window - 0xFFFF))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    # Encoding of requests.

    def block(self, headers: Headers, *, literal: bool = False) -> bytes:
        """Return a field block; `literal`: without Huffman coding."""
        return self._encoder.encode(list(headers), huffman=not literal)

    def request(self, path: str, *more: tuple[str, str], method: str = "POST") -> Headers:
        """Return the fields of a gRPC request; `more` may replace some."""
        fields = {":method": method, ":scheme": self._scheme, ":path": path, ":authority": "gantry.test"}
        return (fields | {"content-type": "application/grpc", "te": "trailers"} | dict(more)).items()

    def headers(self, stream: int, headers: Headers, *, end: bool = False) -> bytes:
        return frame(Kind.HEADERS, END_HEADERS | END_STREAM * end, stream, self.block(headers))

    def call(self, stream: int, path: str, body: bytes, *more: tuple[str, str]) -> bytes:
        """Return the frames of a unary request."""
        return self.headers(stream, self.request(path, *more)) + data(stream, message(body), end=True)

    # Sending and receiving.

    def send(self, octets: bytes) -> bool:
        """Send without reading; return False if the server has closed the connection."""
        try:
            self._socket.sendall(octets)
        except (ConnectionError, ssl.SSLError):
            return False
        return True

    def close_sending(self) -> None:
        """Close the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def blast(self, octets: bytes, seconds: float = _PATIENCE) -> None:
        """Send and read concurrently until everything is sent, or the server sends GOAWAY or closes the connection."""
        rest, deadline = memoryview(octets), time.monotonic() + seconds
        self._socket.setblocking(False)
        try:
            while rest and not self.closed and self.goaway is None and time.monotonic() < deadline:
                readable, writable, _ = select.select([self._socket], [self._socket], [], 0.1)
                if readable:
                    self._read()
                if writable and not self.closed:
                    rest = rest[self._send_some(rest[:_CHUNK]) :]
        finally:
            self._socket.settimeout(_PATIENCE)

    def upload(self, stream: int, octets: bytes, *, end: bool = True, seconds: float = _PATIENCE) -> None:
        """Send DATA as the server's windows allow, until the response ends. Raises TimeoutError if they do not."""
        self.until(lambda client: client.settings)
        rest = octets
        while rest:
            if not self.until(lambda client: client.window(stream) > 0 or client._response(stream).finished, seconds):
                raise TimeoutError(f"stream {stream}: no window, {len(rest)} bytes to send, {self.goaway}")
            if self._response(stream).finished:
                return
            size = min(self.window(stream), 1 << 14)
            chunk, rest = rest[:size], rest[size:]
            self.use_window(stream, len(chunk))
            # Read as well: a server whose responses are not read may stop reading.
            self.blast(data(stream, chunk, end=end and not rest), seconds)

    def window(self, stream: int) -> int:
        """Return the bytes that the windows of a stream and of the connection admit."""
        initial = self.settings.get(Setting.INITIAL_WINDOW_SIZE, 0xFFFF)
        return min(self._windows[0], initial + self._windows.get(stream, 0))

    def use_window(self, stream: int, size: int) -> None:
        """Record that `size` bytes of DATA are sent."""
        for owner in (0, stream):
            self._windows[owner] = self._windows.get(owner, 0) - size

    def until(self, condition: "Callable[[Client], object]", seconds: float = _PATIENCE) -> bool:
        """Read until the condition holds, the connection ends or time is up; return whether the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            remaining = deadline - time.monotonic()
            if self.closed or remaining <= 0:
                return bool(condition(self))
            if self._pending() or select.select([self._socket], [], [], remaining)[0]:
                self._read()
            if self._pongs:
                self.send(self._pongs)
                self._pongs = b""
        return True

    def response(self, stream: int, seconds: float = _PATIENCE) -> Response:
        """Read a whole response. Raises TimeoutError if it is not complete in time."""
        if not self.until(lambda client: stream in client.responses and client.responses[stream].finished, seconds):
            raise TimeoutError(f"stream {stream}: {self.responses.get(stream)}, {self.goaway}, closed: {self.closed}")
        return self.responses[stream]

    def goaway_code(self, seconds: float = _PATIENCE) -> Code | None:
        """Read until GOAWAY; return its error code, or None if the connection ends or time is up before."""
        self.until(lambda client: client.goaway, seconds)
        return self.goaway.code if self.goaway is not None else None

    def _pending(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _send_some(self, octets: memoryview) -> int:
        try:
            return self._socket.send(octets)
        except BlockingIOError:
            return 0
        except ConnectionError:
            # Frames that the server sent before it closed may still be in the socket.
            self.until(lambda client: client.closed)
            self.closed = True
            return 0

    def _read(self) -> None:
        try:
            octets = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except ConnectionError:
            octets = b""
        self.closed = not octets
        self._received += octets
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[:3])
            if len(self._received) < 9 + length:
                break
            kind, flags, stream = struct.unpack("!BBI", self._received[3:9])
            payload = bytes(self._received[9 : 9 + length])
            del self._received[: 9 + length]
            self._handle(Frame(kind, flags, stream, payload))

    def _handle(self, received: Frame) -> None:
        match received.kind:
            case Kind.GOAWAY:
                self.goaway = received
            case Kind.SETTINGS if not received.flags & ACK:
                self.settings |= dict(struct.iter_unpack("!HI", received.payload))
                self.send(frame(Kind.SETTINGS, ACK))
            case Kind.PING if not received.flags & ACK:
                self._pongs += frame(Kind.PING, ACK, payload=received.payload)
            case Kind.HEADERS | Kind.CONTINUATION:
                self._fields(received)
            case Kind.DATA:
                self._response(received.stream).body += received.payload
            case Kind.RST_STREAM:
                self._response(received.stream).reset = received.code
            case Kind.WINDOW_UPDATE:
                self._windows[received.stream] = self._windows.get(received.stream, 0) + int.from_bytes(
                    received.payload
                )
        if received.kind in (Kind.HEADERS, Kind.DATA) and received.flags & END_STREAM:
            self._response(received.stream).ended = True

    def _fields(self, received: Frame) -> None:
        self._block += received.payload
        if received.flags & END_HEADERS:
            fields = self._decoder.decode(self._block)
            self._block = b""
            self._response(received.stream).headers.append({str(name): str(value) for name, value in fields})

    def _response(self, stream: int) -> Response:
        return self.responses.setdefault(stream, Response())
