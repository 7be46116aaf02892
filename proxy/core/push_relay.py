"""Relaying: what a broker asks of a client goes to that client, and its answer back to the broker."""

from proxy.core.channel import Channel
from proxy.core.messaging import Reply
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand

# As long as a broker waits for a client, in seconds.
CLIENT_TIMEOUT = 10.0


def relay(channel: Channel, command: RemotingCommand) -> Reply | None:
    """Relay a broker's request to a client; for a oneway one there is no answer."""
    if command.code == RequestCode.CHECK_TRANSACTION_STATE:
        _name_topic(command)
    if command.is_oneway:
        channel.oneway(command)
        return None
    return channel.request(command, CLIENT_TIMEOUT)


def _name_topic(command: RemotingCommand) -> None:
    """Brokers name the internal topic of half messages; the client's END_TRANSACTION shall name the real one."""
    half = messages.decode_messages(command.body)
    if half:
        command.fields["topic"] = half[0].topic
