"""A connection on a fake transport, driven by tests."""

import asyncio
from collections import deque
from typing import Any

from protocol_negotiation.peer import Peer
from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.connection import Handler, RemotingConnection
from remoting.flow_control import Limits
from remoting.frame import FrameDecoder
from remoting.outcomes import Reply
from remoting.timeout_wheel import TimeoutWheel


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeTransport(asyncio.Transport):
    """A transport that records written bytes; tests set its buffer size and deliver data."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written: list[bytes] = []
        self._reading = True
        self.closing = False
        self.aborted = False
        self.buffer_size = 0
        self.high: int | None = None

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written.append(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.buffer_size

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self.aborted = True
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def take(self) -> list[RemotingCommand]:
        """Return the commands written since the last call."""
        frames = FrameDecoder().feed(b"".join(self.written))
        self.written.clear()
        return [commands.decode(frame) for frame in frames]


class Side:
    """A connection on a fake transport, with the requests and the close that it reported."""

    def __init__(self, handler: Handler | None = None, limits: Limits | None = None, peer: Peer | None = None) -> None:
        self.clock = Clock()
        self.wheel = TimeoutWheel(self.clock)
        self.requests: list[RemotingCommand] = []
        self.replies: deque[Reply] = deque()
        self.closed: list[RemotingConnection] = []
        self.connection = RemotingConnection(
            self.wheel, handler or self.handle, self.closed.append, peer, name="peer", limits=limits or Limits()
        )
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def handle(self, _: RemotingConnection, command: RemotingCommand) -> Reply:
        """Serve a request; the test sets the response in `replies`."""
        reply: Reply = asyncio.get_running_loop().create_future()
        self.requests.append(command)
        self.replies.append(reply)
        return reply

    def receive(self, *sent: RemotingCommand) -> None:
        self.connection.data_received(b"".join(command.encode() + command.body for command in sent))

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wheel.advance()


async def run_ready() -> None:
    """Run the callbacks that are ready, and those that they schedule."""
    for _ in range(5):
        await asyncio.sleep(0)


def peer_request(opaque: int, body: bytes = b"", serialize_type: int = 0, oneway: bool = False) -> RemotingCommand:
    """Return a request of the peer."""
    command = commands.request(RequestCode.HEART_BEAT, body=body, oneway=oneway)
    command.opaque = opaque
    command.serialize_type = serialize_type
    return command


def peer_response(opaque: int, body: bytes = b"") -> RemotingCommand:
    """Return the peer's response to a request of this side."""
    return commands.answer(commands.success(body=body), opaque, 0)


def send_request(side: Side, timeout: float = 3.0, **more: Any) -> Reply:
    return side.connection.request(commands.request(RequestCode.GET_MAX_OFFSET), timeout, **more)
