"""A remoting connection: one end of a TCP connection over which both sides send requests.

The same class serves clients (their requests go to a handler, ours are pushes) and speaks to
brokers and name servers (ours are the requests, theirs the pushes).

Back-pressure is three rules:
1. A peer that has too many unanswered requests here, by number or by bytes, is not read from. Those
   that are held for long (polls) count less, or a consumer of many queues could say nothing else.
2. A peer that does not read its answers is not read from; past a hard bound it is cut off.
3. Whoever feeds a congested connection is not read from until that one drains (`hold`).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, cast

from protocol_negotiation.peer import Peer
from remoting import command as commands
from remoting.codes import ONEWAY_FLAG, RESPONSE_FLAG, SerializeType
from remoting.command import RemotingCommand
from remoting.errors import ConnectionLost, FrameError, HeaderError, InvalidRequest, RemotingError, RequestTimeout
from remoting.frame import MAX_FRAME, Frame, FrameDecoder
from remoting.wheel import TimeoutWheel

_log = logging.getLogger("gantry.remoting")

# What a connection does with its peer's requests: a future of the answer, or None where there is none.
Handler = Callable[["RemotingConnection", RemotingCommand], "asyncio.Future[RemotingCommand] | None"]
# Takes over a request whose connection went away before the answer came.
Lost = Callable[[RemotingCommand, "asyncio.Future[RemotingCommand]"], None]


class Source(Protocol):
    """Whoever feeds a connection and can be kept from being read."""

    def pause(self) -> None:
        """Read no further."""

    def resume(self) -> None:
        """Undo one `pause`."""


class CloseCause(StrEnum):
    """Why a connection ended; the values are metric labels."""

    PEER = "peer"
    RESET = "reset"
    IDLE = "idle"
    PROTOCOL = "protocol"
    SLOW_READER = "slow_reader"
    DRAIN = "drain"
    OPERATOR = "operator"
    UNRESPONSIVE = "unresponsive"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection.

    requests: unanswered requests at which reading stops, for a moment at least: when the peer stays at
    the bound, as with long polls, it may have more and more of them, up to `waiting`.
    request_bytes: bytes of unanswered requests at which reading stops.
    buffer: bytes waiting to be written at which reading stops; hard_buffer: at which the peer is cut off.
    frame: the largest frame accepted, in bytes.
    """

    requests: int = 64
    waiting: int = 4096
    request_bytes: int = 32 * 1024 * 1024
    buffer: int = 1024 * 1024
    hard_buffer: int = 128 * 1024 * 1024
    frame: int = MAX_FRAME


# Seconds at a bound after which unanswered requests are taken for ones that wait: long polls.
_TIMEOUT = 0.1


class _Patience:
    """Waits, on the timeout wheel, to see whether a connection stays at its bound."""

    __slots__ = ("_connection",)

    def __init__(self, connection: "RemotingConnection") -> None:
        self._connection = connection

    def expire(self) -> None:
        self._connection.stayed()


class Call:
    """One request of ours that waits for its answer."""

    __slots__ = ("command", "connection", "future", "lost", "opaque", "timeout")

    def __init__(
        self,
        connection: "RemotingConnection",
        command: RemotingCommand,
        future: "asyncio.Future[RemotingCommand]",
        lost: Lost | None,
        timeout: float,
    ) -> None:
        self.timeout = timeout
        self.connection: RemotingConnection | None = connection
        self.command: RemotingCommand | None = command
        self.future: asyncio.Future[RemotingCommand] | None = future
        self.lost = lost
        self.opaque = command.opaque

    def end(self) -> "asyncio.Future[RemotingCommand] | None":
        """Let go of everything, as the timeout wheel keeps this object; return the future if it still waits."""
        future = self.future
        self.connection = self.command = self.future = self.lost = None
        return None if future is None or future.done() else future

    def expire(self) -> None:
        """The answer did not come in time."""
        connection, command = self.connection, self.command
        if connection is None or command is None:
            return
        connection.forget(self.opaque)
        future = self.end()
        if future is not None:
            future.set_exception(RequestTimeout(f"{connection.name} did not answer request {command.code} in time"))
        connection.overdue(self.timeout)


class RemotingConnection(asyncio.Protocol):
    """One end of a remoting connection. All methods are for the event loop's thread."""

    __slots__ = (
        "_allowed",
        "_backlog",
        "_decoder",
        "_full_since",
        "_held",
        "_holds",
        "_opaque",
        "_out",
        "_pending",
        "_under_way",
        "_under_way_bytes",
        "_watched",
        "_wheel",
        "answers",
        "cause",
        "closed",
        "congested",
        "handler",
        "limits",
        "loop",
        "name",
        "on_close",
        "opened_at",
        "pauses",
        "peer",
        "read_at",
        "received_bytes",
        "requests",
        "sent_bytes",
        "transport",
        "undecodable",
    )

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[["RemotingConnection"], None],
        peer: Peer | None = None,
        name: str = "",
        limits: Limits = Limits(),
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.handler = handler
        self.on_close = on_close
        self.peer = peer
        self.name = name or str(peer and peer.address)
        self.limits = limits
        self.transport: asyncio.Transport | None = None
        self.cause: CloseCause | None = None
        self.closed = False
        self.opened_at = self.read_at = self.loop.time()
        self.received_bytes = self.sent_bytes = 0
        # Of the peer's, how many have come; answers to ours; what could not be read; how often reading stopped.
        self.requests = self.answers = self.undecodable = self.pauses = 0
        self.congested = False
        self._wheel = wheel
        self._decoder = FrameDecoder(limits.frame)
        self._pending: dict[int, Call] = {}
        self._opaque = 0
        self._under_way = self._under_way_bytes = 0
        self._full_since: float | None = None
        self._allowed = limits.requests
        self._watched = False
        self._backlog: list[Frame] = []
        self._out: list[bytes] = []
        self._holds = 0
        # A dict for its order and its quick look-up.
        self._held: dict[Source, None] = {}

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loops' transports are duck-typed: uvloop's does not inherit asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.limits.buffer)

    def data_received(self, data: bytes) -> None:
        self.read_at = self.loop.time()
        self.received_bytes += len(data)
        trouble = None
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            frames, trouble = error.frames, error
        if self._backlog:
            self._backlog += frames
        else:
            self._take(frames)
        if trouble is not None and self.cause is None:
            self._protocol_error(trouble, data)

    def pause_writing(self) -> None:
        self.congested = True
        self.pause()

    def resume_writing(self) -> None:
        self.congested = False
        self.resume()
        self.release()

    def connection_lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.congested = False
        if self.cause is None:
            self.cause = CloseCause.PEER if error is None else CloseCause.RESET
        self.release()
        # First: whoever repeats a lost request must not find this connection again.
        self.on_close(self)
        calls, self._pending = self._pending, {}
        for call in calls.values():
            self._lose(call)

    # Requests of the peer.

    def _take(self, frames: list[Frame]) -> None:
        """Take frames in until the bound is met; the rest has its turn later, after other connections had theirs."""
        for number, frame in enumerate(frames, 1):
            self._receive(frame)
            if self.cause is not None:
                return
            if self._full_since is not None and number < len(frames):
                self._backlog = frames[number:]
                self.pause()
                return

    def _work_off(self) -> None:
        if self._full_since is None and self._backlog and not self.closed:
            frames, self._backlog = self._backlog, []
            self.resume()
            self._take(frames)

    def _receive(self, frame: Frame) -> None:
        try:
            command = commands.decode(frame)
        except HeaderError as error:
            if error.opaque is None:
                self._protocol_error(error, frame[1])
                return
            self.undecodable += 1
            self.on_decode_error(error, frame[1])
            if not error.oneway:
                self._write(_failure(error), error.opaque, frame[0])
            return
        if command.flag & RESPONSE_FLAG:
            self.answers += 1
            call = self._pending.pop(command.header["opaque"], None)
            # An answer after its deadline has nobody left to take it.
            future = None if call is None else call.end()
            if future is not None:
                future.set_result(command)
        else:
            self._serve(command, len(frame[1]) + len(frame[2]))

    def _serve(self, command: RemotingCommand, size: int) -> None:
        self.requests += 1
        # Taken now: whoever forwards the command puts another opaque and encoding into it.
        opaque, serialize_type, oneway = command.header["opaque"], command.serialize_type, command.flag & ONEWAY_FLAG
        try:
            reply = self.handler(self, command)
        except RemotingError as error:
            if not oneway:
                self._write(_failure(error), opaque, serialize_type)
            return
        if reply is None:
            return
        self._under_way += 1
        self._under_way_bytes += size
        if self._under_way >= self._allowed or self._under_way_bytes >= self.limits.request_bytes:
            self._fill()
        if oneway:
            reply.add_done_callback(partial(self._end_oneway, size))
        else:
            reply.add_done_callback(partial(self._reply, opaque, serialize_type, size))

    def _end_oneway(self, size: int, reply: "asyncio.Future[RemotingCommand]") -> None:
        self._settle(size)
        _consume(reply)

    def _reply(self, opaque: int, serialize_type: int, size: int, reply: "asyncio.Future[RemotingCommand]") -> None:
        self._settle(size)
        self._write(_outcome(reply), opaque, serialize_type)

    def _settle(self, size: int) -> None:
        """One request of the peer is done with."""
        self._under_way -= 1
        self._under_way_bytes -= size
        if self._under_way < self.limits.requests:
            self._allowed = self.limits.requests
        self._drain()

    def _fill(self) -> None:
        """Read no further; should that last, look whether it is long polls that wait."""
        if self._full_since is not None:
            return
        self._full_since = self.loop.time()
        self.pause()
        if not self._watched:
            self._watched = True
            self._wheel.add(_Patience(self), _TIMEOUT)

    def _drain(self) -> None:
        """Read on, where nothing stands against it any more."""
        if (
            self._full_since is not None
            and self._under_way < self._allowed
            and self._under_way_bytes < self.limits.request_bytes
        ):
            self._full_since = None
            self.resume()
            if self._backlog:
                self.loop.call_soon(self._work_off)

    def stayed(self) -> None:
        """A moment has passed since reading stopped."""
        self._watched = False
        if self.closed or self._full_since is None:
            return
        if self._under_way >= self._allowed and self.loop.time() - self._full_since >= _TIMEOUT:
            self._allowed = min(self._allowed + self.limits.requests, self.limits.waiting)
            self._drain()
        if self._full_since is not None:
            self._watched = True
            self._wheel.add(_Patience(self), _TIMEOUT)

    def on_decode_error(self, error: RemotingError, data: bytes) -> None:
        """The peer has sent what cannot be read; `data` begins with it. For subclasses."""

    def _protocol_error(self, error: RemotingError, data: bytes) -> None:
        self.undecodable += 1
        self.on_decode_error(error, data)
        _log.warning("%s: %s; first bytes %s", self.name, error, data[:16].hex(" "))
        self.close(CloseCause.PROTOCOL)

    # Requests of ours.

    def request(
        self,
        command: RemotingCommand,
        timeout: float,
        future: "asyncio.Future[RemotingCommand] | None" = None,
        lost: Lost | None = None,
    ) -> "asyncio.Future[RemotingCommand]":
        """Send a request; the future gets the answer, RequestTimeout after `timeout` seconds, or ConnectionLost.

        One that no peer would take gets InvalidRequest.

        The command's opaque and encoding are overwritten. `lost`, where given, is called instead of
        failing the future when the connection goes away before the answer came.
        """
        if future is None:
            future = self.loop.create_future()
        command.header["opaque"] = opaque = self._next_opaque()
        # Whatever it came in: codes over 32767 do not fit the binary header.
        command.serialize_type = SerializeType.JSON
        call = Call(self, command, future, lost, timeout)
        if self.closed:
            self._lose(call)
            return future
        header = command.encode()
        if len(header) + len(command.body) > MAX_FRAME:
            # The peer would end the connection, and with it everybody's requests.
            call.end()
            future.set_exception(InvalidRequest(f"a request of more than {MAX_FRAME} bytes cannot be sent"))
            return future
        self._pending[opaque] = call
        self._wheel.add(call, timeout)
        self._put(header, command.body)
        return future

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers. On a closed connection it is dropped."""
        command.header["opaque"] = self._next_opaque()
        command.flag |= ONEWAY_FLAG
        command.header["flag"] = command.flag
        command.serialize_type = SerializeType.JSON
        if self.closed:
            return
        header = command.encode()
        if len(header) + len(command.body) > MAX_FRAME:
            _log.info("%r to %s was dropped: it is too large", command, self.name)
        else:
            self._put(header, command.body)

    def overdue(self, timeout: float) -> None:
        """A request of ours was not answered for `timeout` seconds. Of a client's connection that says nothing."""

    def forget(self, opaque: int) -> None:
        """Take no answer to this request any more."""
        self._pending.pop(opaque, None)

    def _next_opaque(self) -> int:
        opaque = self._opaque
        while opaque in self._pending:
            opaque = opaque + 1 & 0x7FFFFFFF
        self._opaque = opaque + 1 & 0x7FFFFFFF
        return opaque

    def _lose(self, call: Call) -> None:
        command, lost = call.command, call.lost
        future = call.end()
        if future is None or command is None:
            return
        if lost is not None:
            lost(command, future)
        else:
            future.set_exception(ConnectionLost(f"the connection to {self.name} was lost"))

    # Writing: everything of one loop turn goes out in one write.

    def send(self, command: RemotingCommand) -> None:
        """Write a command as it is."""
        if not self.closed:
            self._put(command.encode(), command.body)

    def _put(self, header: bytes, body: bytes) -> None:
        out = self._out
        if not out:
            self.loop.call_soon(self._flush)
        out.append(header)
        if body:
            out.append(body)

    def _write(self, reply: RemotingCommand, opaque: int, serialize_type: int) -> None:
        self.send(commands.answer(reply, opaque, serialize_type))

    def _flush(self) -> None:
        transport, out = self.transport, self._out
        self._out = []
        if self.closed or transport is None:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        self.sent_bytes += len(data)
        transport.write(data)
        if self.congested and transport.get_write_buffer_size() > self.limits.hard_buffer:
            self.abort(CloseCause.SLOW_READER)

    # Back-pressure.

    def pause(self) -> None:
        """Read no further until `resume` has been called as often as `pause`."""
        self._holds += 1
        if self._holds == 1:
            self.pauses += 1
            if self.transport is not None and not self.transport.is_closing():
                self.transport.pause_reading()

    def resume(self) -> None:
        """Undo one `pause`."""
        self._holds -= 1
        if self._holds == 0 and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def hold(self, source: Source) -> None:
        """Keep whoever feeds this connection from being read until it has drained."""
        if self.congested and source not in self._held:
            self._held[source] = None
            source.pause()

    def release(self) -> None:
        """It has drained: whoever was held may be read again."""
        held, self._held = self._held, {}
        for source in held:
            source.resume()

    # The end.

    def close(self, cause: CloseCause) -> None:
        """Close after what has been written is out."""
        if self.cause is None:
            self.cause = cause
        if self.transport is not None and not self.transport.is_closing():
            if self.congested:
                # Whoever does not read would keep it open for as long as it likes.
                self.transport.abort()
                return
            if self._out:
                self._flush()
            self.transport.close()

    def abort(self, cause: CloseCause) -> None:
        """Close now; what has not been written is lost."""
        if self.cause is None:
            self.cause = cause
        if self.transport is not None:
            self.transport.abort()

    @property
    def in_flight(self) -> int:
        """Requests of the peer that have not been answered yet."""
        return self._under_way

    @property
    def pending(self) -> int:
        """Requests of ours that have not been answered yet."""
        return len(self._pending)


def _outcome(reply: "asyncio.Future[RemotingCommand]") -> RemotingCommand:
    """The answer in a finished future; a failure becomes the answer that says so."""
    if reply.cancelled():
        return _failure(RemotingError("the request was given up"))
    error = reply.exception()
    if error is None:
        return reply.result()
    if not isinstance(error, RemotingError):
        _log.error("a request failed", exc_info=error)
        error = RemotingError("internal error")
    return _failure(error)


def _failure(error: RemotingError) -> RemotingCommand:
    return commands.response(error.code, remark=str(error))


def _consume(reply: "asyncio.Future[RemotingCommand]") -> None:
    """Note the failure of a request that nobody waits for."""
    if not reply.cancelled() and (error := reply.exception()) is not None:
        _log.info("a oneway request failed: %s", error)
