"""The operator as a channel of the core: who asks when nobody's client does."""

import asyncio
import time

from protocol_negotiation.peer import HostPort, Peer
from proxy.core.channel import ChannelProtocol, Identity, Session
from proxy.core.context import Context
from proxy.core.messaging import Handling, Messaging
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, UnsupportedRequest
from remoting.requests import REQUESTS, request_spec

_NOWHERE = HostPort("127.0.0.1", 0)
_NAME = "gantry-admin"
# Seconds for one question.
TIMEOUT = 5.0


class BrokerRefused(RemotingError):
    """A broker has answered, but not as wished: `answer` is its response code."""

    def __init__(self, broker: str, answer: int, remark: str | None) -> None:
        super().__init__(f"the broker {broker} answered {answer}: {remark or 'without a word'}")
        self.answer = answer


class Operator:
    """A channel that is nobody's: it is never asked anything."""

    protocol: ChannelProtocol = "remoting"
    # These are not requests of a client.
    observed = False
    closed = False
    supports_go_away = False
    producers_represented = False
    leave_cause = "unregistered"

    def __init__(self) -> None:
        self.peer = Peer(_NOWHERE, _NOWHERE)
        self.session = Session(_NAME)
        self.identity = Identity(_NAME, None, None)

    def request(self, command: RemotingCommand, timeout: float) -> "asyncio.Future[RemotingCommand]":
        """Nobody is there to answer."""
        raise UnsupportedRequest(f"the admin API answers no request {command.code}")

    def oneway(self, command: RemotingCommand) -> None:
        """Nobody is there to listen."""

    def pause(self) -> None:
        """Nothing is read."""

    def resume(self) -> None:
        """Nothing is read."""


async def ask(
    core: Messaging, broker: str, code: int, fields: dict[str, str], body: bytes = b"", timeout: float = TIMEOUT
) -> RemotingCommand:
    """A broker's answer, which is a success. Raises BrokerRefused, and what `Backend.request` does."""
    command = commands.request(code, fields, body)
    reply = await core.backend.request(broker, request_spec(code), command, timeout, None)
    if reply.code != 0:
        raise BrokerRefused(broker, reply.code, reply.remark)
    return reply


async def handle(
    core: Messaging, handling: Handling, code: int, fields: dict[str, str], timeout: float = TIMEOUT
) -> RemotingCommand:
    """A handler's answer to a request of the operator's. Raises RemotingError, TimeoutError."""
    context = Context(Operator(), commands.request(code, fields), REQUESTS[code], time.monotonic())
    handled = handling(core, context)
    assert handled is not None
    async with asyncio.timeout(timeout):
        return await handled
