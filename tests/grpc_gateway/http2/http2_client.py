"""An HTTP/2 client of a `Connection`, without I/O."""

from dataclasses import dataclass, field

import hpack

from grpc_gateway.http2 import frames
from grpc_gateway.http2.connection import Connection
from grpc_gateway.http2.errors import ErrorCode
from grpc_gateway.http2.hpack import Block
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
HEAD = Block((":status", "200"), ("content-type", "application/grpc"))
TRAILERS = Block(("grpc-status", "0"))
END = frames.END_STREAM
END_HEADERS = frames.END_HEADERS


def frame_bytes(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frames.start(kind, flags, len(payload)) + stream_id.to_bytes(4) + payload


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frame_bytes(frames.DATA, flags, stream_id, payload)


def settings(**values: int) -> bytes:
    numbers = {"header_table_size": 1, "enable_push": 2, "initial_window_size": 4, "max_frame_size": 5}
    return frames.settings({numbers[name]: value for name, value in values.items()})


PREFACE = frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK


@dataclass
class Frame:
    """A frame sent by the server."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


@dataclass
class Client:
    """Sends frames to a connection, and records its frames. `now` is the connection's clock."""

    limits: Limits = DEFAULT_LIMITS
    now: float = 0.0
    connection: Connection = field(init=False)
    received: list[Frame] = field(default_factory=list)
    encoder: hpack.Encoder = field(default_factory=hpack.Encoder)
    decoder: hpack.Decoder = field(default_factory=hpack.Decoder)

    def __post_init__(self) -> None:
        self.connection = Connection(self.now, self.limits)

    def connect(self) -> "Client":
        assert self.send(PREFACE) == []
        self.received.clear()
        return self

    def send(self, sent: bytes) -> list[Stream]:
        """Send bytes; return the streams that have changed, each once."""
        changed = self.connection.receive(sent, self.now)
        while self.connection.pending:
            changed += [stream for stream in self.connection.receive_more(self.now) if stream not in changed]
        self.collect()
        return changed

    def collect(self) -> list[Frame]:
        """Record the server's new frames, and return them."""
        new = list(parse(self.connection.sender.take()))
        self.received += new
        return new

    def block(self, *fields: tuple[str, str]) -> bytes:
        return self.encoder.encode(fields or REQUEST)

    def headers(self, stream_id: int, *fields: tuple[str, str], flags: int = 0) -> bytes:
        return frame_bytes(frames.HEADERS, flags | END_HEADERS, stream_id, self.block(*fields))

    def request(self, stream_id: int, body: bytes | None = None) -> list[Stream]:
        """Send a complete request."""
        if body is None:
            return self.send(self.headers(stream_id, flags=END))
        return self.send(self.headers(stream_id) + data(stream_id, body, END))

    def received_of(self, kind: int) -> list[Frame]:
        """Return the recorded frames of one type."""
        return [received for received in self.received if received.kind == kind]

    def decode(self, headers: Frame) -> list[tuple[str, str]]:
        """Return the fields of a HEADERS frame. To be called for all of them, in their order."""
        return [(str(field[0]), str(field[1])) for field in self.decoder.decode(headers.payload)]

    @property
    def goaway(self) -> tuple[int, ErrorCode, bytes] | None:
        """Last stream identifier, code and text of the last GOAWAY."""
        goaways = self.received_of(frames.GOAWAY)
        if not goaways:
            return None
        payload = goaways[-1].payload
        return int.from_bytes(payload[:4]), ErrorCode(int.from_bytes(payload[4:8])), payload[8:]

    @property
    def resets(self) -> list[tuple[int, ErrorCode]]:
        return [
            (frame.stream_id, ErrorCode(int.from_bytes(frame.payload))) for frame in self.received_of(frames.RST_STREAM)
        ]

    def body(self, stream_id: int) -> bytes:
        """Return the DATA received on a stream."""
        return b"".join(frame.payload for frame in self.received_of(frames.DATA) if frame.stream_id == stream_id)


def parse(sent: bytes) -> list[Frame]:
    """Split bytes into frames."""
    parsed, position = [], 0
    while position < len(sent):
        word, flags, stream_id = frames.unpack_header(sent, position)
        start = position + frames.HEADER_SIZE
        position = start + (word >> 8)
        parsed.append(Frame(word & 0xFF, flags, stream_id, sent[start:position]))
    assert position == len(sent)
    return parsed
