"""Requests of operators to the core's handlers, through a channel that stands for the operator."""

import asyncio
import time

from protocol_negotiation.peer import HostPort, Peer
from proxy.core.channel import ChannelProtocol, Identity, Session
from proxy.core.context import Context
from proxy.core.messaging import Handling, Messaging
from proxy.core.principal import OWN
from proxy.operations.broker_requests import TIMEOUT
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import UnsupportedRequest
from remoting.outcomes import Reply
from remoting.requests import REQUESTS

_ADDRESS = HostPort("127.0.0.1", 0)
_NAME = "gantry-admin"


class Operator:
    """The operator's channel; it sends requests and receives none."""

    protocol: ChannelProtocol = "remoting"
    # These are not requests of a client.
    observed = False
    closed = False
    supports_go_away = False
    producers_represented = False
    representative = False
    leave_cause = "unregistered"
    signs = False
    unread_bytes = 0
    principal = OWN

    def __init__(self) -> None:
        self.peer = Peer(_ADDRESS, _ADDRESS)
        self.session = Session(_NAME)
        self.identity = Identity(_NAME, None, None)

    def request(self, command: RemotingCommand, timeout: float) -> Reply:
        """Raise UnsupportedRequest."""
        raise UnsupportedRequest(f"the admin API answers no request {command.code}")

    def oneway(self, command: RemotingCommand) -> None:
        """Ignore the command."""

    def pause(self) -> None:
        """Do nothing: there is nothing to read."""

    def resume(self) -> None:
        """Do nothing."""


async def handle(
    core: Messaging,
    handling: Handling,
    code: int,
    fields: dict[str, str],
    timeout: float = TIMEOUT,
    body: bytes = b"",
) -> RemotingCommand:
    """Return a handler's reply to a request of the operator. Raises RemotingError, TimeoutError."""
    context = Context(Operator(), commands.request(code, fields, body), REQUESTS[code], time.monotonic())
    try:
        handled = handling(core, context)
        assert handled is not None
        async with asyncio.timeout(timeout):
            return await handled
    finally:
        context.end(time.monotonic(), answered=True)
