"""One request to the broker."""

from functools import lru_cache

from protocol_negotiation.peer import HostPort
from proxy.core.channel import Channel
from remoting.command import RemotingCommand
from remoting.errors import InvalidRequest
from remoting.outcomes import Reply

# The response, immediately or later; None for a request that gets no response.
Answer = RemotingCommand | Reply | None

_TRUE = "true"
_NO_ADDRESS = ("0.0.0.0", 0)  # noqa: S104  # not bound


# Cached, because a client sends many messages from one address, and formatting it takes longer than storing one of
# them.
@lru_cache(maxsize=4096)
def _address(address: HostPort) -> tuple[str, int]:
    return _NO_ADDRESS if address.ip is None else (str(address.ip), address.port)


class Request:
    """A request of a client (None: of this process itself) at a time in ms since 1970.

    arrived_at: the time of its arrival if it has waited since then, else None. reply: its response, if it has waited.
    """

    __slots__ = ("arrived_at", "channel", "command", "fields", "now", "reply")

    def __init__(
        self,
        channel: Channel | None,
        command: RemotingCommand,
        now: int,
        arrived_at: int | None = None,
        reply: Reply | None = None,
    ) -> None:
        self.channel = channel
        self.command = command
        self.fields = command.fields
        self.now = now
        self.arrived_at = arrived_at
        self.reply = reply

    @property
    def resumed(self) -> bool:
        """Whether it has waited before, and must be answered now."""
        return self.arrived_at is not None

    @property
    def sent_at(self) -> int:
        """Time of the request (ms), by the client's clock if the request contains it, else by the broker's."""
        return self.number("bornTime", 0) or (self.now if self.arrived_at is None else self.arrived_at)

    def text(self, name: str) -> str:
        """Return a required field. Raises InvalidRequest."""
        value = self.fields.get(name)
        if value is None:
            raise InvalidRequest(f"the field {name} is missing")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return an integer field, which is required without a default. Raises InvalidRequest."""
        if default is not None and not self.fields.get(name):
            return default
        return self.command.integer(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean field."""
        value = self.fields.get(name)
        return default if not value else value.lower() == _TRUE

    @property
    def address(self) -> tuple[str, int]:
        """IP address and port of the client; 0.0.0.0:0 without an IP address."""
        return _NO_ADDRESS if self.channel is None else _address(self.channel.peer.address)

    def resume(self, now: int, reply: Reply) -> "Request":
        """Return the same request after it has waited; `reply` is its response."""
        arrived_at = self.now if self.arrived_at is None else self.arrived_at
        return Request(self.channel, self.command, now, arrived_at, reply)


def java_bool(value: bool) -> str:
    """Return a boolean as Java writes it."""
    return "true" if value else "false"
