"""The context of one request: what checks, handlers and observers know about it."""

from proxy.channel import Channel
from remoting.command import RemotingCommand
from remoting.requests import RequestSpec


class Context:
    """One request under way. `started` is in seconds of the loop's clock."""

    __slots__ = ("channel", "code", "command", "fields", "spec", "started")

    def __init__(self, channel: Channel, command: RemotingCommand, spec: RequestSpec | None, started: float) -> None:
        self.channel = channel
        self.command = command
        # A forwarded command's header is overwritten on its way.
        self.code = command.code
        self.fields = command.fields
        self.spec = spec
        self.started = started

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
