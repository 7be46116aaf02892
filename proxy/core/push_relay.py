"""The push relay: requests of brokers are sent on to the client, and its replies back to the broker.

Brokers copy the ext fields of a tool's GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY into the request to the
client (AdminBrokerProcessor.callConsumer), with the tool's signature. It covers no request code and has no time
(`remoting.signature`), so that the client could send other requests as the tool's user: it is removed.
"""

from proxy.core.channel import Channel
from proxy.core.unanswered import CLIENT_TIMEOUT
from remoting import messages
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.outcomes import Reply
from remoting.signature import SIGNATURE_FIELDS


def relay(channel: Channel, command: RemotingCommand) -> Reply | None:
    """Send a broker's request to a client and return its reply; None for a oneway request."""
    for name in SIGNATURE_FIELDS:
        command.fields.pop(name, None)
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
