"""A remoting connection: one end of a TCP connection over which both sides send requests.

The same class serves clients, whose requests it passes to a handler, and sends requests to brokers and name servers.
"""

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from protocol_negotiation.fair_turns import EXPENSIVE_SECONDS, FairTurns, Share, Source
from protocol_negotiation.peer import Peer
from remoting import command as commands
from remoting.close_cause import CloseCause
from remoting.codes import ONEWAY_FLAG, RESPONSE_FLAG, SerializeType
from remoting.command import RemotingCommand
from remoting.compilation import mypyc_attr
from remoting.errors import FrameError, HeaderError, InvalidRequest, RemotingError
from remoting.flow_control import DEFAULT_LIMITS, FlowControl, Limits, Progress
from remoting.frame import MAX_FRAME, MAX_HEADER, MAX_SERVER_HEADER, Frame, FrameDecoder
from remoting.memory_watch import LARGE
from remoting.outcomes import Reply, error_response, is_large, response_of
from remoting.pending_request import LostHandler
from remoting.pending_requests import PendingRequests, lose
from remoting.tasks import isolated
from remoting.timeout_wheel import TimeoutWheel

_log = logging.getLogger("gantry.remoting")

_JSON: Final = int(SerializeType.JSON)
# Mean size of the parts of a write, in bytes, up to which they are copied into one buffer.
_MAX_COPIED: Final = 8 * 1024

# The share of connections that take no turns.
_UNSHARED: Final = Share(Source(None))

# Handles a request of the peer: returns a future of the response, or None if there is no response.
Handler = Callable[["RemotingConnection", RemotingCommand], Reply | None]


@mypyc_attr(allow_interpreted_subclasses=True)
class RemotingConnection(FlowControl):
    """One end of a remoting connection. All methods must be called on the event loop's thread.

    Attributes:
        requests: number of requests received.
        responses: number of responses received.
        unknown_responses: number of those to no request, also not to one that has timed out.
        undecodable: number of frames and headers that could not be decoded.
        opened_at, read_at: when the connection was opened and last read, in seconds of the loop's clock.
        cause: cause of the connection's end, once it is known.
    """

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_backlogged",
        "_decoder",
        "_held",
        "_of_server",
        "_out",
        "_out_bytes",
        "_pending",
        "_ready",
        "_turns",
        "_unfinished",
        "_unread",
        "_waiting",
        "cause",
        "handler",
        "name",
        "on_close",
        "opened_at",
        "read_at",
        "received_bytes",
        "requests",
        "responses",
        "sent_bytes",
        "share",
        "undecodable",
        "unknown_responses",
    )

    def __init__(
        self,
        wheel: TimeoutWheel,
        handler: Handler,
        on_close: Callable[["RemotingConnection"], None],
        peer: Peer | None = None,
        name: str = "",
        limits: Limits = DEFAULT_LIMITS,
        turns: FairTurns | None = None,
    ) -> None:
        super().__init__(wheel, limits)
        self.handler = handler
        self.on_close = on_close
        # A server's connection reads responses, and requests that brokers push.
        self._of_server = peer is None
        self.name = name or str(peer and peer.address)
        self.cause: CloseCause | None = None
        self.opened_at = self.read_at = self.loop.time()
        self.received_bytes = self.sent_bytes = 0
        self.requests = self.responses = self.unknown_responses = self.undecodable = 0
        self._decoder = FrameDecoder(limits.frame, MAX_SERVER_HEADER if peer is None else MAX_HEADER)
        # Bytes of the unfinished frame, and bytes that the peer has read while responses wait.
        self._unfinished: Progress | None = None
        self._unread: Progress | None = None
        # Large replies that are ready and not written; further requests wait for them.
        self._ready = 0
        # Bytes of frames that wait, and these with the unfinished frame, as `memory` counts them.
        self._backlog_bytes = self._held = 0
        # Turns of a client's connection; `Upstream` has those of a server's.
        self._turns = turns if peer is not None else None
        self.share: Share = _UNSHARED if turns is None or peer is None else turns.join(peer.address)
        # Frames that wait, and whether reads are paused until they are handled.
        self._backlog: deque[Frame] = deque()
        self._backlogged = False
        self._waiting = False  # whether a turn to process them is scheduled
        self._pending = PendingRequests(wheel)
        self._out: list[bytes] = []
        self._out_bytes = 0

    @property
    def pending(self) -> int:
        """The number of sent requests without a response."""
        return len(self._pending)

    @property
    def waiting_frames(self) -> int:
        """The number of received frames that wait for their turn or for the peer's requests in flight."""
        return len(self._backlog)

    @property
    def unfinished_bytes(self) -> int:
        """The number of bytes of requests that have arrived in part, or wait for their turn."""
        return self._held

    # Transport callbacks.

    def data_received(self, data: bytes) -> None:
        # `loop.time()` is of the same clock, but fixed during a turn.
        self.read_at = begin = monotonic()
        size, turns, failure = len(data), self._turns, None
        self.received_bytes += size
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            frames, failure = error.frames, error
        if self._backlog:
            self._backlog += frames
            self._backlog_bytes += size
            self._pause_for_backlog()
        elif frames:
            if turns is None or failure is not None or turns.admit(self.share, len(frames), begin):
                if len(frames) == 1:
                    self._receive(frames[0])
                else:
                    self._process(frames)
                if turns is not None and ((spent := monotonic() - begin) > EXPENSIVE_SECONDS or turns.scheduled):
                    turns.charge(self.share, begin, spent)
            else:
                self._keep(frames, size)
                self._waiting = True
                turns.add(self)
        if failure is not None and self.cause is None:
            self._protocol_error(failure, data)
        if self._decoder.buffered or self._backlog_bytes or self._held:
            self._count_unfinished()
        if size >= LARGE and turns is not None:
            self.end_reads_of_turn()

    def connection_lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.congested = False
        self._discard_requests()
        if self._turns is not None:
            self._turns.leave(self.share)
        if self.cause is None:
            self.cause = CloseCause.PEER if error is None else CloseCause.RESET
        self.resume_sources()
        # First, so that retries of the pending requests do not choose this connection again.
        isolated(self.on_close, self)
        self._pending.lose_all(self.name)

    def _count_unfinished(self) -> None:
        """Update the share of this connection in the bytes of unfinished requests."""
        held, self._held = self._held, self._decoder.buffered + self._backlog_bytes
        if self._held != held:
            self.memory.hold(self._held - held)

    def _discard_requests(self) -> None:
        """Release the memory of requests that have not been handled."""
        self._backlog.clear()
        self._backlog_bytes = 0
        if self._held:
            self._decoder.clear()
            self._count_unfinished()

    def check_unfinished_frame(self, timeout: float) -> None:
        """Close the connection if its unfinished frame arrives too slowly; to be called every few seconds.

        A frame must be complete, or grow by MIN_RATE, within each `timeout` seconds, so that a large frame over
        a slow link is not cut off. Time during which reads are paused does not count.
        """
        decoder = self._decoder
        if not decoder.buffered or self._pause_depth:
            self._unfinished = None
            return
        progress = Progress(decoder.partial_frames, self.loop.time(), decoder.buffered)
        self._unfinished, slow = progress.since(self._unfinished, timeout)
        if slow:
            _log.warning("%s: an unfinished frame of %d bytes arrives too slowly", self.name, decoder.buffered)
            self.abort(CloseCause.UNFINISHED_FRAME)

    def check_unread_responses(self, timeout: float) -> None:
        """Close the connection if the peer reads less than MIN_RATE in `timeout` seconds. Call it every few seconds."""
        if not self.congested:
            self._unread = None
            return
        progress = Progress(0, self.loop.time(), self.sent_bytes - self.unread_bytes)
        self._unread, slow = progress.since(self._unread, timeout)
        if slow:
            _log.warning("%s: %d bytes of responses are not read", self.name, self.unread_bytes)
            self.abort(CloseCause.SLOW_READER)

    # Requests of the peer.

    def _process(self, frames: list[Frame]) -> None:
        """Process frames up to the limit of in-flight requests; the others wait."""
        for number, frame in enumerate(frames, 1):
            self._receive(frame)
            if self.cause is not None:
                return
            if (self.full_since is not None or self._ready) and number < len(frames):
                waiting = frames[number:]
                self._keep(waiting, sum(len(header) + len(body) for _, header, body in waiting))
                return

    def _keep(self, frames: list[Frame], size: int) -> None:
        """Let frames wait, which have `size` bytes."""
        self._backlog += frames
        self._backlog_bytes = size

    def _pause_for_backlog(self) -> None:
        """Pause reads until no frames wait: not before more arrive, since a pause costs system calls."""
        if not self._backlogged:
            self._backlogged = True
            self.pause()

    def _on_capacity(self) -> None:
        if self._backlog and not self._waiting:
            self._waiting = True
            if self._turns is not None:
                self._turns.add(self)
                return
            self.loop.call_soon(self.handle_more, math.inf)

    def handle_more(self, until: float) -> bool:
        """Process the next waiting frame, and more before the time `until`; return whether further ones can follow."""
        backlog, size = self._backlog, 0
        while backlog and self._can_proceed():
            frame = backlog.popleft()
            size += len(frame[2])
            self._receive(frame)
            if monotonic() >= until:
                break
        self.share.size = size
        if self.closed or self.cause is not None:
            backlog.clear()
        if not backlog:
            self._backlog_bytes = 0
            self._count_unfinished()
            self._waiting = False
            if self._backlogged:
                self._backlogged = False
                self.resume()
        elif not self._can_proceed():
            self._waiting = False
        return self._waiting

    def _can_proceed(self) -> bool:
        return not (self.full_since is not None or self._ready or self.congested or self.cause or self.closed)

    def fail(self) -> None:
        """Close the connection after an error in the handling of its frames."""
        self.abort(CloseCause.LOCAL)

    def _receive(self, frame: Frame) -> None:
        try:
            command = commands.decode_from_server(frame) if self._of_server else commands.decode(frame)
        except HeaderError as error:
            if error.opaque is None:
                self._protocol_error(error, frame[1])
                return
            self.undecodable += 1
            self.on_decode_error(error, frame[1])
            if not error.oneway:
                self._respond(error_response(error), error.opaque, frame[0])
            return
        if command.flag & RESPONSE_FLAG:
            self.responses += 1
            if not self._pending.resolve(command):
                self.unknown_responses += 1
                self.on_unknown_response()
        else:
            self._serve(command, command.memory)

    def _serve(self, command: RemotingCommand, size: int) -> None:
        self.requests += 1
        # Read now, because forwarding overwrites the command's opaque and encoding.
        opaque, serialize_type, oneway = command.opaque, command.serialize_type, command.flag & ONEWAY_FLAG
        try:
            reply = self.handler(self, command)
        except RemotingError as error:
            if not oneway:
                self._respond(error_response(error), opaque, serialize_type)
            return
        except Exception:
            # The other frames of this chunk must still be processed.
            _log.exception("request %d of %s failed", command.code, self.name)
            if not oneway:
                self._respond(error_response(RemotingError("internal error")), opaque, serialize_type)
            return
        if reply is None:
            return
        self._in_flight += 1
        self._in_flight_bytes += size
        if self._in_flight >= self._request_limit or self._in_flight_bytes >= self.limits.request_bytes:
            self._pause_at_limit()
        if oneway:
            reply.add_done_callback(partial(self._end_oneway, size))
        else:
            reply.add_done_callback(partial(self._reply, opaque, serialize_type, size))
            if reply.done() and is_large(reply):
                self._ready += 1
                reply.add_done_callback(self._large_replied)

    def _end_oneway(self, size: int, reply: Reply) -> None:
        self._end_request(size)
        if not reply.cancelled() and (error := reply.exception()) is not None:
            _log.info("a oneway request failed: %s", error)

    def _reply(self, opaque: int, serialize_type: int, size: int, reply: Reply) -> None:
        self._end_request(size)
        try:
            if not self.closed:
                response = commands.answer(response_of(reply), opaque, serialize_type)
                self._write(response.encode(), response.body)
        except Exception:
            # A client's response to a broker may be one that cannot be encoded.
            _log.exception("a response to %s cannot be sent", self.name)
            self._respond(error_response(RemotingError("internal error")), opaque, serialize_type)

    def _large_replied(self, _: Reply) -> None:
        self._ready -= 1
        self._on_capacity()

    def on_decode_error(self, error: RemotingError, data: bytes) -> None:
        """Handle bytes that could not be decoded; `data` begins with them. For subclasses."""

    def on_unknown_response(self) -> None:
        """Handle a response to no request; for subclasses."""

    def _protocol_error(self, error: RemotingError, data: bytes) -> None:
        self.undecodable += 1
        self.on_decode_error(error, data)
        _log.warning("%s: %s; first bytes %s", self.name, error, data[:16].hex(" "))
        self.close(CloseCause.PROTOCOL)

    # Requests to the peer.

    def request(
        self,
        command: RemotingCommand,
        timeout: float,
        future: Reply | None = None,
        lost: LostHandler | None = None,
    ) -> Reply:
        """Send a request and return the future of its response, which is `future` if that is given.

        The future fails with RequestTimeout after `timeout` seconds, with ConnectionLost if the connection ends before
        the response comes, and with InvalidRequest if the request is larger than any peer accepts. If `lost` is given,
        it is called instead of failing the future with ConnectionLost. The command's opaque and encoding are
        overwritten.
        """
        if future is None:
            future = self.loop.create_future()
        command.opaque = self._pending.next_opaque()
        # Codes over 32767 do not fit the binary header.
        command.serialize_type = _JSON
        if self.closed:
            lose(command, future, lost, self.name)
            return future
        header = command.encode()
        if len(header) + len(command.body) > MAX_FRAME:
            # The peer would close the connection, with all other requests on it.
            future.set_exception(InvalidRequest(f"a request of more than {MAX_FRAME} bytes cannot be sent"))
            return future
        self._pending.add(self, command, future, lost, timeout)
        self._write(header, command.body)
        return future

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without a response. Drop it if the connection is closed or the request is too large."""
        command.opaque = self._pending.next_opaque()
        command.flag |= ONEWAY_FLAG
        command.header["flag"] = command.flag
        command.serialize_type = _JSON
        if self.closed:
            return
        header = command.encode()
        if len(header) + len(command.body) > MAX_FRAME:
            _log.info("%r to %s was dropped: it is too large", command, self.name)
        else:
            self._write(header, command.body)

    def expire_requests(self) -> None:
        """Fail the requests whose deadlines have passed with RequestTimeout; called by the timeout wheel."""
        if not self.closed:
            for timeout in self._pending.expire(self, self.name):
                self.on_request_timeout(timeout)

    def on_request_timeout(self, timeout: float) -> None:
        """Handle that a request had no response within `timeout` seconds; for subclasses."""

    # Writes: the commands of one loop iteration are written at once.

    def send(self, command: RemotingCommand) -> None:
        """Write a command unchanged."""
        if not self.closed:
            self._write(command.encode(), command.body)

    def _respond(self, reply: RemotingCommand, opaque: int, serialize_type: int) -> None:
        self.send(commands.answer(reply, opaque, serialize_type))

    def _write(self, header: bytes, body: bytes) -> None:
        out = self._out
        if not out:
            self.loop.call_soon(self._flush)
        out.append(header)
        self._out_bytes += len(header) + len(body)
        if body:
            out.append(body)
            if len(body) >= LARGE:
                # At once, so that the transport knows how much the peer has not read.
                self.memory.move(len(body))
                self._flush()

    def _flush(self) -> None:
        transport, out = self.transport, self._out
        self._out = []
        if self.closed or transport is None or not out:
            return
        size = self._out_bytes
        self._out_bytes = 0
        self.sent_bytes += size
        if size > _MAX_COPIED * len(out):
            transport.writelines(out)
        else:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self.congested and transport.get_write_buffer_size() > self.limits.hard_buffer:
            self.abort(CloseCause.SLOW_READER)

    # End of the connection.

    def close(self, cause: CloseCause) -> None:
        """Close the connection after writing the buffered data."""
        if self.cause is None:
            self.cause = cause
        if self.transport is not None and not self.transport.is_closing():
            if self.congested:
                # A peer that does not read could keep the connection open indefinitely.
                self.transport.abort()
                return
            if self._out:
                self._flush()
            self.transport.close()

    def abort(self, cause: CloseCause) -> None:
        """Close the connection at once and discard the buffered data."""
        if self.cause is None:
            self.cause = cause
        if self.transport is not None:
            self.transport.abort()

    def shed(self) -> None:
        """Close the connection at once and release its memory, of which the process has too little."""
        self.abort(CloseCause.OVERLOAD)
        self._discard_requests()
