"""Requests of Gantry itself to a broker."""

from proxy.core.messaging import Messaging
from remoting.command import RemotingCommand
from remoting.outcomes import Reply
from remoting.requests import REQUESTS


def own_request(core: Messaging, broker: str, command: RemotingCommand) -> Reply:
    """Send a request of Gantry itself to a broker; return the future of its reply."""
    timeout = core.settings.cluster.request_timeout
    return core.backend.request(broker, REQUESTS[command.code], command, timeout, None)
