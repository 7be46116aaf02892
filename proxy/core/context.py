"""The context of one request, for checks, handlers and observers."""

from typing import Final, NamedTuple, Protocol

from proxy.core.channel import Channel
from proxy.core.poll_turns import PollTurns
from proxy.core.upstream_shares import Window
from remoting.command import RemotingCommand
from remoting.messages import StoredMessage
from remoting.requests import RequestSpec
from remoting.signature import SIGNATURE


class Trace(Protocol):
    """The trace of a sampled request."""

    def finish(self, context: "Context", code: int, reply: RemotingCommand | None) -> None:
        """End the trace: the request was answered with this response code."""


class Viewed(NamedTuple):
    """A message without its body, and its place."""

    broker: str
    offset: str
    message: StoredMessage


# Bytes of memory that a request takes until it is answered, beside its command: contexts, futures, a task.
REQUEST_MEMORY: Final = 8 * 1024


class Context:
    """One in-flight request.

    principal: the sender; only checked while authentication is on.
    size: bytes of its body. memory: estimate of the bytes that it occupies in memory. started, sent: in seconds of
    `time.monotonic`. broker, sent: None until the request is sent to a broker. trace: None unless it is sampled.
    window: that counts the request at its broker; None if none does. ended: whether the client has its response, or has
    cancelled the request. viewed: place and message that the request names, once it was looked up, by
    `proxy.core.stored_topics`.
    """

    __slots__ = (
        "broker",
        "channel",
        "code",
        "command",
        "ended",
        "fields",
        "memory",
        "principal",
        "sent",
        "size",
        "spec",
        "started",
        "trace",
        "viewed",
        "window",
    )

    def __init__(self, channel: Channel, command: RemotingCommand, spec: RequestSpec | None, started: float) -> None:
        self.channel = channel
        # The connection's next request may have another sender.
        self.principal = channel.principal
        self.command = command
        # Forwarding overwrites the command's header.
        self.code = command.code
        self.fields = command.fields
        self.spec = spec
        self.started = started
        self.size = len(command.body)
        self.memory = command.memory + REQUEST_MEMORY
        self.sent: float | None = None
        self.broker: str | None = None
        self.trace: Trace | None = None
        self.window: Window | PollTurns | None = None
        self.ended = False
        self.viewed: Viewed | None = None

    def end(self, now: float, answered: bool) -> None:
        """Note that the request has ended at `now`: it is not sent any more."""
        self.ended = True
        self.leave_window(now, answered)

    def leave_window(self, now: float, answered: bool) -> None:
        """Count the end, at `now`, of the request at its broker, if that is counted."""
        window = self.window
        if window is not None:
            self.window = None
            window.leave(self.sent, now, answered)

    @property
    def signed(self) -> bool:
        """Whether its client has signed it. C++ clients without credentials send an empty signature."""
        return bool(self.fields.get(SIGNATURE))

    @property
    def known_spec(self) -> RequestSpec:
        """The request's row in the request table; the check `well_formed` ensures that it exists."""
        assert self.spec is not None
        return self.spec

    @property
    def topic(self) -> str | None:
        """The request's topic."""
        spec = self.spec
        return None if spec is None or spec.topic is None else self.fields.get(spec.topic)

    @property
    def group(self) -> str | None:
        """The request's producer or consumer group."""
        spec = self.spec
        return None if spec is None or spec.group is None else self.fields.get(spec.group)
