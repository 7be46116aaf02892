"""The context of one request: what checks, handlers and observers know about it."""

from typing import Protocol

from proxy.core.channel import Channel
from remoting.command import RemotingCommand
from remoting.requests import RequestSpec


class Trace(Protocol):
    """A request that is being traced."""

    def finish(self, context: "Context", code: int, reply: RemotingCommand | None) -> None:
        """The request has been answered with this response code."""


class Context:
    """One request under way.

    size: bytes of its body. started, sent: seconds of `time.monotonic`; sent is None, as broker is, until the request
    has gone to a broker. trace: of a request that is traced.
    """

    __slots__ = ("broker", "channel", "code", "command", "fields", "sent", "size", "spec", "started", "trace")

    def __init__(self, channel: Channel, command: RemotingCommand, spec: RequestSpec | None, started: float) -> None:
        self.channel = channel
        self.command = command
        # A forwarded command's header is overwritten on its way.
        self.code = command.code
        self.fields = command.fields
        self.spec = spec
        self.started = started
        self.size = len(command.body)
        self.sent: float | None = None
        self.broker: str | None = None
        self.trace: Trace | None = None

    @property
    def known(self) -> RequestSpec:
        """The request's row in the request table; the first check has seen to it that there is one."""
        assert self.spec is not None
        return self.spec

    @property
    def topic(self) -> str | None:
        """The topic that the request is about."""
        spec = self.spec
        return None if spec is None or spec.topic is None else self.fields.get(spec.topic)

    @property
    def group(self) -> str | None:
        """The producer or consumer group that the request is about."""
        spec = self.spec
        return None if spec is None or spec.group is None else self.fields.get(spec.group)
