"""One request to the broker, as its handlers see it."""

import asyncio
from functools import lru_cache

from protocol_negotiation.peer import HostPort
from proxy.core.channel import Channel
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import InvalidRequest, RemotingError

Reply = asyncio.Future[RemotingCommand]
# The answer, now or later; None: there is none.
Answer = RemotingCommand | Reply | None

_TRUE = "true"
_NOWHERE = ("0.0.0.0", 0)


# A client sends many messages from one place, and reading an IP address takes longer than storing one of them.
@lru_cache(maxsize=4096)
def _place(address: HostPort) -> tuple[str, int]:
    return _NOWHERE if address.ip is None else (str(address.ip), address.port)


class Request:
    """A request of a client (None: of this process itself) at a time, in milliseconds since 1970.

    came: when it came first; it may have waited since then.
    """

    __slots__ = ("came", "channel", "command", "fields", "now")

    def __init__(self, channel: Channel | None, command: RemotingCommand, now: int, came: int | None = None) -> None:
        self.channel = channel
        self.command = command
        self.fields = command.fields
        self.now = now
        self.came = came

    @property
    def resumed(self) -> bool:
        """Whether it has waited before, and is answered now, whatever there is."""
        return self.came is not None

    @property
    def born(self) -> int:
        """When the client asked, by its own clock if it says so, else by ours."""
        return self.number("bornTime", 0) or (self.now if self.came is None else self.came)

    def text(self, name: str) -> str:
        """A field that has to be there. Raises InvalidRequest."""
        value = self.fields.get(name)
        if value is None:
            raise InvalidRequest(f"the field {name} is missing")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A number; one that has to be there where there is no default. Raises InvalidRequest."""
        if default is not None and not self.fields.get(name):
            return default
        return self.command.integer(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        value = self.fields.get(name)
        return default if not value else value.lower() == _TRUE

    @property
    def address(self) -> tuple[str, int]:
        """Where the client is; 0.0.0.0:0 where that is no IP address."""
        return _NOWHERE if self.channel is None else _place(self.channel.peer.address)

    def again(self, now: int) -> "Request":
        """The same after it has waited."""
        return Request(self.channel, self.command, now, self.now if self.came is None else self.came)


class Refused(RemotingError):
    """A refusal with a code of its own, which need not be in the list of those in use."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.number = int(code)


def code_of(error: RemotingError) -> int:
    """The response code of an error."""
    return error.number if isinstance(error, Refused) else int(error.code)


def yes(value: bool) -> str:
    """A truth value as Java writes it."""
    return "true" if value else "false"


def refusal(code: int, remark: str, fields: dict[str, str] | None = None) -> RemotingCommand:
    """An answer that is no success."""
    return commands.response(code, fields, remark=remark)
