"""A client on the other side of a `Connection`, without any I/O."""

from dataclasses import dataclass, field

import hpack

from grpc_gateway.http2 import frames
from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.limits import DEFAULT_LIMITS, Limits
from grpc_gateway.http2.stream import Stream

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a/B"),
    (":authority", "x"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
END = frames.END_STREAM
END_HEADERS = frames.END_HEADERS


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frames.start(kind, flags, len(payload)) + stream_id.to_bytes(4) + payload


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(frames.DATA, flags, stream_id, payload)


def settings(**values: int) -> bytes:
    numbers = {"header_table_size": 1, "enable_push": 2, "initial_window_size": 4, "max_frame_size": 5}
    return frames.settings({numbers[name]: value for name, value in values.items()})


GREETING = frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK


@dataclass
class Frame:
    """One frame that the server sent."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


@dataclass
class Client:
    """Speaks to a connection; keeps what it answers. `now` is the time that the connection is told."""

    limits: Limits = DEFAULT_LIMITS
    now: float = 0.0
    connection: Connection = field(init=False)
    received: list[Frame] = field(default_factory=list)
    encoder: hpack.Encoder = field(default_factory=hpack.Encoder)
    decoder: hpack.Decoder = field(default_factory=hpack.Decoder)

    def __post_init__(self) -> None:
        self.connection = Connection(self.now, self.limits)

    def greet(self) -> "Client":
        assert self.send(GREETING) == []
        self.received.clear()
        return self

    def send(self, sent: bytes) -> list[Stream]:
        news = self.connection.receive(sent, self.now)
        self.collect()
        return news

    def collect(self) -> list[Frame]:
        """Take the server's frames over; those that are new."""
        new = list(parse(self.connection.take()))
        self.received += new
        return new

    def block(self, *fields: tuple[str, str]) -> bytes:
        return self.encoder.encode(fields or REQUEST)

    def headers(self, stream_id: int, *fields: tuple[str, str], flags: int = 0) -> bytes:
        return frame(frames.HEADERS, flags | END_HEADERS, stream_id, self.block(*fields))

    def request(self, stream_id: int, body: bytes | None = None) -> list[Stream]:
        """A complete request."""
        if body is None:
            return self.send(self.headers(stream_id, flags=END))
        return self.send(self.headers(stream_id) + data(stream_id, body, END))

    def of(self, kind: int) -> list[Frame]:
        return [received for received in self.received if received.kind == kind]

    def decode(self, found: Frame) -> list[tuple[str, str]]:
        """The fields of a HEADERS frame; to be called for all of them, in their order."""
        return [(str(field[0]), str(field[1])) for field in self.decoder.decode(found.payload)]

    @property
    def goaway(self) -> tuple[int, ErrorCode, bytes] | None:
        """Last stream, code and text of the last GOAWAY."""
        found = self.of(frames.GOAWAY)
        if not found:
            return None
        payload = found[-1].payload
        return int.from_bytes(payload[:4]), ErrorCode(int.from_bytes(payload[4:8])), payload[8:]

    @property
    def resets(self) -> list[tuple[int, ErrorCode]]:
        return [(found.stream_id, ErrorCode(int.from_bytes(found.payload))) for found in self.of(frames.RST_STREAM)]

    def body(self, stream_id: int) -> bytes:
        """The DATA of a stream."""
        return b"".join(found.payload for found in self.of(frames.DATA) if found.stream_id == stream_id)


def parse(sent: bytes) -> list[Frame]:
    found, position = [], 0
    while position < len(sent):
        word, flags, stream_id = frames.unpack_header(sent, position)
        start = position + frames.HEADER_SIZE
        position = start + (word >> 8)
        found.append(Frame(word & 0xFF, flags, stream_id, sent[start:position]))
    assert position == len(sent)
    return found
