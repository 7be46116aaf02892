"""The push relay: requests of brokers are sent on to the client, and its replies back to the broker."""

from proxy.core.channel import Channel
from proxy.core.messaging import Reply
from proxy.core.unanswered import CLIENT_TIMEOUT
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand


def relay(channel: Channel, command: RemotingCommand) -> Reply | None:
    """Send a broker's request to a client and return its reply; None for a oneway request."""
    if command.code == RequestCode.CHECK_TRANSACTION_STATE:
        _set_real_topic(command)
    if command.is_oneway:
        channel.oneway(command)
        return None
    return channel.request(command, CLIENT_TIMEOUT)


def _set_real_topic(command: RemotingCommand) -> None:
    """Replace the internal topic of half messages, so that the client's END_TRANSACTION names the real topic."""
    half = messages.decode_messages(command.body)
    if half:
        command.fields["topic"] = half[0].topic
